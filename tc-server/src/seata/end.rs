//! Requests that end a global or ask for its status.
//!
//! A decision whose outcome is unknown is not answered: a client takes nearly every answer to a
//! commit for "committed", and asks again when there is none. A refusal cannot be expressed for the
//! same reason, so a request that meets a full queue waits for room. BOUNDED: like any request of a
//! connection.

use handfast_core::{
    Command, Coordinator, Decision, Effect, GlobalStatus as Status, PhaseOneOutcome,
    PhaseTwoOutcome, Reply, ReplyWhen, Xid,
};
use handfast_seata_wire::Dialect;
use handfast_seata_wire::message::{GlobalEnd, GlobalReport, GlobalStatusAnswer, Message};
use handfast_seata_wire::value::{ExceptionCode, GlobalStatus as Word};
use tokio::time::timeout;

use super::request::{
    SAGA, SAGA_NAME, ended, ending, failed, parse, reply_when, status_answer, status_of_end,
};
use super::request_handler::{RequestHandler, WaitPolicy};
use super::status;
use crate::dispatch::EffectSink as _;
use crate::engine::EngineError;

impl RequestHandler {
    /// Decides and returns the answer. Waits for phase two at most as long as configured.
    pub(super) async fn end_with_timeout(
        &self,
        xid: Xid,
        decision: Decision,
        dialect: &Dialect,
    ) -> Option<Message> {
        let wait = self.frontend.shared.settings.phase_two_wait;
        let status = match timeout(wait, self.end(xid, decision, reply_when(decision))).await {
            Ok(status) => status,
            // Dropping the first request has given up its wait for phase two, not its decision.
            Err(_elapsed) => self.end_at_once(xid, decision).await,
        };
        Some(ended(decision, status?, dialect))
    }

    /// Decides, unless that is done, and does not wait for what follows. Returns `None` for a
    /// global whose votes are still missing: its status says nothing yet.
    pub(super) async fn end_at_once(&self, xid: Xid, decision: Decision) -> Option<Status> {
        // The engine decides in the order of arrival, so that the status shows this decision.
        let ending = ending(xid, decision, ReplyWhen::Decided);
        self.frontend.shared.engine.notify(vec![ending]).await.ok()?;
        self.status_of(xid).await.filter(|status| *status != Status::Active)
    }

    pub(super) async fn status(&self, it: &GlobalEnd) -> GlobalStatusAnswer {
        let Some(xid) = parse(&it.xid) else { return status_answer(Word::Finished) };
        let status = self.status_of(xid).await;
        status.map_or_else(unknown, |status| status_answer(status::status_word(status)))
    }

    async fn status_of(&self, xid: Xid) -> Option<Status> {
        match self.ask_until_accepted(Command::GetStatus { xid }).await {
            Ok(Reply::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// Handles the report of a saga's state machine.
    pub(super) async fn report_saga(&self, it: &GlobalReport) -> GlobalStatusAnswer {
        self.end_saga(it).await.unwrap_or_else(unknown)
    }

    /// Handles the report that a saga's state machine has ended or cannot go on by itself. Once it
    /// has ended, its branch has nothing left to do, even if the opposite decision was taken; then
    /// that decision is the answer. A report about another kind of transaction changes nothing.
    async fn end_saga(&self, it: &GlobalReport) -> Option<GlobalStatusAnswer> {
        let word = it.status.unwrap_or(Word::UnKnown);
        let Some(xid) = parse(&it.xid) else { return Some(status_answer(word)) };
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
            | Word::StopRollbackOrRollbackRetry => return Some(status_answer(word)),
        };
        if self.is_saga(xid).await? {
            if ended {
                // Before the decision: an undecided global loses the branch, and does not call it.
                let (outcome, application_data) = (Some(PhaseOneOutcome::Failed), Box::default());
                let report = Command::ReportBranch { xid, branch: SAGA, outcome, application_data };
                self.ask_until_accepted(report).await.ok()?;
            }
            let mut status = self.end(xid, decision, ReplyWhen::Decided).await?;
            if ended {
                status = self.finish_machine(xid, status).await?;
            }
            if status::decision(status).is_some_and(|decided| decided != decision) {
                return Some(status_answer(status::status_word(status)));
            }
        }
        Some(status_answer(word))
    }

    /// Completes the branch of a machine that ended after the decision was taken, so that it is no
    /// longer called.
    async fn finish_machine(&self, xid: Xid, status: Status) -> Option<Status> {
        let decision = match status {
            Status::Committing => Decision::Commit,
            Status::RollingBack(_) | Status::NeedsOperator(_) => Decision::RollBack,
            Status::Unknown | Status::Active | Status::Committed | Status::RolledBack(_) => {
                return Some(status);
            }
        };
        let (branch, outcome) = (SAGA, PhaseTwoOutcome::Done);
        let finish = Command::FinishPhaseTwo { xid, branch, decision, outcome };
        self.frontend.shared.engine.notify(vec![finish]).await.ok()?;
        let status = self.status_of(xid).await?;
        // After this reply, because only then the call of the decision has certainly reached the
        // dispatcher, which knows nothing of the answer and would repeat the call.
        let hold = Effect::Hold { xid, branch: Some(SAGA) };
        self.frontend.shared.dispatcher.take(vec![hold]);
        Some(status)
    }

    /// Requests the decision and returns the status after it, or `None` if it is unknown.
    async fn end(&self, xid: Xid, decision: Decision, reply_when: ReplyWhen) -> Option<Status> {
        if self.wait_policy == WaitPolicy::None {
            return self.end_at_once(xid, decision).await;
        }
        let answered = self.ask_until_accepted(ending(xid, decision, reply_when)).await;
        status_of_end(xid, decision, answered)
    }

    async fn is_saga(&self, xid: Xid) -> Option<bool> {
        let is_saga = move |coordinator: &Coordinator| {
            let named = |name: &str| name.starts_with(SAGA_NAME);
            coordinator.global(xid).is_some_and(|it| {
                named(&it.record.name) || it.branches.iter().any(|branch| branch.id == SAGA)
            })
        };
        let engine = &self.frontend.shared.engine;
        loop {
            match engine.view(is_saga).await {
                Err(EngineError::Busy) => engine.room().await,
                seen => return seen.ok(),
            }
        }
    }

    /// Like [`Self::ask`], but waits while the engine's queue is full.
    async fn ask_until_accepted(&self, command: Command) -> Result<Reply, EngineError> {
        loop {
            match self.ask(command.clone()).await {
                Err(EngineError::Busy) => self.frontend.shared.engine.room().await,
                answered => return answered,
            }
        }
    }
}

/// Returns the answer for a global whose status is unknown. It is not used to answer a decision.
fn unknown() -> GlobalStatusAnswer {
    let why = failed(&"the coordinator cannot say: ask again", ExceptionCode::Unknown);
    GlobalStatusAnswer { result: Err(why), status: Word::UnKnown }
}
