//! The decision of a global, taken once (DECIDED-ONCE), and its end.

use std::borrow::Cow;

use super::finished::FinishedGlobal;
use super::globals::Globals;
use super::history::History;
use super::state::{Global, Phase, follows_from_a_commit};
use super::table::GlobalTable;
use crate::contract::{
    Asker, Change, Correlation, DecidedBy, Decision, Effect, Event, EventKind, GlobalState,
    GlobalStatus, Mode, Record, RecordKey, Rejection, Reply, ReplyWhen, RollbackReason, Xid,
};
use crate::decision_context::HandlerResult;
use crate::row_lock::table::Touched;
use crate::row_lock::waiters::Unfit;

/// How a global stands to a decision.
pub(crate) enum Ending {
    /// It can be taken.
    Undecided { rollback_only: bool },
    /// It was taken before.
    DecidedAlike(GlobalStatus),
}

/// Returns how a global stands to a decision, or why this cannot be taken.
pub(crate) fn ending(
    globals: &GlobalTable,
    history: &History,
    xid: Xid,
    decision: Decision,
) -> Result<Ending, Rejection> {
    match globals.get(xid) {
        // LAST-BRANCH: the owner of the branch may have answered that the global is committed.
        Some(global) if global.deciding().is_some() => {
            let action =
                "a decision that its last branch takes (by its local commit, or at the timeout)";
            Err(Rejection::NotApplicable { xid, action, status: global.status() })
        }
        Some(global) if global.phase == Phase::Active => {
            Ok(Ending::Undecided { rollback_only: global.is_rollback_only() })
        }
        Some(global) => confirm(xid, global.decision(), global.status(), decision),
        None => {
            let finished = history.get(xid).ok_or(Rejection::UnknownXid(xid))?;
            confirm(xid, finished.decision(), finished.status(), decision)
        }
    }
}

/// The same decision again is answered as the first time.
fn confirm(
    xid: Xid,
    made: Option<Decision>,
    status: GlobalStatus,
    asked: Decision,
) -> Result<Ending, Rejection> {
    let led_to = match status {
        GlobalStatus::RollingBack(reason)
        | GlobalStatus::RolledBack(reason)
        | GlobalStatus::NeedsOperator(reason) => follows_from_a_commit(reason),
        GlobalStatus::Unknown
        | GlobalStatus::Active
        | GlobalStatus::Committing
        | GlobalStatus::Committed => false,
    };
    // A request to commit that has led to a rollback is not refused when it is sent again.
    let as_the_first_time = led_to || made == Some(asked);
    let refused = Rejection::AlreadyDecided { xid, status };
    if as_the_first_time { Ok(Ending::DecidedAlike(status)) } else { Err(refused) }
}

impl Globals<'_> {
    /// Rolls a global back.
    pub(crate) fn roll_back(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        by: DecidedBy,
        reason: &str,
        reply_when: ReplyWhen,
    ) -> HandlerResult {
        let status = self.end(xid, Decision::RollBack, by, reason)?;
        Ok(self.answer_end(to, self.on.asker, xid, status, reply_when))
    }

    /// Decides a global, or confirms the decision that it has.
    pub(crate) fn end(
        &mut self,
        xid: Xid,
        decision: Decision,
        by: DecidedBy,
        reason: &str,
    ) -> Result<GlobalStatus, Rejection> {
        let rollback_only = match ending(self.globals, self.history, xid, decision)? {
            Ending::Undecided { rollback_only } => rollback_only,
            Ending::DecidedAlike(status) => return Ok(status),
        };
        let phase = phase_after(decision, by, rollback_only);
        self.decide_global(xid, phase, &event_text(phase, by, reason));
        Ok(self.status_decided(xid, phase))
    }

    /// Returns the status of a global that has just been decided.
    pub(crate) fn status_decided(&self, xid: Xid, phase: Phase) -> GlobalStatus {
        // With `limits.history_max` at 0 the global is forgotten before its decision is answered.
        let status = self.status(xid);
        match phase {
            Phase::Active => status,
            Phase::Committing => status.or_if_forgotten(GlobalStatus::Committed),
            Phase::RollingBack(reason) => status.or_if_forgotten(GlobalStatus::RolledBack(reason)),
        }
    }

    /// Answers at once, or keeps the place of the requester until the global is finished.
    pub(crate) fn answer_end(
        &mut self,
        to: Option<Correlation>,
        asker: &Asker,
        xid: Xid,
        status: GlobalStatus,
        reply_when: ReplyWhen,
    ) -> Option<Reply> {
        let under_way = matches!(status, GlobalStatus::Committing | GlobalStatus::RollingBack(_));
        let waits = match reply_when {
            ReplyWhen::Decided => false,
            ReplyWhen::Finished => under_way,
            ReplyWhen::Effective if self.is_in_effect(xid) => {
                return Some(Reply::Ended(GlobalStatus::Committed));
            }
            ReplyWhen::Effective => under_way,
        };
        // Without room to wait the answer is the status reached: the decision stands either way.
        match to {
            Some(to) if waits && self.check_room_for(asker).is_ok() => {
                self.waiting.await_end(xid, to, asker);
                None
            }
            _ => Some(Reply::Ended(status)),
        }
    }

    /// Returns whether phase two of a commit changes nothing that others can see.
    fn is_in_effect(&self, xid: Xid) -> bool {
        // AT branches have committed in phase one, and phase two deletes their undo rows.
        self.globals.get(xid).is_some_and(|global| {
            global.phase == Phase::Committing
                && global.branches.iter().all(|branch| branch.mode == Mode::At)
        })
    }

    /// Takes the decision of an undecided global, with everything that follows from it at once.
    pub(crate) fn decide_global(&mut self, xid: Xid, phase: Phase, event: &str) {
        let event = self.on.names.text_of(event);
        let events_max = self.on.limits.events_per_global_max;
        // This comes before the calls of phase two: the dispatcher takes effects in order, and the
        // hold on the votes would remove these calls as well.
        let voting = self.close_voting(xid);
        self.note_waits_of(xid);
        let event = Event { at: self.on.now, what: event, kind: EventKind::Decided };
        // What a last branch has decided is in its database (LAST-BRANCH).
        let by_last = self.globals.get(xid).is_some_and(|global| global.deciding().is_some());
        self.on.out.has_committed |= phase == Phase::Committing && !by_last;
        let decided = self.globals.change(xid, |global| {
            global.phase = phase;
            global.note(event, events_max);
            // Without an unfinished branch the record of the end, written below, tells the
            // decision.
            if global.unfinished > 0 {
                global.stored = true;
                self.on.out.changes.push(Change::Put(Record::Global(global.record())));
                self.on.out.effects.extend(global.due().map(Effect::PhaseTwo));
            }
            global.unfinished
        });
        // Before anything is released, or the global would be granted it again.
        if self.leases.concerns_globals() {
            let decided = self.already_decided(xid);
            self.named_locks().refuse_turns_of(xid, &decided);
        }
        let mut touched = Touched::new();
        match decided {
            None | Some(0) => self.finish_global(xid),
            Some(_) => self.release_or_keep_rows(xid, phase, &mut touched),
        }
        // This comes before `settle`, which could grant them rows: no branch joins a decided
        // global.
        if !self.rows.waiters.is_idle() {
            self.refuse_waiters_of(xid, &mut touched);
        }
        self.settle(touched);
        if self.leases.concerns_globals() {
            self.named_locks().refuse_turns_behind(xid);
        }
        // On a rollback the leases also protect the undo, and end with the global.
        if phase == Phase::Committing {
            self.end_leases_of(xid);
        }
        // The replies come last: they name the status that all of the above has led to.
        if let Some(voting) = voting {
            self.answer_askers(xid, voting, phase);
        }
    }

    fn refuse_waiters_of(&mut self, xid: Xid, touched: &mut Touched) {
        let waiting: Vec<_> = self.rows.waiters.of_global(xid).collect();
        for id in waiting {
            self.refuse(id, self.already_decided(xid), touched);
        }
    }

    /// Releases or keeps the row locks of a global that has just been decided.
    fn release_or_keep_rows(&mut self, xid: Xid, phase: Phase, touched: &mut Touched) {
        match phase {
            // LOCK-OWNER: the locks go with the decision, by the change that stores it. The
            // branches' records still name the rows; `load` ignores them under a commit.
            Phase::Committing => self.release_all_rows(xid, touched),
            // LOCK-OWNER: on a rollback each branch keeps its rows until it reports them restored.
            // A request that holds database locks must not wait for that, since the rollback may
            // need them.
            Phase::RollingBack(_) if self.rows.waiters.is_idle() => {}
            Phase::RollingBack(_) => {
                let global = self.globals.get(xid);
                let held: Vec<_> = global.into_iter().flat_map(Global::locks).collect();
                self.refuse_unfit_waiters(xid, &held, Unfit::WithDatabaseLocks, touched);
            }
            Phase::Active => {}
        }
    }

    fn release_all_rows(&mut self, xid: Xid, touched: &mut Touched) {
        let locks = &mut self.rows.table;
        self.globals.change(xid, |global| {
            for (sequence, held) in global.branches.take_locks() {
                locks.release_branch(&held, xid, sequence, touched);
            }
            global.rows = 0;
        });
    }

    /// Ends a decided global that has no unfinished branch: one record remembers it.
    pub(crate) fn finish_global(&mut self, xid: Xid) {
        let Some(global) = self.globals.remove(xid) else { return };
        let state = match global.phase {
            Phase::Committing => GlobalState::Committed(self.on.now),
            Phase::RollingBack(reason) => GlobalState::RolledBack(reason, self.on.now),
            Phase::Active => unreachable!("DECIDED-ONCE: an undecided global does not finish"),
        };
        // All of this is in one batch: a restart finds either a decided global that still has a
        // call to make, or a finished one without branches.
        let finished = FinishedGlobal::new(*global, state);
        self.on.out.changes.push(Change::Put(Record::Global(finished.record())));
        let branches = finished.branches.iter().map(|branch| RecordKey::Branch(xid, branch.id));
        self.on.out.changes.extend(branches.map(Change::Delete));
        // The status is read first: the history may forget the global at once.
        let status = finished.status();
        self.history.add(finished);
        self.forget_beyond_the_limit();
        self.end_leases_of(xid);
        self.answer_ends(xid, status);
    }

    /// Answers the requests that wait for the end of a global.
    pub(crate) fn answer_ends(&mut self, xid: Xid, status: GlobalStatus) {
        for to in self.waiting.take_ends(xid) {
            self.on.reply(Some(to), Reply::Ended(status));
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
