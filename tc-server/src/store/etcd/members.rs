//! The members of the cluster. A request goes to one of them until that fails to answer.
//!
//! Every request may be sent twice: callers must only pass those for which that does no harm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast_etcd::{EtcdClient, EtcdError, EtcdOptions, within};
use tokio::time::sleep;

use crate::store::StoreError;

/// The bounds of an attempt's first time limit, whatever the lease. Shorter: a busy cluster would
/// be asked again and again for what it is already doing. Longer: another member would be asked too
/// late.
const ATTEMPT_MIN: Duration = Duration::from_millis(500);
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// How often that limit is doubled. Otherwise a request that takes longer would never be answered.
const DOUBLED_MAX: u32 = 4;
/// The pauses between attempts, once each member has been asked.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The members of the cluster.
#[derive(Debug)]
pub(super) struct Members {
    clients: Vec<EtcdClient>,
    options: EtcdOptions,
    /// The store's name in messages.
    store: String,
    /// Requests go to the client at this index, modulo their number.
    current: AtomicUsize,
    attempt_limit: Duration,
}

impl Members {
    /// Connects with the first request.
    pub(super) fn connect(
        options: EtcdOptions,
        store: String,
        lease: Duration,
    ) -> Result<Self, StoreError> {
        let clients = EtcdClient::connect_each(&options).map_err(|error| StoreError::Unusable {
            store: store.clone(),
            reason: error.to_string(),
        })?;
        // A member that is silent must be left in good time before the lease ends.
        let attempt_limit = (lease / 4).clamp(ATTEMPT_MIN, ATTEMPT_MAX);
        Ok(Self { clients, options, store, current: AtomicUsize::new(0), attempt_limit })
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Sends a request once, and waits for so long at most. After a failure that may pass, the next
    /// request goes to another member.
    pub(super) async fn attempt<T, F>(
        &self,
        request: impl FnOnce(EtcdClient) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        self.attempt_within(self.attempt_limit, request).await
    }

    /// Like [`attempt`](Self::attempt), with a limit of the caller's.
    pub(super) async fn attempt_within<T, F>(
        &self,
        limit: Duration,
        request: impl FnOnce(EtcdClient) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let at = self.current.load(Ordering::Relaxed);
        let client = self.clients[at % self.clients.len()].clone();
        let answer = within(limit, request(client)).await;
        if answer.as_ref().is_err_and(EtcdError::may_pass) {
            // Of several requests that fail at a member, one turns to the next.
            let next = at.wrapping_add(1);
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }

    /// Sends a request, which may be sent twice, to one member after the other until one answers.
    ///
    /// # Errors
    /// [`StoreError::LostLeadership`] when it has failed and `goes_on` is false, and
    /// [`StoreError::Unusable`] if a repetition cannot help.
    pub(super) async fn until_answered<T, F>(
        &self,
        request: impl Fn(EtcdClient) -> F,
        goes_on: impl Fn() -> bool,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let mut failures = 0;
        loop {
            let round = failures / self.len();
            let doubled = u32::try_from(round).unwrap_or(DOUBLED_MAX).min(DOUBLED_MAX);
            let limit = self.attempt_limit * 2_u32.pow(doubled);
            match self.attempt_within(limit, &request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.report(failures, error).await?,
            }
            failures += 1;
            if !goes_on() {
                return Err(StoreError::LostLeadership);
            }
            if failures >= self.len() {
                sleep((PAUSE_MIN * 2_u32.pow(doubled)).min(PAUSE_MAX)).await;
            }
        }
    }

    /// Logs that no member answers, once a request, and finds out whether certificates are why.
    async fn report(&self, earlier: usize, error: EtcdError) -> Result<(), StoreError> {
        let error = if earlier + 1 == self.len() {
            self.options.explain_failure(error, self.attempt_limit).await
        } else {
            error
        };
        if !error.may_pass() {
            return Err(self.unusable(&error));
        }
        let (store, cause) = (&self.store, with_sources(&error));
        if earlier + 1 == self.len() {
            tracing::warn!(store, cause, "no member answers: asking again");
        } else {
            tracing::debug!(store, cause, "a member does not answer");
        }
        Ok(())
    }

    fn unusable(&self, error: &EtcdError) -> StoreError {
        let reason = match error {
            EtcdError::Full { .. } => {
                "the database of etcd is full (alarm NOSPACE): compact and defragment it, or raise \
                 its --quota-backend-bytes, and then disarm the alarm"
                    .to_owned()
            }
            EtcdError::Refused { .. } => format!(
                "{error}; its --max-request-bytes must be 1.5 MiB and its --max-txn-ops 128, or more"
            ),
            EtcdError::Denied { .. }
            | EtcdError::Options { .. }
            | EtcdError::Compacted { .. }
            | EtcdError::Failed { .. }
            | EtcdError::Unanswered
            | EtcdError::Ended { .. }
            | EtcdError::Token { .. } => error.to_string(),
        };
        StoreError::Unusable { store: self.store.clone(), reason }
    }
}

/// Formats an error and its causes in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |source| source.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
