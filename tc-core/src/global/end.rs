//! The decision of a global, taken once (DECIDED-ONCE), and its end.

use std::borrow::Cow;

use super::branch::Branch;
use super::state::{Global, Phase};
use super::vote::answers_a_commit_with;
use crate::contract::{
    Change, Correlation, DecidedBy, Decision, Effect, GlobalState, GlobalStatus, Mode, Outcome,
    Record, RecordKey, Rejection, Reply, ReplyWhen, RollbackReason, Timestamp, Xid,
};
use crate::coordinator::Coordinator;
use crate::reply::push_reply;
use crate::row_lock::queue::Unfit;
use crate::row_lock::table::Touched;

impl Coordinator {
    /// Decides a global, or confirms the decision that it has.
    pub(crate) fn end(
        &mut self,
        now: Timestamp,
        xid: Xid,
        decision: Decision,
        by: DecidedBy,
        reason: &str,
        out: &mut Outcome,
    ) -> Result<GlobalStatus, Rejection> {
        let Some(global) = self.globals.get(xid) else {
            let finished = self.history.get(xid).ok_or(Rejection::UnknownXid(xid))?;
            return self.confirm(xid, finished.decision(), finished.status(), decision);
        };
        if global.phase != Phase::Active {
            return self.confirm(xid, global.decision(), global.status(), decision);
        }
        let phase = phase_after(decision, by, global.rollback_only);
        self.decide_global(now, xid, phase, &event_text(phase, by, reason), out);
        Ok(self.status_decided(xid, phase))
    }

    /// How a global stands that has just been decided.
    pub(crate) fn status_decided(&self, xid: Xid, phase: Phase) -> GlobalStatus {
        let status = self.status(xid);
        match phase {
            Phase::Active => status,
            Phase::Committing => status.or_if_forgotten(GlobalStatus::Committed),
            Phase::RollingBack(reason) => status.or_if_forgotten(GlobalStatus::RolledBack(reason)),
        }
    }

    /// The same decision again is answered as the first time.
    fn confirm(
        &self,
        xid: Xid,
        made: Option<Decision>,
        status: GlobalStatus,
        asked: Decision,
    ) -> Result<GlobalStatus, Rejection> {
        let led_to = match status {
            GlobalStatus::RollingBack(reason)
            | GlobalStatus::RolledBack(reason)
            | GlobalStatus::NeedsOperator(reason) => answers_a_commit_with(reason),
            GlobalStatus::Unknown
            | GlobalStatus::Active
            | GlobalStatus::Committing
            | GlobalStatus::Committed => false,
        };
        let as_the_first_time = led_to || made == Some(asked);
        if as_the_first_time { Ok(status) } else { Err(self.already_decided(xid)) }
    }

    /// Answers at once, or keeps the place of the requester until the global is finished.
    pub(crate) fn answer_end(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        status: GlobalStatus,
        reply_when: ReplyWhen,
    ) -> Option<Reply> {
        let under_way = matches!(status, GlobalStatus::Committing | GlobalStatus::RollingBack(_));
        let waits = match reply_when {
            ReplyWhen::Decided => false,
            ReplyWhen::Finished => under_way,
            ReplyWhen::Effective if self.is_in_effect(xid) => {
                return Some(Reply::Status(GlobalStatus::Committed));
            }
            ReplyWhen::Effective => under_way,
        };
        let room = self.check_room_to_wait().is_ok();
        match to {
            Some(to) if waits && room => {
                self.waits.await_end(xid, to, &self.asker);
                None
            }
            _ => Some(Reply::Status(status)),
        }
    }

    /// Whether phase two of a commit changes nothing that others can see.
    fn is_in_effect(&self, xid: Xid) -> bool {
        self.globals.get(xid).is_some_and(|global| {
            global.phase == Phase::Committing
                && global.branches.iter().all(|branch| branch.mode == Mode::At)
        })
    }

    /// Takes the decision of an undecided global, with everything that follows from it at once.
    pub(crate) fn decide_global(
        &mut self,
        now: Timestamp,
        xid: Xid,
        phase: Phase,
        event: &str,
        out: &mut Outcome,
    ) {
        let event = self.names.text_of(event);
        let events_max = self.limits.events_per_global_max;
        let voting = self.close_voting(xid, out);
        let decided = self.globals.change(xid, |global| {
            global.phase = phase;
            global.note(now, event, events_max);
            if global.unfinished > 0 {
                global.stored = true;
                out.changes.push(Change::Put(Record::Global(global.record())));
                out.effects.extend(global.due().map(Effect::PhaseTwo));
            }
            global.unfinished
        });
        // Before anything is let go of, or the global would be granted it anew.
        self.refuse_turns_of(now, xid, out);
        let mut touched = Touched::new();
        match decided {
            None | Some(0) => self.finish(now, xid, out),
            Some(_) => self.pass_on_or_keep(xid, phase, &mut touched, out),
        }
        let waiting: Vec<_> = self.waits.of_global(xid).collect();
        for id in waiting {
            self.refuse(id, self.already_decided(xid), &mut touched, out);
        }
        self.settle(now, touched, out);
        self.refuse_turns_behind(now, xid, out);
        if phase == Phase::Committing {
            self.end_leases_of(now, xid, out);
        }
        if let Some(voting) = voting {
            self.answer_askers(xid, voting, phase, out);
        }
    }

    /// What becomes of the locks of a global that has just been decided.
    fn pass_on_or_keep(
        &mut self,
        xid: Xid,
        phase: Phase,
        touched: &mut Touched,
        out: &mut Outcome,
    ) {
        match phase {
            // LOCK-OWNER: the locks go with the decision, by the change that stores it. The
            // branches' records still name the rows; `load` ignores them under a commit.
            Phase::Committing => self.let_go_of_all(xid, touched),
            Phase::RollingBack(_) if self.waits.is_idle() => {}
            Phase::RollingBack(_) => {
                let global = self.globals.get(xid);
                let held: Vec<_> = global.into_iter().flat_map(Global::locks).collect();
                self.fail_fast(xid, &held, Unfit::WithDatabaseLocks, touched, out);
            }
            Phase::Active => {}
        }
    }

    fn let_go_of_all(&mut self, xid: Xid, touched: &mut Touched) {
        let locks = &mut self.locks;
        self.globals.change(xid, |global| {
            for branch in &mut global.branches {
                let held = std::mem::take(&mut branch.locks);
                locks.let_go_of_branch(held.as_slice(), xid, branch.sequence, touched);
            }
        });
    }

    /// Ends a decided global that has no unfinished branch: one record remembers it.
    pub(crate) fn finish(&mut self, now: Timestamp, xid: Xid, out: &mut Outcome) {
        let Some(global) = self.globals.remove(xid) else { return };
        let mut record = global.record();
        record.state = match global.phase {
            Phase::Committing => GlobalState::Committed(now),
            Phase::RollingBack(reason) => GlobalState::RolledBack(reason, now),
            Phase::Active => unreachable!("DECIDED-ONCE: an undecided global does not finish"),
        };
        record.finished_branches = global.branches.iter().map(Branch::finished).collect();
        let branches = global.branches.iter().map(|branch| RecordKey::Branch(xid, branch.id));
        out.changes.push(Change::Put(Record::Global(record.clone())));
        out.changes.extend(branches.map(Change::Delete));
        let status = record.status();
        self.history.add(record);
        self.forget_beyond_the_limit(out);
        self.end_leases_of(now, xid, out);
        self.answer_ends(xid, status, out);
    }

    /// Answers those who wait for the end of a global.
    pub(crate) fn answer_ends(&mut self, xid: Xid, status: GlobalStatus, out: &mut Outcome) {
        for to in self.waits.take_ends(xid) {
            push_reply(out, Some(to), Reply::Status(status));
        }
    }
}

pub(crate) fn phase_after(decision: Decision, by: DecidedBy, rollback_only: bool) -> Phase {
    match (decision, by) {
        (Decision::Commit, _) if rollback_only => Phase::RollingBack(RollbackReason::BranchUnknown),
        (Decision::Commit, DecidedBy::Client | DecidedBy::Operator) => Phase::Committing,
        (Decision::RollBack, DecidedBy::Client) => Phase::RollingBack(RollbackReason::Requested),
        (Decision::RollBack, DecidedBy::Operator) => Phase::RollingBack(RollbackReason::Operator),
    }
}

pub(crate) fn event_text(phase: Phase, by: DecidedBy, reason: &str) -> Cow<'static, str> {
    let decided: Cow<'static, str> = match (phase, by) {
        (Phase::Active, _) => "undecided".into(),
        (Phase::Committing, DecidedBy::Client) => "decided: commit".into(),
        (Phase::Committing, DecidedBy::Operator) => "decided: commit (operator)".into(),
        (Phase::RollingBack(why), _) => format!("decided: roll back ({why})").into(),
    };
    if reason.is_empty() { decided } else { format!("{decided}: {reason}").into() }
}
