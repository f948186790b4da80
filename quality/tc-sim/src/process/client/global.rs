//! Begins, commits and rolls back globals: the rules of `tm/global.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};
use handfast::{Error, RejectionDetail};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{BeginRequest, Decision, EndRequest, GlobalStatus, ReplyWhen};
use handfast_rm_core::link::LentXid;

use super::at::parse_xid;
use super::{Answered, ClientProcess, REQUEST_DEADLINE, answered};
use crate::model::observation::{Observation, Observer, ReportedOutcome};
use crate::world::MS;

/// How long a rollback waits for its branches.
const ROLLBACK_WAIT: Duration = Duration::from_secs(5);

/// A global that this process has begun.
#[derive(Debug)]
pub(super) struct Global {
    pub(super) xid: String,
    deadline: u64,
    /// The answer to the begin, if it was not waited for.
    begin_answer: Option<Shared<oneshot::Receiver<Answered>>>,
}

impl ClientProcess {
    /// Begins a global.
    ///
    /// # Errors
    /// If the coordinator refuses, or does not reply.
    pub(super) async fn begin(self: &Arc<Self>, timeout_ms: u64) -> Result<Global, Error> {
        let (application, name) = (format!("service-{}", self.index), "order".to_owned());
        let request = BeginRequest { application, name, timeout_ms, ..BeginRequest::default() };
        let (waiter, answer) = oneshot::channel();
        let (id, lent) =
            self.drive(|protocol, now| protocol.begin(now, request, REQUEST_DEADLINE))?;
        self.lock().waiters.insert(id, waiter);
        if let Some(LentXid { xid, timeout }) = lent {
            let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            let deadline = self.world.now().saturating_add(timeout);
            return Ok(Global { xid, deadline, begin_answer: Some(answer.shared()) });
        }
        let reply = answered(answer.await)?;
        let ServerBody::Begin(reply) = reply else { return Err(unexpected("begin", &reply)) };
        let deadline = self.world.now() + reply.timeout_ms * MS;
        Ok(Global { xid: reply.xid, deadline, begin_answer: None })
    }

    /// Waits until the coordinator knows the global.
    ///
    /// # Errors
    /// If the coordinator refuses to begin it, or does not reply.
    pub(super) async fn begun(&self, global: &Global) -> Result<(), Error> {
        let Some(answer) = &global.begin_answer else { return Ok(()) };
        answered(answer.clone().await).map(drop)
    }

    /// Commits, or rolls back if the deadline has passed.
    ///
    /// A commit without a reply is never followed by a rollback: it may have been decided.
    pub(super) async fn commit(self: &Arc<Self>, global: &Global) -> ReportedOutcome {
        // Without an answer nothing was done, and the global may be there.
        if self.begun(global).await.is_err() {
            return self.roll_back_global(global, "not begun").await;
        }
        if self.world.now() >= global.deadline {
            return self.roll_back_global(global, "not committed in time").await;
        }
        let ended =
            self.end(global, Decision::Commit, ReplyWhen::Decided, "", Duration::ZERO).await;
        let outcome = match ended {
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => ReportedOutcome::Committed,
            Ok(
                GlobalStatus::RollingBack | GlobalStatus::RolledBack | GlobalStatus::NeedsOperator,
            ) => return self.roll_back_global(global, "commit refused").await,
            Ok(GlobalStatus::Active | GlobalStatus::Unknown) | Err(_) => ReportedOutcome::Unknown,
        };
        self.receive_outcome(global, outcome)
    }

    /// Rolls back, and waits for the branches to be undone.
    pub(super) async fn roll_back_global(
        self: &Arc<Self>,
        global: &Global,
        reason: &str,
    ) -> ReportedOutcome {
        let when = ReplyWhen::Finished;
        let ended = self.end(global, Decision::RollBack, when, reason, ROLLBACK_WAIT).await;
        let outcome = match ended {
            Ok(GlobalStatus::RolledBack) => ReportedOutcome::RolledBack,
            Ok(GlobalStatus::RollingBack) => ReportedOutcome::RollingBack,
            Ok(GlobalStatus::NeedsOperator) => ReportedOutcome::NeedsOperator,
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => ReportedOutcome::Committed,
            Ok(GlobalStatus::Active | GlobalStatus::Unknown) | Err(_) => ReportedOutcome::Unknown,
        };
        self.receive_outcome(global, outcome)
    }

    /// Logs the outcome of a global, and shows it to the judge.
    pub(super) fn receive_outcome(
        &self,
        global: &Global,
        outcome: ReportedOutcome,
    ) -> ReportedOutcome {
        let xid = parse_xid(&global.xid);
        self.world.log(self.owner(), || format!("global {xid}: reported {outcome:?}"));
        self.judge.observe(&Observation::OutcomeReported { xid, outcome });
        outcome
    }

    async fn end(
        self: &Arc<Self>,
        global: &Global,
        decision: Decision,
        reply_when: ReplyWhen,
        reason: &str,
        wait: Duration,
    ) -> Result<GlobalStatus, Error> {
        let request = EndRequest {
            xid: global.xid.clone(),
            decision: decision.into(),
            reply_when: reply_when.into(),
            reason: reason.to_owned(),
            ..EndRequest::default()
        };
        match self.request("end", ClientBody::End(request), wait).await {
            Ok(ServerBody::End(reply)) => Ok(reply.status()),
            Ok(other) => Err(unexpected("end", &other)),
            Err(Error::Rejected(rejection)) => match rejection.detail() {
                RejectionDetail::AlreadyDecided { status } => Ok(wire_status(*status)),
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

fn wire_status(status: handfast::GlobalStatus) -> GlobalStatus {
    match status {
        handfast::GlobalStatus::Active => GlobalStatus::Active,
        handfast::GlobalStatus::Committing => GlobalStatus::Committing,
        handfast::GlobalStatus::Committed => GlobalStatus::Committed,
        handfast::GlobalStatus::RollingBack(_) => GlobalStatus::RollingBack,
        handfast::GlobalStatus::RolledBack(_) => GlobalStatus::RolledBack,
        handfast::GlobalStatus::NeedsOperator(_) => GlobalStatus::NeedsOperator,
        handfast::GlobalStatus::Unknown | _ => GlobalStatus::Unknown,
    }
}

fn unexpected(request: &'static str, reply: &ServerBody) -> Error {
    Error::UnexpectedAnswer { request, got: format!("{reply:?}") }
}
