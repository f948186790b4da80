//! A global as its launcher sees it: the rules of `tm/global.rs`.

use std::sync::Arc;
use std::time::Duration;

use handfast::{Error, RejectionDetail};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{BeginRequest, Decision, EndRequest, GlobalStatus, ReplyWhen};

use super::ClientProcess;
use super::at::number_of;
use crate::judge::oracle::{Observation, Told};
use crate::world::MS;

/// How long a rollback waits for its branches.
const ROLLBACK_WAIT: Duration = Duration::from_secs(5);

/// A global that this process has begun and must decide.
#[derive(Debug)]
pub(super) struct Global {
    pub(super) xid: String,
    deadline: u64,
}

impl ClientProcess {
    /// Begins a global.
    ///
    /// # Errors
    /// What the coordinator says, or that it says nothing.
    pub(super) async fn begin(self: &Arc<Self>, timeout_ms: u64) -> Result<Global, Error> {
        let (application, name) = (format!("service-{}", self.index), "order".to_owned());
        let request = BeginRequest { application, name, timeout_ms };
        let answer = self.ask("begin", Ask::Begin(request), Duration::ZERO).await?;
        let Answer::Begin(reply) = answer else { return Err(unexpected("begin", &answer)) };
        let deadline = self.world.now() + reply.timeout_ms * MS;
        Ok(Global { xid: reply.xid, deadline })
    }

    /// Commits, and rolls back instead when its time is over. A commit without an answer is never
    /// followed by a rollback.
    pub(super) async fn commit(self: &Arc<Self>, global: &Global) -> Told {
        if self.world.now() >= global.deadline {
            return self.roll_back_global(global, "not committed in time").await;
        }
        let ended =
            self.end(global, Decision::Commit, ReplyWhen::Decided, "", Duration::ZERO).await;
        let told = match ended {
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => Told::Committed,
            Ok(
                GlobalStatus::RollingBack | GlobalStatus::RolledBack | GlobalStatus::NeedsOperator,
            ) => return self.roll_back_global(global, "commit refused").await,
            Ok(GlobalStatus::Active | GlobalStatus::Unknown) | Err(_) => Told::Unknown,
        };
        self.told(global, told)
    }

    /// Rolls back and waits for the branches to be undone.
    pub(super) async fn roll_back_global(self: &Arc<Self>, global: &Global, reason: &str) -> Told {
        let when = ReplyWhen::Finished;
        let told = match self.end(global, Decision::RollBack, when, reason, ROLLBACK_WAIT).await {
            Ok(GlobalStatus::RolledBack) => Told::RolledBack,
            Ok(GlobalStatus::RollingBack) => Told::RollingBack,
            Ok(GlobalStatus::NeedsOperator) => Told::NeedsOperator,
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => Told::Committed,
            Ok(GlobalStatus::Active | GlobalStatus::Unknown) | Err(_) => Told::Unknown,
        };
        self.told(global, told)
    }

    fn told(&self, global: &Global, told: Told) -> Told {
        let xid = number_of(&global.xid);
        self.world.log(self.owner(), || format!("global {xid}: told {told:?}"));
        self.world.observe(&Observation::Told { xid, told });
        told
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
        match self.ask("end", Ask::End(request), wait).await {
            Ok(Answer::End(reply)) => Ok(reply.status()),
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

fn unexpected(request: &'static str, answer: &Answer) -> Error {
    Error::UnexpectedAnswer { request, got: format!("{answer:?}") }
}
