//! Reports on phase one of a branch, and of what phase two is to be given.

use super::branch::Stage;
use super::state::Global;
use crate::contract::{
    BranchId, Change, Decision, Effect, Outcome, PhaseOneOutcome, Record, RecordKey, Rejection,
    Reply, Timestamp, Xid,
};
use crate::coordinator::Coordinator;
use crate::reply::Answer;
use crate::row_lock::table::Touched;

impl Coordinator {
    pub(crate) fn report_branch(
        &mut self,
        now: Timestamp,
        xid: Xid,
        branch: BranchId,
        outcome: Option<PhaseOneOutcome>,
        application_data: Box<[u8]>,
        out: &mut Outcome,
    ) -> Answer {
        let ended = outcome.map(|outcome| self.end_phase_one(now, xid, branch, outcome, out));
        match ended.transpose()? {
            // Nothing is left of the branch that data could be given to.
            Some(reply) if outcome == Some(PhaseOneOutcome::Failed) => Ok(reply),
            Some(reply) if application_data.is_empty() => Ok(reply),
            Some(_) | None => self.change_data(xid, branch, application_data, out),
        }
    }

    fn end_phase_one(
        &mut self,
        now: Timestamp,
        xid: Xid,
        branch: BranchId,
        outcome: PhaseOneOutcome,
        out: &mut Outcome,
    ) -> Answer {
        let finished = || self.history.get(xid).and_then(|global| global.decision());
        let global = self.globals.get(xid);
        let decision = global.map_or_else(finished, |global| global.decision());
        match (decision, outcome) {
            (None, _) => self.report_to_active(now, xid, branch, outcome, out),
            // A commit that a branch cannot have joined: the TM must hear of it.
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
        now: Timestamp,
        xid: Xid,
        branch: BranchId,
        outcome: PhaseOneOutcome,
        out: &mut Outcome,
    ) -> Answer {
        let global = self.globals.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        let known = global.branch(branch).is_some();
        match outcome {
            PhaseOneOutcome::Failed => self.remove_branch(now, xid, branch, out),
            PhaseOneOutcome::Done | PhaseOneOutcome::Unknown if !known => {
                return Err(Rejection::UnknownBranch { xid, branch });
            }
            PhaseOneOutcome::Done => self.mark_done(xid, branch, out),
            PhaseOneOutcome::Unknown => self.mark_unknown(now, xid, branch, out),
        }
        self.count_votes(now, xid, out);
        Ok(Some(Reply::Reported))
    }

    pub(crate) fn mark_done(&mut self, xid: Xid, branch: BranchId, out: &mut Outcome) {
        let locks = &self.locks;
        self.globals.change(xid, |global| {
            let Some(branch) = global.branch_mut(branch) else { return };
            if branch.stage == Stage::Registered {
                branch.stage = Stage::PhaseOneDone;
                out.changes.push(Change::Put(Record::Branch(branch.record(xid, locks))));
            }
        });
    }

    fn mark_unknown(&mut self, now: Timestamp, xid: Xid, branch: BranchId, out: &mut Outcome) {
        let what = self.names.text_of(&format!("branch {branch}: local outcome unknown"));
        let events_max = self.limits.events_per_global_max;
        let marked = self.globals.change(xid, |global| {
            if global.rollback_only {
                return false;
            }
            global.rollback_only = true;
            global.note(now, what, events_max);
            true
        });
        if marked == Some(true) {
            self.put_global(xid, out);
        }
    }

    /// Removes a branch that is locally rolled back for certain, with its locks and with whatever
    /// registration of it still waits: granted later, that would be a branch nobody knows of.
    fn remove_branch(&mut self, now: Timestamp, xid: Xid, branch: BranchId, out: &mut Outcome) {
        let mut touched = Touched::new();
        let joins = |id: &_| self.waits.get(*id).is_some_and(|waiter| waiter.joins(xid, branch));
        let joining: Vec<_> = self.waits.of_global(xid).filter(joins).collect();
        for id in joining {
            let rejection = Rejection::UnknownBranch { xid, branch };
            self.refuse(id, rejection, &mut touched, out);
        }
        let removed = self.globals.change(xid, |global| {
            let place = global.branches.iter().position(|known| known.id == branch)?;
            global.unfinished -= 1;
            Some(global.branches.remove(place))
        });
        if let Some(removed) = removed.flatten() {
            out.changes.push(Change::Delete(RecordKey::Branch(xid, branch)));
            self.locks.let_go_of_branch(
                removed.locks.as_slice(),
                xid,
                removed.sequence,
                &mut touched,
            );
            self.after_change_of_rows(now, xid, &mut touched, out);
        }
        self.settle(now, touched, out);
    }

    /// Gives phase two other data, if there is any. A call that may be out is repeated with it; a
    /// branch that is finished has no use for it, and whoever reported must not take it for given.
    fn change_data(
        &mut self,
        xid: Xid,
        id: BranchId,
        application_data: Box<[u8]>,
        out: &mut Outcome,
    ) -> Answer {
        let global = self.globals.get(xid).ok_or_else(|| self.finished_or_unknown(xid))?;
        let unknown = Rejection::UnknownBranch { xid, branch: id };
        let branch = global.branch(id).ok_or(unknown)?;
        if branch.is_finished() {
            return Err(self.already_decided(xid));
        }
        if !application_data.is_empty() && branch.application_data() != application_data {
            self.globals.change(xid, |global| {
                if let Some(branch) = global.branch_mut(id) {
                    branch.rare.get_or_insert_default().application_data = application_data;
                }
            });
            self.put_branch(xid, id, out);
            let due = self.globals.get(xid).into_iter().flat_map(Global::due);
            let repeated = due.filter(|call| call.branch == id);
            out.effects.extend(repeated.map(Effect::PhaseTwo));
        }
        Ok(Some(Reply::Reported))
    }
}
