//! The coordinator as the rest of the library sees it: typed requests, typed replies.
//!
//! It adds to the [link](crate::link) only what each request means for its deadline, and which
//! reply belongs to it. Reconnecting and resubmission happen below and are not seen here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BranchOutcome, PhaseTwoCall, Resource};

use crate::context;
use crate::error::{Error, Rejection};
use crate::link::{Begun, Link, OnLost, Timeout};
use crate::trace;
use crate::xid::Xid;

/// Carries out phase two for one resource.
#[async_trait]
pub(crate) trait BranchHandler: Send + Sync {
    /// Finishes the branches of one call and returns how each ended. Idempotent: a branch may be
    /// asked for again after its outcome was sent (EFFECTS-REPEAT).
    ///
    /// A branch that the answer leaves out counts as [`v1::Retryable`]. Calls that commit may run
    /// beside each other; calls that roll back run one after the other, in the order they came.
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome>;
}

/// A connection to the coordinator. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    link: Arc<Link>,
}

/// A reference that does not keep the connection open.
#[derive(Clone, Debug)]
pub(crate) struct WeakCoordinator {
    link: Weak<Link>,
}

impl WeakCoordinator {
    pub(crate) fn upgrade(&self) -> Option<Coordinator> {
        self.link.upgrade().map(Coordinator::new)
    }
}

impl Coordinator {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Returns whether the connection stands now.
    ///
    /// # Errors
    /// Says why it does not.
    pub(crate) fn standing(&self) -> Result<(), Error> {
        self.link.standing()
    }

    /// Waits for the connection.
    ///
    /// # Errors
    /// As [`Link::greeted`].
    pub(crate) async fn greeted(&self, timeout: Duration) -> Result<(), Error> {
        self.link.greeted(timeout).await
    }

    /// Returns a reference for tasks that must not keep the connection open.
    pub(crate) fn downgrade(&self) -> WeakCoordinator {
        WeakCoordinator { link: Arc::downgrade(&self.link) }
    }

    /// Runs a task on the connection's runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.link.spawn(task);
    }

    /// Begins a global. Where the coordinator has lent this process an XID, its answer is not
    /// waited for, and nothing but requests over this connection may tell others of the global
    /// before it has come.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn begin(&self, request: v1::BeginRequest) -> Result<Begun, Error> {
        let request = v1::BeginRequest { traceparent: trace::traceparent(), ..request };
        self.link.begin(request).await
    }

    /// Waits until the coordinator knows the ambient global, if requests over this connection could
    /// overtake its begin.
    async fn ambient_begun(&self) -> Result<(), Error> {
        match context::begin_answer() {
            Some(answer) if !answer.went_over(self.link.id()) => answer.wait().await.map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes sure that a branch exists and holds its rows; waits for them as long as the request
    /// says, beyond the request deadline.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn register_branch(
        &self,
        request: v1::RegisterBranchRequest,
    ) -> Result<v1::RegisterBranchReply, Error> {
        self.ambient_begun().await?;
        let wait = Timeout::Beyond(wait_of(request.wait.as_ref()));
        let request = v1::RegisterBranchRequest { traceparent: trace::traceparent(), ..request };
        let answer = self.ask("register_branch", Ask::RegisterBranch(request), wait).await?;
        let Answer::RegisterBranch(reply) = answer else {
            return Err(unexpected("register_branch", &answer));
        };
        Ok(reply)
    }

    /// Registers a branch of a participant over HTTP and has its try called, for as long as the
    /// request says, beyond the request deadline.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn try_branch(
        &self,
        request: v1::TryBranchRequest,
    ) -> Result<v1::TryBranchReply, Error> {
        // The coordinator calls the participant, which is another process.
        context::begun().await?;
        let wait = Timeout::Beyond(Duration::from_millis(request.timeout_ms));
        let request = v1::TryBranchRequest { traceparent: trace::traceparent(), ..request };
        let answer = self.ask("try_branch", Ask::TryBranch(request), wait).await?;
        let Answer::TryBranch(reply) = answer else {
            return Err(unexpected("try_branch", &answer));
        };
        Ok(reply)
    }

    /// Waits until no other global holds the rows; takes nothing.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn check_locks(
        &self,
        request: v1::CheckLocksRequest,
    ) -> Result<v1::CheckLocksReply, Error> {
        self.ambient_begun().await?;
        let wait = Timeout::Beyond(wait_of(request.wait.as_ref()));
        let answer = self.ask("check_locks", Ask::CheckLocks(request), wait).await?;
        let Answer::CheckLocks(reply) = answer else {
            return Err(unexpected("check_locks", &answer));
        };
        Ok(reply)
    }

    /// Tells that a statement or an undo of a global seems to wait for locks of a database. Does
    /// not wait for the answer: one that gets lost is followed by the next report.
    pub(crate) fn report_database_wait(&self, xid: &str, resource_id: &str) {
        let (xid, resource_id) = (xid.to_owned(), resource_id.to_owned());
        let request = v1::ReportDatabaseWaitRequest { xid, resource_id };
        if let Err(error) = self.link.notify("report_wait", Ask::ReportDatabaseWait(request)) {
            tracing::debug!(%error, "wait in a database not reported");
        }
    }

    /// Decides a global.
    ///
    /// `wait` is how long beyond the request deadline to wait for the branches to be finished, for
    /// a request that asks for that.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn end(
        &self,
        request: v1::EndRequest,
        wait: Duration,
    ) -> Result<v1::EndReply, Error> {
        let request = v1::EndRequest { traceparent: trace::traceparent(), ..request };
        let answer = self.ask("end", Ask::End(request), Timeout::Beyond(wait)).await?;
        let Answer::End(reply) = answer else { return Err(unexpected("end", &answer)) };
        Ok(reply)
    }

    /// Asks for a rollback without waiting for the answer. If it gets lost, the global's timeout
    /// does the same later.
    ///
    /// # Errors
    /// When the request cannot be queued.
    pub(crate) fn abandon(&self, xid: &Xid, reason: &str) -> Result<(), Error> {
        let request = v1::EndRequest {
            xid: xid.as_str().to_owned(),
            decision: v1::Decision::RollBack.into(),
            reply_when: v1::ReplyWhen::Decided.into(),
            reason: reason.to_owned(),
            traceparent: trace::traceparent(),
            ..v1::EndRequest::default()
        };
        self.link.notify("end", Ask::End(request))
    }

    /// Reports the outcome of a branch whose phase one failed. A report that gets no answer in time
    /// is sent once more: a commit that this process asks for later waits for that. Dropping the
    /// future does not take the report back.
    pub(crate) async fn report_outcome(
        &self,
        xid: &Xid,
        branch_id: u64,
        outcome: v1::PhaseOneOutcome,
    ) {
        let report = Ask::ReportBranch(report_of(xid, branch_id, outcome));
        let Err(error) = self.ask("report_branch", report, Timeout::default()).await else {
            return;
        };
        // The caller gets an error too, and ignores it if the global commits all the same.
        tracing::warn!(%xid, branch = branch_id, %error, "branch outcome not reported");
        // A refusal is an answer, and would be the same the next time.
        let is_refused = matches!(error, Error::Rejected(_));
        if !is_refused && let Err(error) = self.notify_outcome(xid, branch_id, outcome) {
            tracing::warn!(%xid, branch = branch_id, %error, "branch outcome not told either");
        }
    }

    /// Reports how phase one of a branch ended, and waits for nothing: a commit that this process
    /// asks for later does not leave before the report is answered.
    ///
    /// # Errors
    /// When the request cannot be queued.
    pub(crate) fn notify_outcome(
        &self,
        xid: &Xid,
        branch_id: u64,
        outcome: v1::PhaseOneOutcome,
    ) -> Result<(), Error> {
        let report = Ask::ReportBranch(report_of(xid, branch_id, outcome));
        self.link.notify("report_branch", report)
    }

    /// Reports a local commit that has decided its global, and waits for nothing. `on_lost` is
    /// called if the coordinator has lost the global in a crash, before it had stored it.
    ///
    /// # Errors
    /// When the request cannot be queued.
    pub(crate) fn report_last(
        &self,
        xid: &Xid,
        branch_id: u64,
        on_lost: Option<OnLost>,
    ) -> Result<(), Error> {
        let report = Ask::ReportBranch(report_of(xid, branch_id, v1::PhaseOneOutcome::Done));
        self.link.report_last(report, on_lost)
    }

    /// Asks for the status of a global.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn get_status(
        &self,
        request: v1::GetStatusRequest,
    ) -> Result<v1::GetStatusReply, Error> {
        let answer = self.ask("get_status", Ask::GetStatus(request), Timeout::default()).await?;
        let Answer::GetStatus(reply) = answer else {
            return Err(unexpected("get_status", &answer));
        };
        Ok(reply)
    }

    /// Starts a saga, or finds it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn start_saga(
        &self,
        request: v1::StartSagaRequest,
    ) -> Result<v1::SagaReply, Error> {
        let request = v1::StartSagaRequest { traceparent: trace::traceparent(), ..request };
        self.ask_saga("start_saga", Ask::StartSaga(request), Timeout::default()).await
    }

    /// Asks for the state of a saga; `wait` is as for [`end`](Self::end).
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn get_saga(
        &self,
        request: v1::GetSagaRequest,
        wait: Duration,
    ) -> Result<v1::SagaReply, Error> {
        self.ask_saga("get_saga", Ask::GetSaga(request), Timeout::Beyond(wait)).await
    }

    /// Ends a step that waits for a signal.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn signal_saga(
        &self,
        request: v1::SignalSagaRequest,
    ) -> Result<v1::SagaReply, Error> {
        let request = v1::SignalSagaRequest { traceparent: trace::traceparent(), ..request };
        self.ask_saga("signal_saga", Ask::SignalSaga(request), Timeout::default()).await
    }

    /// Asks for a saga to be compensated.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn cancel_saga(
        &self,
        request: v1::CancelSagaRequest,
    ) -> Result<v1::SagaReply, Error> {
        let request = v1::CancelSagaRequest { traceparent: trace::traceparent(), ..request };
        self.ask_saga("cancel_saga", Ask::CancelSaga(request), Timeout::default()).await
    }

    /// Sends a request about a saga. All of them have the same kind of answer.
    async fn ask_saga(
        &self,
        name: &'static str,
        ask: Ask,
        timeout: Timeout,
    ) -> Result<v1::SagaReply, Error> {
        let answer = self.ask(name, ask, timeout).await?;
        let Answer::Saga(reply) = answer else { return Err(unexpected(name, &answer)) };
        Ok(reply)
    }

    /// Reports what a relay sees in its outbox. The answer may be kept back for as long as the
    /// request says, beyond the request deadline.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn report_outbox(
        &self,
        request: v1::ReportOutboxRequest,
    ) -> Result<v1::ReportOutboxReply, Error> {
        let wait = Timeout::Beyond(Duration::from_millis(request.wait_ms));
        let answer = self.ask("report_outbox", Ask::ReportOutbox(request), wait).await?;
        let Answer::ReportOutbox(reply) = answer else {
            return Err(unexpected("report_outbox", &answer));
        };
        Ok(reply)
    }

    /// Takes a lease of a named lock. Waits for the answer for `limit` if the request is not to be
    /// queued, otherwise for as long as the request says, beyond the request deadline.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    #[cfg(feature = "locks")]
    pub(crate) async fn acquire_lock(
        &self,
        request: v1::AcquireLockRequest,
        limit: Duration,
    ) -> Result<v1::AcquireLockReply, Error> {
        let timeout = match request.wait_ms {
            0 => Timeout::Within(limit),
            wait_ms => Timeout::Beyond(Duration::from_millis(wait_ms)),
        };
        let answer = self.ask("acquire_lock", Ask::AcquireLock(request), timeout).await?;
        let Answer::AcquireLock(reply) = answer else {
            return Err(unexpected("acquire_lock", &answer));
        };
        Ok(reply)
    }

    /// Renews leases of named locks.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    #[cfg(feature = "locks")]
    pub(crate) async fn renew_locks(
        &self,
        request: v1::RenewLocksRequest,
    ) -> Result<v1::RenewLocksReply, Error> {
        let answer = self.ask("renew_locks", Ask::RenewLocks(request), Timeout::default()).await?;
        let Answer::RenewLocks(reply) = answer else {
            return Err(unexpected("renew_locks", &answer));
        };
        Ok(reply)
    }

    /// Ends an acquisition of a named lock; waits for the answer for `limit`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    #[cfg(feature = "locks")]
    pub(crate) async fn release_lock(
        &self,
        request: v1::ReleaseLockRequest,
        limit: Duration,
    ) -> Result<v1::ReleaseLockReply, Error> {
        let limit = Timeout::Within(limit);
        let answer = self.ask("release_lock", Ask::ReleaseLock(request), limit).await?;
        let Answer::ReleaseLock(reply) = answer else {
            return Err(unexpected("release_lock", &answer));
        };
        Ok(reply)
    }

    /// Asks for the holder of a named lock; waits for the answer for `limit`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    #[cfg(feature = "locks")]
    pub(crate) async fn find_lock(
        &self,
        request: v1::FindLockRequest,
        limit: Duration,
    ) -> Result<v1::FindLockReply, Error> {
        let limit = Timeout::Within(limit);
        let answer = self.ask("find_lock", Ask::FindLock(request), limit).await?;
        let Answer::FindLock(reply) = answer else { return Err(unexpected("find_lock", &answer)) };
        Ok(reply)
    }

    /// Makes this process an RM of a resource, now and after every reconnect. A second registration
    /// of the same id and mode replaces the first.
    pub(crate) fn register_resource(&self, resource: Resource, phase_two: Arc<dyn BranchHandler>) {
        self.link.register_resource(resource, phase_two);
    }

    /// Waits until every request is answered or out of time, then ends the connection.
    pub(crate) async fn close(&self) {
        self.link.close().await;
    }

    /// Sends one request and waits for its answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if it was never sent, [`Error::Unanswered`] if it was,
    /// [`Error::QueueFull`], [`Error::Closed`], and [`Error::Rejected`].
    fn ask(
        &self,
        name: &'static str,
        ask: Ask,
        timeout: Timeout,
    ) -> impl Future<Output = Result<Answer, Error>> {
        let answer = self.link.ask(name, ask, timeout);
        async move {
            let answer = answer.await?;
            if let Answer::Rejected(rejection) = answer {
                return Err(Rejection::from(rejection).into());
            }
            Ok(answer)
        }
    }
}

fn wait_of(wait: Option<&v1::LockWait>) -> Duration {
    Duration::from_millis(wait.map_or(0, |wait| wait.timeout_ms))
}

fn report_of(xid: &Xid, branch_id: u64, outcome: v1::PhaseOneOutcome) -> v1::ReportBranchRequest {
    let xid = xid.as_str().to_owned();
    v1::ReportBranchRequest { xid, branch_id, outcome: outcome.into() }
}

fn unexpected(request: &'static str, answer: &Answer) -> Error {
    Error::UnexpectedAnswer { request, got: format!("{answer:?}").chars().take(200).collect() }
}

#[cfg(test)]
mod tests;
