//! Reports on phase one of a branch, and of what phase two is to be given.

use super::branch::BranchStage;
use super::globals::Globals;
use super::state::{Global, Phase, row_count};
use crate::contract::{
    BranchId, Change, Decision, Effect, Event, EventKind, PhaseOneOutcome, Record, RecordKey,
    Rejection, Reply, Xid,
};
use crate::decision_context::HandlerResult;
use crate::row_lock::table::Touched;

impl Globals<'_> {
    pub(crate) fn report_branch(
        &mut self,
        xid: Xid,
        branch: BranchId,
        outcome: Option<PhaseOneOutcome>,
        application_data: Box<[u8]>,
    ) -> HandlerResult {
        let ended = outcome.map(|outcome| self.end_phase_one(xid, branch, outcome));
        match ended.transpose()? {
            // Nothing is left of the branch that data could be given to.
            Some(reply) if outcome == Some(PhaseOneOutcome::Failed) => Ok(reply),
            Some(reply) if application_data.is_empty() => Ok(reply),
            Some(_) | None => self.change_data(xid, branch, application_data),
        }
    }

    fn end_phase_one(
        &mut self,
        xid: Xid,
        branch: BranchId,
        outcome: PhaseOneOutcome,
    ) -> HandlerResult {
        let finished = || self.history.get(xid).and_then(|global| global.decision());
        let global = self.globals.get(xid);
        let decision = global.map_or_else(finished, |global| global.decision());
        match (decision, outcome) {
            (None, _) => self.report_to_active(xid, branch, outcome),
            // The global commits, and this branch's work is not part of it: the refusal tells the
            // TM.
            (Some(Decision::Commit), PhaseOneOutcome::Failed | PhaseOneOutcome::Unknown) => {
                Err(self.already_decided(xid))
            }
            (Some(Decision::Commit), PhaseOneOutcome::Done) | (Some(Decision::RollBack), _) => {
                Ok(Some(Reply::Reported))
            }
        }
    }

    fn report_to_active(
        &mut self,
        xid: Xid,
        branch: BranchId,
        outcome: PhaseOneOutcome,
    ) -> HandlerResult {
        let global = self.globals.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        let known = global.branch(branch).is_some();
        match global.deciding() {
            Some(last) if last.id == branch => {
                return Ok(Some(self.report_of_last(xid, branch, outcome)));
            }
            // As if it were decided already: this branch's work would not be part of the commit.
            Some(_) if known && outcome != PhaseOneOutcome::Done => {
                return Err(Rejection::Voting(xid));
            }
            Some(_) | None => {}
        }
        match outcome {
            // The branch need not be known: its registration may still wait in a queue.
            PhaseOneOutcome::Failed => self.remove_branch(xid, branch),
            PhaseOneOutcome::Done | PhaseOneOutcome::Unknown if !known => {
                return Err(Rejection::UnknownBranch { xid, branch });
            }
            PhaseOneOutcome::Done => self.mark_done(xid, branch),
            PhaseOneOutcome::Unknown => self.mark_unknown(xid, branch),
        }
        // A participant that has prepared by itself, or has gone, need not vote any more.
        self.count_votes(xid);
        Ok(Some(Reply::Reported))
    }

    /// Takes the report of the branch that decides the global (LAST-BRANCH).
    fn report_of_last(&mut self, xid: Xid, branch: BranchId, outcome: PhaseOneOutcome) -> Reply {
        let reply = match outcome {
            PhaseOneOutcome::Done => {
                let event = "decided: commit (its last branch has committed)";
                self.decide_global(xid, Phase::Committing, event);
                Reply::LastReported
            }
            // Its owner goes on to roll back, or to commit what is left.
            PhaseOneOutcome::Failed => {
                self.remove_branch(xid, branch);
                Reply::Reported
            }
            PhaseOneOutcome::Unknown => {
                self.globals.change(xid, |global| {
                    if let Some(branch) = global.branch_mut(branch) {
                        branch.stage = BranchStage::Registered;
                    }
                });
                self.put_branch(xid, branch);
                self.mark_unknown(xid, branch);
                Reply::Reported
            }
        };
        // If the global's time is over, it was waiting for this branch alone.
        self.count_votes(xid);
        reply
    }

    /// Adds a failed attempt at a try to the course of its branch.
    pub(crate) fn note_failed_try(
        &mut self,
        xid: Xid,
        branch: BranchId,
        attempt: u32,
        error: &str,
    ) -> HandlerResult {
        self.undecided(xid)?;
        let (now, locks) = (self.on.now, &self.rows.table);
        let what = self.on.names.text_of(&format!("try: {error}"));
        let noted = self.globals.change(xid, |global| {
            let noted = global.branch_mut(branch)?;
            noted.note(Event { at: now, what, kind: EventKind::Failed { attempt } });
            Some(Change::Put(Record::Branch(noted.record(xid, locks))))
        });
        let change = noted.flatten().ok_or(Rejection::UnknownBranch { xid, branch })?;
        self.on.out.changes.push(change);
        Ok(Some(Reply::Reported))
    }

    pub(crate) fn mark_done(&mut self, xid: Xid, branch: BranchId) {
        let locks = &self.rows.table;
        self.globals.change(xid, |global| {
            let Some(branch) = global.branch_mut(branch) else { return };
            if branch.stage == BranchStage::Registered {
                branch.stage = BranchStage::PhaseOneDone;
                branch.phase_one_at = self.on.now;
                self.on.out.changes.push(Change::Put(Record::Branch(branch.record(xid, locks))));
            }
        });
    }

    fn mark_unknown(&mut self, xid: Xid, branch: BranchId) {
        let what = self.on.names.text_of(&format!("branch {branch}: local outcome unknown"));
        let events_max = self.on.limits.events_per_global_max;
        let marked = self.globals.change(xid, |global| {
            if global.is_rollback_only() {
                return false;
            }
            global.extras_mut().rollback_only = true;
            let event = Event { at: self.on.now, what, kind: EventKind::Note };
            global.note(event, events_max);
            true
        });
        if marked == Some(true) {
            self.put_global(xid);
        }
    }

    /// Removes a branch that is locally rolled back for certain, with its locks and with whatever
    /// registration of it still waits: granted later, it would make a branch that no client knows.
    fn remove_branch(&mut self, xid: Xid, branch: BranchId) {
        let mut touched = Touched::new();
        let joins =
            |id: &_| self.rows.waiters.get(*id).is_some_and(|waiter| waiter.joins(xid, branch));
        let pending: Vec<_> = self.rows.waiters.of_global(xid).filter(joins).collect();
        for id in pending {
            let rejection = Rejection::UnknownBranch { xid, branch };
            self.refuse(id, rejection, &mut touched);
        }
        let removed = self.globals.change(xid, |global| {
            let removed = global.branches.remove(branch)?;
            global.unfinished -= 1;
            global.rows -= row_count(removed.locks().len());
            Some(removed)
        });
        if let Some(removed) = removed.flatten() {
            self.on.out.changes.push(Change::Delete(RecordKey::Branch(xid, branch)));
            self.rows.table.release_branch(removed.locks(), xid, removed.sequence, &mut touched);
            // Without these rows other requests of the global may have lost their rank.
            self.after_change_of_rows(xid, &mut touched);
        }
        self.settle(touched);
    }

    /// Replaces the data for phase two, if the report has any. A call that may have been sent is
    /// handed over again, so that further attempts have the other data; what its receiver has
    /// carried out with the earlier data stands. The report is refused for a finished branch, whose
    /// reporter must not rely on it.
    fn change_data(
        &mut self,
        xid: Xid,
        id: BranchId,
        application_data: Box<[u8]>,
    ) -> HandlerResult {
        let global = self.globals.get(xid).ok_or_else(|| self.finished_or_unknown(xid))?;
        let unknown = Rejection::UnknownBranch { xid, branch: id };
        let branch = global.branch(id).ok_or(unknown)?;
        if branch.is_finished() {
            return Err(self.already_decided(xid));
        }
        if !application_data.is_empty() && branch.application_data() != application_data {
            self.globals.change(xid, |global| {
                if let Some(branch) = global.branch_mut(id) {
                    branch.extras.get_or_insert_default().application_data = application_data;
                }
            });
            self.put_branch(xid, id);
            let due = self.globals.get(xid).into_iter().flat_map(Global::due);
            let repeated = due.filter(|call| call.branch == id);
            self.on.out.effects.extend(repeated.map(Effect::PhaseTwo));
        }
        Ok(Some(Reply::Reported))
    }
}
