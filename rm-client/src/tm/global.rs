//! A global that this process has begun and must decide.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast_proto::v1::{Decision, EndRequest, ReplyWhen};
use handfast_rm_core::GlobalStatus;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::error::{EndError, RollbackCause, TransactionError};
use crate::begin_keys::ClaimedKey;
use crate::connect::Handfast;
use crate::context::{self, Context};
use crate::error::{Error, RejectionDetail};
use crate::last_commit::{Known, LastCommit};
use crate::link::{Begun, Deadline};
use crate::transient::UNKNOWN_XID;
use crate::xid::Xid;

/// A global that was begun explicitly, with [`begin`](crate::NewTransaction::begin).
///
/// A global that is dropped undecided is rolled back. The drop queues the request, which is sent in
/// the background, and does not wait for an answer. If the request is lost, because the process
/// ends or the coordinator is unreachable for longer than the request deadline, the coordinator
/// rolls back at the global's timeout.
///
/// ```no_run
/// # async fn example(handfast: handfast::Handfast) -> Result<(), Box<dyn std::error::Error>> {
/// let global = handfast.transaction("move-stock").begin().await?;
/// global.scope(async { /* branches */ }).await;
/// global.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a global that is dropped is rolled back"]
pub struct Global {
    handfast: Handfast,
    context: Context,
    rollback_only: Arc<AtomicBool>,
    deadline: Deadline,
    /// Whether participants are asked if they can commit before they are asked to prepare.
    can_commit_first: bool,
    /// Whether a decision was requested. A drop must not request another one then.
    decided: bool,
    last_commit: Arc<LastCommit>,
    /// From the begin to the end.
    span: Span,
    /// Dropped last: a further attempt with the key begins after the end of this one was requested.
    _key: Option<ClaimedKey>,
}

/// The result of a rollback request.
enum RollbackResult {
    Finished,
    UnderWay(Option<Error>),
    NeedsOperator,
    Forgotten(Error),
    Committed,
}

impl Global {
    pub(super) fn of(
        handfast: Handfast,
        (begun, key): (Begun, Option<ClaimedKey>),
        span: Span,
        read_committed: bool,
        can_commit_first: bool,
    ) -> Result<Self, Error> {
        let (rollback_only, last_commit) = (Arc::<AtomicBool>::default(), Arc::default());
        let context = Context {
            xid: Xid::new(&begun.reply.xid)?,
            read_committed,
            rollback_only: Some(Arc::clone(&rollback_only)),
            has_participants: Arc::default(),
            branches: Arc::default(),
            last_commit: (!can_commit_first).then(|| Arc::clone(&last_commit)),
            begin_answer: begun.answer,
        };
        let deadline = Deadline::of(&begun.reply);
        let (decided, _key) = (false, key);
        Ok(Self {
            handfast,
            context,
            rollback_only,
            deadline,
            can_commit_first,
            decided,
            last_commit,
            span,
            _key,
        })
    }

    /// Returns the global's XID. The coordinator may not know it yet: before it is handed to
    /// another process in any other way than through the [propagation](crate::propagation) layers,
    /// [`begun`](Self::begun) is to be awaited.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.context.xid
    }

    /// Waits until the coordinator knows the global. [`begin`](crate::NewTransaction::begin) need
    /// not have waited for its answer, and everything else that the library sends waits for it
    /// where it has to.
    ///
    /// # Errors
    /// The coordinator's refusal to begin the global, such as `HF-TC-SHARE-REACHED`, or the reason
    /// why there is no answer.
    pub async fn begun(&self) -> Result<(), Error> {
        match &self.context.begin_answer {
            Some(answer) => answer.wait().await.map(drop),
            None => Ok(()),
        }
    }

    /// Runs a future within this global: local transactions that the future begins become branches
    /// of the global, and its calls through the [propagation](crate::propagation) layers carry the
    /// XID.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        context::scope(Some(self.context.clone()), future).instrument(self.span.clone())
    }

    /// Makes [`commit`](Self::commit) roll back instead.
    pub fn set_rollback_only(&self) {
        self.rollback_only.store(true, Ordering::Release);
    }

    /// Commits. Returns `Ok` when the decision is durable. The remaining work of the branches, such
    /// as deleting undo logs, follows in the background.
    ///
    /// Rolls back instead, and returns an error that says so, if the global was set rollback-only
    /// or its time is over.
    ///
    /// # Errors
    /// A [`TransactionError`] if the global is not known to be committed. A commit without an
    /// answer is [`TransactionError::Unknown`] and is never followed by a rollback, even if this
    /// future is dropped.
    pub async fn commit(self) -> Result<(), EndError> {
        self.commit_or().await
    }

    /// Rolls back and waits until every branch is undone. `reason` is shown to operators, and its
    /// first 1,024 bytes are kept.
    ///
    /// # Errors
    /// A [`TransactionError`] if the global is not known to be rolled back and finished.
    pub async fn rollback(self, reason: &str) -> Result<(), EndError> {
        let end = self.undo(reason, RollbackCause::Requested).await;
        if let TransactionError::RolledBack { .. } = end { Ok(()) } else { Err(end) }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) async fn commit_or<E>(self) -> Result<(), TransactionError<E>> {
        let span = self.span.clone();
        let ended = self.request_commit().instrument(span.clone()).await;
        match &ended {
            Ok(()) => span.record("outcome", "committed"),
            Err(error) => span.record("outcome", error.code()),
        };
        ended
    }

    async fn request_commit<E>(mut self) -> Result<(), TransactionError<E>> {
        if self.is_committed() {
            let (xid, by) = (self.context.xid.clone(), RollbackCause::RollbackOnly);
            let is_late = self.rollback_only.load(Ordering::Acquire);
            return if is_late { Err(TransactionError::Committed { xid, by }) } else { Ok(()) };
        }
        if self.rollback_only.load(Ordering::Acquire) {
            return Err(self
                .request_rollback("set rollback-only", RollbackCause::RollbackOnly)
                .await);
        }
        if let Some(answer) = self.context.begin_answer.clone() {
            // It has come if a branch is registered. Without it nothing was done: dropping this
            // requests a rollback.
            self.deadline = answer.wait().await.map_err(TransactionError::NotBegun)?;
        }
        let Deadline(deadline) = self.deadline;
        if Instant::now() >= deadline {
            return Err(self
                .request_rollback("not committed in time", RollbackCause::Timeout)
                .await);
        }
        // Votes may take until the deadline, and the coordinator answers then at the latest.
        let voting = self.can_commit_first || self.context.has_participants.load(Ordering::Acquire);
        let left = deadline.duration_since(Instant::now());
        let wait = if voting { left } else { Duration::ZERO };
        match self.end(Decision::Commit, ReplyWhen::Decided, "", wait).await {
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => Ok(()),
            Ok(
                GlobalStatus::RollingBack(reason)
                | GlobalStatus::RolledBack(reason)
                | GlobalStatus::NeedsOperator(reason),
            ) => Err(self.request_rollback("commit refused", reason.into()).await),
            Ok(status @ (GlobalStatus::Active | GlobalStatus::Unknown | _)) => {
                let (xid, source) = (self.context.xid.clone(), unexpected(status));
                Err(TransactionError::Unknown { xid, source })
            }
            // No rollback follows: the commit may have been carried out.
            Err(source) => Err(TransactionError::Unknown { xid: self.context.xid.clone(), source }),
        }
    }

    /// Requests a rollback, or waits for one that is already decided, and returns the outcome.
    pub(super) async fn undo<E>(self, reason: &str, by: RollbackCause<E>) -> TransactionError<E> {
        let span = self.span.clone();
        let ended = self.request_rollback(reason, by).instrument(span.clone()).await;
        span.record("outcome", ended.code());
        ended
    }

    async fn request_rollback<E>(
        mut self,
        reason: &str,
        by: RollbackCause<E>,
    ) -> TransactionError<E> {
        if self.is_committed() {
            return TransactionError::Committed { xid: self.context.xid.clone(), by };
        }
        if self.is_refused() {
            return TransactionError::RolledBack { xid: self.context.xid.clone(), by };
        }
        let wait = self.handfast.rollback_wait();
        let undone = match self.end(Decision::RollBack, ReplyWhen::Finished, reason, wait).await {
            // The refusal of the begin has come before.
            _ if self.is_refused() => RollbackResult::Finished,
            Ok(GlobalStatus::RolledBack(_)) => RollbackResult::Finished,
            Ok(GlobalStatus::NeedsOperator(_)) => RollbackResult::NeedsOperator,
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => RollbackResult::Committed,
            Ok(GlobalStatus::RollingBack(_)) => RollbackResult::UnderWay(None),
            Ok(status @ GlobalStatus::Active) => RollbackResult::UnderWay(Some(unexpected(status))),
            Ok(status @ (GlobalStatus::Unknown | _)) => {
                RollbackResult::Forgotten(unexpected(status))
            }
            Err(error) if error.code() == UNKNOWN_XID => RollbackResult::Forgotten(error),
            Err(error) => RollbackResult::UnderWay(Some(error)),
        };
        let (xid, last_commit) = (self.context.xid.clone(), self.last_commit.known());
        match undone {
            RollbackResult::Finished => TransactionError::RolledBack { xid, by },
            // Its last branch may have committed, and the coordinator may not have heard that this
            // is in doubt, or not know the branch any more.
            RollbackResult::UnderWay(Some(source)) | RollbackResult::Forgotten(source)
                if last_commit == Known::InDoubt =>
            {
                TransactionError::Unknown { xid, source }
            }
            RollbackResult::UnderWay(source) => TransactionError::RollingBack { xid, by, source },
            RollbackResult::NeedsOperator => TransactionError::NeedsOperator { xid, by },
            RollbackResult::Forgotten(_) => TransactionError::Forgotten { xid, by },
            RollbackResult::Committed => TransactionError::Committed { xid, by },
        }
    }

    /// Returns whether the coordinator has refused to begin the global, so that nothing of it
    /// remains.
    fn is_refused(&self) -> bool {
        self.context.begin_answer.as_ref().is_some_and(|answer| answer.is_refused())
    }

    /// Returns whether the last branch has decided, which its process has told the coordinator.
    fn is_committed(&mut self) -> bool {
        let committed = self.last_commit.known() == Known::Committed;
        self.decided |= committed;
        committed
    }

    /// Requests a decision and returns the global's status, which may show a different decision
    /// that was taken before.
    async fn end(
        &mut self,
        decision: Decision,
        reply_when: ReplyWhen,
        reason: &str,
        wait: Duration,
    ) -> Result<GlobalStatus, Error> {
        // Set before the first await: from here on the outcome may be unknown, and a dropped future
        // must not request the opposite. The request of a rollback future that is dropped may never
        // have been sent, so `Drop` sends it again.
        self.decided |= decision == Decision::Commit;
        let request = EndRequest {
            xid: self.context.xid.as_str().to_owned(),
            decision: decision.into(),
            reply_when: reply_when.into(),
            reason: reason.to_owned(),
            can_commit_first: self.can_commit_first,
            traceparent: String::new(),
        };
        let ended = self.handfast.coordinator().end(request, wait).await;
        self.decided = true;
        match ended {
            Ok(reply) => Ok(GlobalStatus::from_wire(reply.status(), reply.rollback_reason())),
            Err(Error::Rejected(rejection)) => match rejection.detail() {
                RejectionDetail::AlreadyDecided { status } => Ok(*status),
                RejectionDetail::Plain
                | RejectionDetail::RowLocked { .. }
                | RejectionDetail::RowNeedsOperator { .. }
                | RejectionDetail::Deadlock { .. }
                | _ => Err(Error::Rejected(rejection)),
            },
            Err(error) => Err(error),
        }
    }
}

fn unexpected(status: GlobalStatus) -> Error {
    Error::UnexpectedAnswer { request: "end", got: format!("status {status}") }
}

impl Drop for Global {
    fn drop(&mut self) {
        if self.decided || self.is_committed() || self.is_refused() {
            return;
        }
        let xid = &self.context.xid;
        let coordinator = self.handfast.coordinator();
        match self.span.in_scope(|| coordinator.abandon(xid, "dropped undecided")) {
            Ok(()) => tracing::info!(%xid, "dropped undecided: rolling back"),
            Err(error) => {
                tracing::warn!(%xid, %error, "dropped undecided: left to its timeout");
            }
        }
    }
}

impl fmt::Debug for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global").field("xid", self.xid()).finish_non_exhaustive()
    }
}
