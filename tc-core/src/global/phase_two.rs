//! The answers of RMs in phase two.
//!
//! An answer counts only if its branch may be called: on a commit any branch, on a rollback the
//! last unfinished one in its `RollbackOrder`. Every other answer is an echo of an earlier leader
//! or of a repeated effect (EFFECTS-REPEAT), and changes nothing. A branch is never given up, only
//! finished.

use std::sync::Arc;

use super::branch::{Branch, BranchStage};
use super::branch_rows::GivenUpRows;
use super::globals::Globals;
use super::state::{Global, row_count};
use crate::contract::{
    BranchId, Change, Decision, Effect, PhaseTwoCall, PhaseTwoOutcome, Record, RefusedRows,
    Timestamp, Xid,
};
use crate::row_lock::table::Touched;
use crate::row_lock::waiters::Unfit;

impl Globals<'_> {
    /// Records the outcome of a branch. Returns it if no global has this XID.
    pub(crate) fn finish_phase_two(
        &mut self,
        xid: Xid,
        branch: BranchId,
        decision: Decision,
        outcome: PhaseTwoOutcome,
    ) -> Option<PhaseTwoOutcome> {
        let Some(global) = self.globals.get(xid) else { return Some(outcome) };
        let believed = |branch: &Branch| global.is_next(branch);
        if global.decision() != Some(decision) || !global.branch(branch).is_some_and(believed) {
            return None;
        }
        match (outcome, decision) {
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, _) => {
                self.finish_branch(xid, branch);
            }
            (PhaseTwoOutcome::Refused { error, rows }, Decision::RollBack) => {
                self.refuse_branch(xid, branch, error, rows);
            }
            // A commit cannot be refused: the branch is called again.
            (
                PhaseTwoOutcome::Retryable { error } | PhaseTwoOutcome::Refused { error, .. },
                Decision::Commit | Decision::RollBack,
            ) => self.fail_branch(xid, branch, error),
        }
        None
    }

    fn finish_branch(&mut self, xid: Xid, id: BranchId) {
        let locks = &self.rows.table;
        let done = self.globals.change(xid, |global| {
            let (sequence, held) = mark_finished(global, id, self.on.now)?;
            // The last branch ends with its global, whose end deletes the record of every branch.
            if global.unfinished > 0 {
                self.on.out.effects.extend(next_after(global, sequence).map(Effect::PhaseTwo));
                let record = global.branch_at(sequence)?.record(xid, locks);
                self.on.out.changes.push(Change::Put(Record::Branch(record)));
            }
            Some((sequence, held, global.unfinished))
        });
        let Some((sequence, held, unfinished)) = done.flatten() else { return };
        if unfinished == 0 {
            self.finish_global(xid);
        }
        // LOCK-OWNER: the rows are released by the change that stores the branch as finished.
        let mut touched = Touched::new();
        self.rows.table.release_branch(&held, xid, sequence, &mut touched);
        self.settle(touched);
    }

    pub(crate) fn fail_branch(&mut self, xid: Xid, id: BranchId, error: Arc<str>) {
        let error = self.on.names.text(&error);
        self.globals.change(xid, |global| {
            if let Some(branch) = global.branch_mut(id) {
                branch.fail(self.on.now, error);
            }
        });
        self.put_branch(xid, id);
    }

    fn refuse_branch(&mut self, xid: Xid, id: BranchId, error: Arc<str>, rows: Arc<RefusedRows>) {
        let error = self.on.names.text(&error);
        let begins = self.globals.change(xid, |global| {
            // Operators are alarmed once for the global, however many of its branches refuse.
            let begins = global.refused == 0;
            let branch = global.branch_mut(id)?;
            let extras = branch.fail(self.on.now, error.clone());
            extras.refusal = Some((error, rows));
            let before = std::mem::replace(&mut branch.stage, BranchStage::Refused);
            global.refused += u32::from(before != BranchStage::Refused);
            begins.then(|| global.alert(id)).flatten()
        });
        self.put_branch(xid, id);
        // Requests that wait for the end are answered: no time limit bounds how long an operator
        // takes.
        self.answer_ends(xid, self.status(xid));
        self.refuse_waiters_of_stuck(xid, id);
        self.on.out.effects.extend(begins.flatten().map(Effect::Alert));
    }

    /// Refuses the requests that wait for rows which are released only after an operator has acted.
    fn refuse_waiters_of_stuck(&mut self, xid: Xid, refused: BranchId) {
        if self.rows.waiters.is_idle() {
            return;
        }
        let held = self.globals.get(xid).map(|global| global.locks_behind(refused));
        let mut touched = Touched::new();
        self.refuse_unfit_waiters(xid, &held.unwrap_or_default(), Unfit::All, &mut touched);
        self.settle(touched);
    }

    pub(crate) fn put_branch(&mut self, xid: Xid, id: BranchId) {
        if let Some(branch) = self.globals.get(xid).and_then(|global| global.branch(id)) {
            self.on
                .out
                .changes
                .push(Change::Put(Record::Branch(branch.record(xid, &self.rows.table))));
        }
    }
}

/// Marks a branch finished and takes its rows out, so that its next record names none.
fn mark_finished(global: &mut Global, id: BranchId, now: Timestamp) -> Option<(u32, GivenUpRows)> {
    let branch = global.branch_mut(id)?;
    let (before, done) = (branch.stage, (branch.sequence, branch.take_locks()));
    branch.finish(now);
    global.unfinished -= 1;
    global.rows -= row_count(done.1.len());
    global.refused -= u32::from(before == BranchStage::Refused);
    Some(done)
}

/// Returns the call that waited for a branch to be rolled back: that of the branch registered
/// before it in the same `RollbackOrder`.
fn next_after(global: &Global, sequence: u32) -> Option<PhaseTwoCall> {
    // A commit has called all of its branches at once.
    if global.is_paused() || !global.is_rolling_back() {
        return None;
    }
    let finished = global.branch_at(sequence)?;
    let same = |branch: &&&Branch| branch.rollback_order() == finished.rollback_order();
    let next = global.next_branches();
    let next = next.iter().find(same).filter(|branch| branch.stage != BranchStage::Refused)?;
    global.call(next)
}
