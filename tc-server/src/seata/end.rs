//! How a client ends a global, and asks how it stands.
//!
//! A decision of which the outcome is unknown has no answer: a client takes nearly every answer to
//! a commit for "committed", and asks again when there is none.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{
    DecidedBy, Decision, Effect, GlobalStatus as Status, PhaseOneOutcome, PhaseTwoOutcome,
    Rejection, Reply, ReplyWhen, Rounds, What, Xid,
};
use handfast_seata_wire::Dialect;
use handfast_seata_wire::message::{GlobalEnd, GlobalReport, GlobalStanding};
use handfast_seata_wire::value::GlobalStatus as Word;
use tokio::time::timeout;

use super::answer::{Desk, SAGA, SAGA_NAME, parse};
use super::status;
use crate::dispatch::PhaseTwo as _;

impl Desk {
    /// Branches of AT have committed already; the others are waited for, so that who goes on after
    /// a commit finds them committed.
    pub(super) async fn commit(&self, it: &GlobalEnd) -> Option<GlobalStanding> {
        let Some(xid) = parse(&it.xid) else { return Some(standing(Word::Finished)) };
        let status = self.end_within(xid, Decision::Commit, ReplyWhen::Effective).await?;
        Some(standing(status::of_commit(status, self.dialect())))
    }

    pub(super) async fn roll_back(&self, it: &GlobalEnd) -> Option<GlobalStanding> {
        let Some(xid) = parse(&it.xid) else { return Some(standing(Word::Finished)) };
        let status = self.end_within(xid, Decision::RollBack, ReplyWhen::Finished).await?;
        Some(standing(status::of_rollback(status)))
    }

    /// As [`Self::end`], but phase two is not waited for longer than it may take.
    async fn end_within(&self, xid: Xid, decision: Decision, when: ReplyWhen) -> Option<Status> {
        let ended = timeout(self.phase_two_wait(), self.end(xid, decision, when));
        if let Ok(status) = ended.await {
            return status;
        }
        // Of one that is active the decision itself has not been taken in.
        self.standing_of(xid).await.filter(|status| *status != Status::Active)
    }

    pub(super) async fn status(&self, it: &GlobalEnd) -> Option<GlobalStanding> {
        let Some(xid) = parse(&it.xid) else { return Some(standing(Word::Finished)) };
        self.standing_of(xid).await.map(|status| standing(status::standing(status)))
    }

    async fn standing_of(&self, xid: Xid) -> Option<Status> {
        match self.ask(What::GetStatus { xid }).await {
            Ok(Reply::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// The state machine of a saga has ended, or cannot go on by itself. Once it has ended, its
    /// branch owes nothing, also if the other decision has been taken: then that is the answer. For
    /// another transaction a report changes nothing.
    pub(super) async fn end_saga(&self, it: &GlobalReport) -> Option<GlobalStanding> {
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
                self.ask(report).await.ok()?;
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
        self.front.shared.engine.tell(vec![finish]).await.ok()?;
        let status = self.standing_of(xid).await?;
        let hold = Effect::Hold { xid, branch: Some(SAGA) };
        self.front.shared.dispatcher.take(vec![hold]);
        Some(status)
    }

    /// How the global stands after the decision was asked for; nothing if that is not known.
    async fn end(&self, xid: Xid, decision: Decision, reply_when: ReplyWhen) -> Option<Status> {
        let reason = Arc::from("");
        let rounds = Rounds::default();
        let end = What::End { xid, decision, by: DecidedBy::Client, reason, reply_when, rounds };
        match self.ask(end).await {
            Ok(Reply::Status(status)) => Some(status),
            Ok(Reply::Rejected(Rejection::AlreadyDecided { status, .. })) => Some(status),
            Ok(Reply::Rejected(Rejection::UnknownXid(_))) => Some(Status::Unknown),
            other => {
                tracing::warn!(xid = xid.0, ?decision, ?other, "a decision is not answered");
                None
            }
        }
    }

    async fn is_saga(&self, xid: Xid) -> Option<bool> {
        let seen = self.front.shared.engine.view(move |coordinator| {
            let named = |name: &str| name.starts_with(SAGA_NAME);
            coordinator.global(xid).is_some_and(|it| {
                named(&it.record.name) || it.branches.iter().any(|branch| branch.id == SAGA)
            })
        });
        seen.await.ok()
    }

    fn phase_two_wait(&self) -> Duration {
        self.front.shared.settings.phase_two_wait
    }

    fn dialect(&self) -> &Dialect {
        &self.client.dialect
    }
}

fn standing(status: Word) -> GlobalStanding {
    GlobalStanding { result: Ok(()), status }
}
