//! The decision of a global, taken once (DECIDED-ONCE), and its end.

use crate::branch::HeldRow;
use crate::coordinator::{Coordinator, push_reply};
use crate::global::{Global, Phase};
use crate::lock::LockId;
use crate::outcome::{Change, Effect, GlobalStatus, Outcome, Rejection, Reply, RollbackReason};
use crate::record::{GlobalState, Record, RecordKey};
use crate::request::{DecidedBy, Decision, ReplyWhen};
use crate::{Correlation, Timestamp, Xid};

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
        Ok(self.status(xid))
    }

    /// The same decision again is answered as the first time.
    fn confirm(
        &self,
        xid: Xid,
        made: Option<Decision>,
        status: GlobalStatus,
        asked: Decision,
    ) -> Result<GlobalStatus, Rejection> {
        let as_the_first_time = match status {
            // What a commit led to when a branch's outcome was unknown.
            GlobalStatus::RollingBack(RollbackReason::BranchUnknown)
            | GlobalStatus::RolledBack(RollbackReason::BranchUnknown)
            | GlobalStatus::NeedsOperator(RollbackReason::BranchUnknown) => true,
            GlobalStatus::Unknown
            | GlobalStatus::Active
            | GlobalStatus::Committing
            | GlobalStatus::Committed
            | GlobalStatus::RollingBack(_)
            | GlobalStatus::RolledBack(_)
            | GlobalStatus::NeedsOperator(_) => made == Some(asked),
        };
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
        let room = self.waits.len() < self.limits.waiters_max;
        match (to, reply_when) {
            (Some(to), ReplyWhen::Finished) if under_way && room => {
                self.waits.await_end(xid, to);
                None
            }
            (_, ReplyWhen::Finished | ReplyWhen::Decided) => Some(Reply::Status(status)),
        }
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
        self.globals.change(xid, |global| {
            global.phase = phase;
            global.note(now, event, events_max);
        });
        let mut touched = Vec::new();
        if self.globals.get(xid).is_some_and(|global| global.unfinished == 0) {
            self.finish(now, xid, out);
        } else {
            self.put_global(xid, out);
            self.start_phase_two(xid, phase, &mut touched, out);
        }
        let waiting: Vec<_> = self.waits.of_global(xid).collect();
        for id in waiting {
            self.refuse(id, self.already_decided(xid), &mut touched, out);
        }
        self.settle(now, touched, out);
    }

    fn start_phase_two(
        &mut self,
        xid: Xid,
        phase: Phase,
        touched: &mut Vec<LockId>,
        out: &mut Outcome,
    ) {
        if let Some(global) = self.globals.get(xid) {
            out.effects.extend(global.due().map(Effect::PhaseTwo));
        }
        match phase {
            // LOCK-OWNER: the locks go with the decision, by the change that stores it. The
            // branches' records still name the rows; `load` ignores them under a commit.
            Phase::Committing => self.let_go_of_all(xid, touched),
            Phase::RollingBack(_) => {
                let held = self.globals.get(xid).map(held_locks).unwrap_or_default();
                self.fail_fast(xid, &held, touched, out);
            }
            Phase::Active => {}
        }
    }

    fn let_go_of_all(&mut self, xid: Xid, touched: &mut Vec<LockId>) {
        let take = |global: &mut Global| -> Vec<_> {
            let rows = |branch: &mut crate::branch::Branch| {
                (branch.sequence, std::mem::take(&mut branch.rows))
            };
            global.branches.iter_mut().map(rows).collect()
        };
        for (sequence, rows) in self.globals.change(xid, take).unwrap_or_default() {
            self.let_go(xid, sequence, &rows, touched);
        }
    }

    /// Makes a branch hold its rows no longer; they are to be settled.
    pub(crate) fn let_go(
        &mut self,
        xid: Xid,
        sequence: u32,
        rows: &[HeldRow],
        touched: &mut Vec<LockId>,
    ) {
        for row in rows {
            self.locks.let_go(row.lock, xid, sequence);
            touched.push(row.lock);
        }
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
        record.finished_branches =
            global.branches.iter().map(|branch| branch.finished(now)).collect();
        let branches = global.branches.iter().map(|branch| RecordKey::Branch(xid, branch.id));
        out.changes.push(Change::Put(Record::Global(record.clone())));
        out.changes.extend(branches.map(Change::Delete));
        let status = record.status();
        self.history.add(record);
        self.forget_beyond_the_limit(out);
        self.answer_ends(xid, status, out);
    }

    /// Answers those who wait for the end of a global.
    pub(crate) fn answer_ends(&mut self, xid: Xid, status: GlobalStatus, out: &mut Outcome) {
        for to in self.waits.take_ends(xid) {
            push_reply(out, Some(to), Reply::Status(status));
        }
    }
}

fn phase_after(decision: Decision, by: DecidedBy, rollback_only: bool) -> Phase {
    match (decision, by) {
        (Decision::Commit, _) if rollback_only => Phase::RollingBack(RollbackReason::BranchUnknown),
        (Decision::Commit, DecidedBy::Client | DecidedBy::Operator) => Phase::Committing,
        (Decision::RollBack, DecidedBy::Client) => Phase::RollingBack(RollbackReason::Requested),
        (Decision::RollBack, DecidedBy::Operator) => Phase::RollingBack(RollbackReason::Operator),
    }
}

fn event_text(phase: Phase, by: DecidedBy, reason: &str) -> String {
    let decided = match phase {
        Phase::Active => "undecided".to_owned(),
        Phase::Committing => "decided: commit".to_owned(),
        Phase::RollingBack(why) => format!("decided: roll back ({why})"),
    };
    let by = match (by, phase) {
        (DecidedBy::Operator, Phase::Committing) => " (operator)",
        (DecidedBy::Client | DecidedBy::Operator, _) => "",
    };
    let colon = if reason.is_empty() { "" } else { ": " };
    format!("{decided}{by}{colon}{reason}")
}

fn held_locks(global: &Global) -> Vec<LockId> {
    let rows = global.branches.iter().flat_map(|branch| &branch.rows);
    rows.map(|row| row.lock).collect()
}
