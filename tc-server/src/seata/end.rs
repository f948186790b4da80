//! How a client ends a global, and asks how it stands.
//!
//! A decision of which the outcome is unknown has no answer: a client takes nearly every answer to
//! a commit for "committed", and asks again when there is none. So no refusal can be said either:
//! what meets a full queue waits for room. BOUNDED: as any request of a connection.

use handfast_core::{
    Coordinator, Decision, Effect, GlobalStatus as Status, PhaseOneOutcome, PhaseTwoOutcome, Reply,
    ReplyWhen, What, Xid,
};
use handfast_seata_wire::Dialect;
use handfast_seata_wire::message::{GlobalEnd, GlobalReport, GlobalStanding, Message};
use handfast_seata_wire::value::{ExceptionCode, GlobalStatus as Word};
use tokio::time::timeout;

use super::answer::{Desk, Patience};
use super::request::{
    SAGA, SAGA_NAME, ended, ending, failed, parse, reply_when, standing, status_of_end,
};
use super::status;
use crate::dispatch::PhaseTwo as _;
use crate::engine::EngineError;

impl Desk {
    /// The answer to a decision. Phase two is not waited for longer than it may take.
    pub(super) async fn end_within(
        &self,
        xid: Xid,
        decision: Decision,
        dialect: &Dialect,
    ) -> Option<Message> {
        let wait = self.front.shared.settings.phase_two_wait;
        let status = match timeout(wait, self.end(xid, decision, reply_when(decision))).await {
            Ok(status) => status,
            Err(_elapsed) => self.end_at_once(xid, decision).await,
        };
        Some(ended(decision, status?, dialect))
    }

    /// Decides, unless it is decided, and waits for nothing that follows. Of a global whose votes
    /// are still to come nothing can be said.
    pub(super) async fn end_at_once(&self, xid: Xid, decision: Decision) -> Option<Status> {
        let ending = ending(xid, decision, ReplyWhen::Decided);
        self.front.shared.engine.notify(vec![ending]).await.ok()?;
        self.standing_of(xid).await.filter(|status| *status != Status::Active)
    }

    pub(super) async fn status(&self, it: &GlobalEnd) -> GlobalStanding {
        let Some(xid) = parse(&it.xid) else { return standing(Word::Finished) };
        let status = self.standing_of(xid).await;
        status.map_or_else(unknown, |status| standing(status::standing(status)))
    }

    async fn standing_of(&self, xid: Xid) -> Option<Status> {
        match self.ask_patiently(What::GetStatus { xid }).await {
            Ok(Reply::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// What the state machine of a saga reports.
    pub(super) async fn report_saga(&self, it: &GlobalReport) -> GlobalStanding {
        self.end_saga(it).await.unwrap_or_else(unknown)
    }

    /// The state machine of a saga has ended, or cannot go on by itself. Once it has ended, its
    /// branch owes nothing, also if the other decision has been taken: then that is the answer. For
    /// another transaction a report changes nothing.
    async fn end_saga(&self, it: &GlobalReport) -> Option<GlobalStanding> {
        let word = it.status.unwrap_or(Word::UnKnown);
        let Some(xid) = parse(&it.xid) else { return Some(standing(word)) };
        let (decision, ended) = match word {
            Word::Committed => (Decision::Commit, true),
            Word::CommitRetrying => (Decision::Commit, false),
            Word::Rollbacked | Word::Finished => (Decision::RollBack, true),
            Word::RollbackRetrying | Word::TimeoutRollbackRetrying | Word::UnKnown => {
                (Decision::RollBack, false)
            }
            Word::Begin
            | Word::Committing
            | Word::Rollbacking
            | Word::TimeoutRollbacking
            | Word::AsyncCommitting
            | Word::CommitFailed
            | Word::RollbackFailed
            | Word::TimeoutRollbacked
            | Word::TimeoutRollbackFailed
            | Word::CommitRetryTimeout
            | Word::RollbackRetryTimeout
            | Word::Deleting
            | Word::StopCommitOrCommitRetry
            | Word::StopRollbackOrRollbackRetry => return Some(standing(word)),
        };
        if self.is_saga(xid).await? {
            if ended {
                let (outcome, application_data) = (Some(PhaseOneOutcome::Failed), Box::default());
                let report = What::ReportBranch { xid, branch: SAGA, outcome, application_data };
                self.ask_patiently(report).await.ok()?;
            }
            let mut status = self.end(xid, decision, ReplyWhen::Decided).await?;
            if ended {
                status = self.finish_machine(xid, status).await?;
            }
            if status::decision(status).is_some_and(|decided| decided != decision) {
                return Some(standing(status::standing(status)));
            }
        }
        Some(standing(word))
    }

    /// The machine has ended after the decision was taken: it is not asked to any more.
    async fn finish_machine(&self, xid: Xid, status: Status) -> Option<Status> {
        let decision = match status {
            Status::Committing => Decision::Commit,
            Status::RollingBack(_) | Status::NeedsOperator(_) => Decision::RollBack,
            Status::Unknown | Status::Active | Status::Committed | Status::RolledBack(_) => {
                return Some(status);
            }
        };
        let (branch, outcome) = (SAGA, PhaseTwoOutcome::Done);
        let finish = What::FinishPhaseTwo { xid, branch, decision, outcome };
        self.front.shared.engine.notify(vec![finish]).await.ok()?;
        let status = self.standing_of(xid).await?;
        let hold = Effect::Hold { xid, branch: Some(SAGA) };
        self.front.shared.dispatcher.take(vec![hold]);
        Some(status)
    }

    /// How the global stands after the decision was asked for; nothing if that is not known.
    async fn end(&self, xid: Xid, decision: Decision, reply_when: ReplyWhen) -> Option<Status> {
        if self.patience == Patience::None {
            return self.end_at_once(xid, decision).await;
        }
        let answered = self.ask_patiently(ending(xid, decision, reply_when)).await;
        status_of_end(xid, decision, answered)
    }

    async fn is_saga(&self, xid: Xid) -> Option<bool> {
        let is_saga = move |coordinator: &Coordinator| {
            let named = |name: &str| name.starts_with(SAGA_NAME);
            coordinator.global(xid).is_some_and(|it| {
                named(&it.record.name) || it.branches.iter().any(|branch| branch.id == SAGA)
            })
        };
        let engine = &self.front.shared.engine;
        loop {
            match engine.view(is_saga).await {
                Err(EngineError::Busy) => engine.room().await,
                seen => return seen.ok(),
            }
        }
    }

    /// As [`Self::ask`], but a full queue is waited for.
    async fn ask_patiently(&self, what: What) -> Result<Reply, EngineError> {
        loop {
            match self.ask(what.clone()).await {
                Err(EngineError::Busy) => self.front.shared.engine.room().await,
                answered => return answered,
            }
        }
    }
}

/// What is said of a global of which nothing is known, except to whoever decides it.
fn unknown() -> GlobalStanding {
    let why = failed(&"the coordinator cannot say: ask again", ExceptionCode::Unknown);
    GlobalStanding { result: Err(why), status: Word::UnKnown }
}
