//! A transaction to be begun, and the view of it that its closure gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast_proto::v1::BeginRequest;
use tracing::Instrument;

use super::error::{RollbackCause, TransactionError};
use super::global::Global;
use super::keyed;
use super::propagation::{Plan, Propagation};
use super::retry::{RetriedTransaction, Retry};
use crate::connect::Handfast;
use crate::context::{self, Context};
use crate::error::Error;
use crate::propagation;
use crate::trace;
use crate::xid::Xid;

/// A global transaction to be begun. See [`Handfast::transaction`].
#[derive(Clone, Debug)]
#[must_use = "nothing begins before run or begin"]
pub struct NewTransaction {
    handfast: Handfast,
    name: String,
    timeout: Option<Duration>,
    propagation: Propagation,
    read_committed: bool,
    can_commit_first: bool,
    labels: BTreeMap<String, String>,
    key: Option<String>,
}

impl NewTransaction {
    pub(crate) fn new(handfast: Handfast, name: String) -> Self {
        let propagation = Propagation::default();
        Self {
            handfast,
            name,
            timeout: None,
            propagation,
            read_committed: false,
            can_commit_first: false,
            labels: BTreeMap::new(),
            key: None,
        }
    }

    /// Makes the transaction repeatable: of all attempts with this key, in whatever process of the
    /// application, at most one commits. The key is the caller's own, such as the id of a request
    /// or of a message, and is not used for anything else. At most 240 bytes.
    ///
    /// The first attempt begins a global. A later one finds it, and
    ///
    /// * fails with [`Error::BegunBefore`] if it is committed: the work is done,
    /// * begins another global if it is rolled back,
    /// * fails with [`Error::BegunBefore`] if it is undecided or still rolling back. The other
    ///   attempt is at work, or its process has gone and the global is rolled back at its timeout.
    ///
    /// The coordinator knows a key for as long as it remembers its globals (`limits.retention_ms`,
    /// `limits.history_max`), and after a restart only those of globals with a branch. Does not
    /// apply to a transaction that is joined.
    ///
    /// ```no_run
    /// use handfast::{Error, GlobalStatus, Handfast, TransactionError};
    ///
    /// # type Outcome = Result<(), TransactionError<std::io::Error>>;
    /// # async fn place_order() -> std::io::Result<()> { Ok(()) }
    /// async fn handle(handfast: &Handfast, request: &str) -> Outcome {
    ///     let order = handfast.transaction("place-order").key(request);
    ///     match order.run(async |_tx| place_order().await).await {
    ///         // An earlier attempt has done it, and its answer was lost.
    ///         Err(TransactionError::NotBegun(Error::BegunBefore {
    ///             status: GlobalStatus::Committed | GlobalStatus::Committing,
    ///             ..
    ///         })) => Ok(()),
    ///         ended => ended,
    ///     }
    /// }
    /// ```
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a label: what the application calls this transaction by. Operators find the global by
    /// it, with `handfast tx ls --label order=42`. A second value of one name takes the place of
    /// the first. Does not apply to a transaction that is joined.
    ///
    /// A transaction has at most 16 labels. A name has 1 to 64 bytes and no `=`, a value at most
    /// 256 bytes: the coordinator refuses to begin a global with others (`HF-TC-TOO-LARGE`,
    /// `HF-TC-BAD-REQUEST`). Labels are stored and shown in clear text: personal data does not
    /// belong there.
    ///
    /// ```no_run
    /// # async fn example(handfast: handfast::Handfast) -> Result<(), Box<dyn std::error::Error>> {
    /// let order = handfast.transaction("place-order").label("order", "42");
    /// # order.begin().await?.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Sets how long the global may go undecided before the coordinator rolls it back. Too short:
    /// slow but sound work is undone. Too long: rows stay locked after a crash of this process.
    /// Default: the coordinator's. Does not apply to a transaction that is joined.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how this transaction relates to one that is already active around it. Default:
    /// [`Propagation::Required`].
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    /// Makes plain reads of AT resources wait for rows that other globals have locked, so that they
    /// never see changes that may still be rolled back. Costs a call to the coordinator per read.
    pub fn read_committed(mut self) -> Self {
        self.read_committed = true;
        self
    }

    /// Makes the coordinator ask all [participants](crate::participant) whether they could commit
    /// before it asks any of them to prepare. Most refusals then come before any participant holds
    /// a lock. Costs one more round. Does not apply to a transaction that is joined.
    pub fn can_commit_first(mut self) -> Self {
        self.can_commit_first = true;
        self
    }

    /// Repeats the transaction if nothing of it remains and the reason may be gone: a deadlock, a
    /// lock timeout, a coordinator that was restarted before the first branch. Without this it runs
    /// once. A transaction that is joined is not repeated: the caller that began it decides.
    pub fn retry(self, policy: Retry) -> RetriedTransaction {
        RetriedTransaction::new(self, policy)
    }

    /// Runs a closure as a global transaction: `Ok` commits; `Err`, a panic and dropping the future
    /// roll back. The code that the closure calls is part of the transaction, through the ambient
    /// context: see [`current_xid`](crate::current_xid).
    ///
    /// If the closure fails, this waits until everything is undone, so that the caller finds the
    /// state from before. A panic and a drop do not wait: see [`Global`].
    ///
    /// ```no_run
    /// # async fn example(handfast: handfast::Handfast) -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn reserve_stock() -> Result<u32, std::io::Error> { Ok(1) }
    /// let units = handfast.transaction("place-order").run(async |_tx|
    /// reserve_stock().await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A [`TransactionError`] if the global is not known to be committed. It keeps the closure's
    /// error.
    pub async fn run<F, T, E>(self, work: F) -> Result<T, TransactionError<E>>
    where
        F: AsyncFnOnce(Transaction) -> Result<T, E>,
    {
        let plan = self.propagation.plan(context::current());
        match plan.map_err(TransactionError::NotBegun)? {
            Plan::Begin => Box::pin(self.begin_and_run(work)).await,
            Plan::Join(ambient) => {
                let transaction = Transaction::new(&ambient);
                let read_committed = ambient.read_committed || self.read_committed;
                // Code that joins does not know what its caller has left to do.
                let context = Context { read_committed, last_commit: None, ..ambient };
                let work = context::scope(Some(context), Box::pin(work(transaction)));
                work.await.map_err(TransactionError::Application)
            }
            Plan::Without => {
                let work = context::scope(None, Box::pin(work(Transaction::none())));
                work.await.map_err(TransactionError::Application)
            }
        }
    }

    /// Begins a global explicitly. The caller decides it with [`Global::commit`] or
    /// [`Global::rollback`].
    ///
    /// Only the caller that decides can begin explicitly: with [`Propagation::RequiresNew`], or
    /// with [`Propagation::Required`] outside any transaction. A participant has nothing to decide
    /// and uses [`run`](Self::run).
    ///
    /// # Errors
    /// [`Error::NotExplicit`] for the other kinds, [`Error::TransactionForbidden`] for `Required`
    /// inside a transaction, and the error of the coordinator if the global could not begin. The
    /// coordinator's answer is not always waited for: its refusal may come as the error of the
    /// first branch, or of the commit. [`Global::begun`] waits for it.
    pub async fn begin(self) -> Result<Global, Error> {
        match self.propagation {
            Propagation::Required | Propagation::RequiresNew => {}
            Propagation::Supports
            | Propagation::NotSupported
            | Propagation::Never
            | Propagation::Mandatory => {
                return Err(Error::NotExplicit { propagation: self.propagation.name() });
            }
        }
        match self.propagation.plan(context::current())? {
            Plan::Begin => self.begin_global().await,
            Plan::Join(Context { xid, .. }) => Err(Error::TransactionForbidden {
                xid,
                why: "only the process that begins a global ends it",
            }),
            Plan::Without => Err(Error::NotExplicit { propagation: self.propagation.name() }),
        }
    }

    async fn begin_and_run<F, T, E>(self, work: F) -> Result<T, TransactionError<E>>
    where
        F: AsyncFnOnce(Transaction) -> Result<T, E>,
    {
        let global = self.begin_global().await.map_err(TransactionError::NotBegun)?;
        let transaction = Transaction::new(global.context());
        match global.scope(Box::pin(work(transaction))).await {
            Ok(value) => global.commit_or().await.map(|()| value),
            Err(error) => {
                Err(global.undo("the work failed", RollbackCause::Application(error)).await)
            }
        }
    }

    async fn begin_global(self) -> Result<Global, Error> {
        let Self { handfast, name, timeout, read_committed, can_commit_first, labels, key, .. } =
            self;
        let request = BeginRequest {
            application: handfast.application().to_owned(),
            name,
            timeout_ms: timeout.map_or(0, at_least_one_ms),
            labels,
            // Requests without an answer are sent again under the same id by the link.
            ..BeginRequest::default()
        };
        let span = trace::transaction(&request.name);
        let begin = async {
            let Some(key) = &key else {
                return Ok((handfast.coordinator().begin(request).await?, None));
            };
            let (begun, claimed) = keyed::begin(&handfast, request, key).await?;
            Ok::<_, Error>((begun, Some(claimed)))
        };
        let begun = begin.instrument(span.clone()).await.inspect_err(|error| {
            span.record("outcome", error.code());
        })?;
        span.record("xid", &begun.0.reply.xid);
        let global = Global::of(handfast, begun, span, read_committed, can_commit_first)?;
        if propagation::begins_are_waited_for() {
            global.begun().await?;
        }
        Ok(global)
    }
}

/// Returns the timeout in milliseconds, 1 at least: 0 would mean the coordinator's default.
fn at_least_one_ms(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The transaction that a closure runs in, as the closure sees it.
#[derive(Clone, Debug)]
pub struct Transaction {
    xid: Option<Xid>,
    rollback_only: Option<Arc<AtomicBool>>,
}

impl Transaction {
    fn new(context: &Context) -> Self {
        Self { xid: Some(context.xid.clone()), rollback_only: context.rollback_only.clone() }
    }

    fn none() -> Self {
        Self { xid: None, rollback_only: None }
    }

    /// Returns the global's XID, or `None` if the closure runs without a global
    /// ([`Propagation::Supports`] and others).
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        self.xid.as_ref()
    }

    /// Makes sure that the global is rolled back, even if the closure returns `Ok`. Works for the
    /// caller that began the global, and for participants in its process.
    ///
    /// # Errors
    /// [`Error::BegunElsewhere`] if another process began the global: return an error to that
    /// process instead. [`Error::TransactionRequired`] if there is no global.
    pub fn set_rollback_only(&self) -> Result<(), Error> {
        match (&self.xid, &self.rollback_only) {
            (_, Some(flag)) => {
                flag.store(true, Ordering::Release);
                Ok(())
            }
            (Some(xid), None) => Err(Error::BegunElsewhere { xid: xid.clone() }),
            (None, None) => Err(Error::TransactionRequired),
        }
    }
}
