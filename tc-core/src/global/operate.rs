//! What an operator can do to a decided global.
//!
//! Decisions themselves, an operator's too, are in `end`.

use super::branch::Stage;
use super::state::Global;
use super::state::Phase;
use crate::contract::{
    BranchId, Effect, Mode, OperatorAction, Outcome, Rejection, Reply, Resolution, Timestamp, Xid,
};
use crate::coordinator::Coordinator;
use crate::reply::Answer;

/// What has no images has no rows of which some could be put back.
pub(crate) const RESTORE_WITHOUT_ROWS: &str =
    "restore_clean of a branch without row images (say accept_current or force_before)";

impl Coordinator {
    /// Sent again, an action is answered as the first time, and a retry is one more retry.
    pub(crate) fn operate(
        &mut self,
        now: Timestamp,
        xid: Xid,
        action: OperatorAction,
        operator: &str,
        out: &mut Outcome,
    ) -> Answer {
        if self.sagas.get(xid).is_some() {
            return self.operate_saga(now, xid, action, operator, out);
        }
        self.check_applicable(xid, action)?;
        match action {
            OperatorAction::Retry => self.retry(now, xid, operator, out)?,
            OperatorAction::Pause => self.set_paused(now, xid, true, operator, out),
            OperatorAction::Resume => self.set_paused(now, xid, false, operator, out),
            OperatorAction::Resolve { branch, resolution } => {
                self.resolve(now, xid, branch, resolution, operator, out)?;
            }
        }
        Ok(Some(Reply::Operated(self.status(xid))))
    }

    fn check_applicable(&self, xid: Xid, action: OperatorAction) -> Result<(), Rejection> {
        match self.globals.get(xid) {
            Some(global) if global.phase != Phase::Active => Ok(()),
            None if self.history.get(xid).is_none() => Err(Rejection::UnknownXid(xid)),
            Some(_) | None => Err(self.not_applicable(xid, name_of(action))),
        }
    }

    fn not_applicable(&self, xid: Xid, action: &'static str) -> Rejection {
        Rejection::NotApplicable { xid, action, status: self.status(xid) }
    }

    /// Calls every branch that may be called, refused ones too: the rows may have been put right.
    fn retry(
        &mut self,
        now: Timestamp,
        xid: Xid,
        operator: &str,
        out: &mut Outcome,
    ) -> Result<(), Rejection> {
        if self.globals.get(xid).is_some_and(|global| global.paused) {
            return Err(self.not_applicable(xid, "retry of a paused global"));
        }
        self.note_action(now, xid, &format!("retry by {operator}"), out);
        if let Some(global) = self.globals.get(xid) {
            let calls = global.next_branches().into_iter().filter_map(|it| global.call(it));
            out.effects.extend(calls.map(Effect::PhaseTwo));
        }
        Ok(())
    }

    fn set_paused(
        &mut self,
        now: Timestamp,
        xid: Xid,
        paused: bool,
        operator: &str,
        out: &mut Outcome,
    ) {
        let set = |global: &mut Global| std::mem::replace(&mut global.paused, paused) != paused;
        if self.globals.change(xid, set) != Some(true) {
            return;
        }
        let what = if paused { "pause" } else { "resume" };
        self.note_action(now, xid, &format!("{what} by {operator}"), out);
        if paused {
            out.effects.push(Effect::Hold { xid, branch: None });
        } else if let Some(global) = self.globals.get(xid) {
            out.effects.extend(global.due().map(Effect::PhaseTwo));
        }
    }

    fn resolve(
        &mut self,
        now: Timestamp,
        xid: Xid,
        id: BranchId,
        resolution: Resolution,
        operator: &str,
        out: &mut Outcome,
    ) -> Result<(), Rejection> {
        let branch = self.globals.get(xid).and_then(|global| global.branch(id));
        if resolution == Resolution::RestoreClean && branch.is_some_and(|it| it.mode != Mode::At) {
            return Err(self.not_applicable(xid, RESTORE_WITHOUT_ROWS));
        }
        match branch.map(|branch| branch.stage) {
            None => return Err(Rejection::UnknownBranch { xid, branch: id }),
            Some(Stage::Refused) => {}
            Some(Stage::Resolved(made)) if made == resolution => return Ok(()),
            Some(
                Stage::Registered | Stage::PhaseOneDone | Stage::Resolved(_) | Stage::Finished,
            ) => return Err(self.not_applicable(xid, "resolve of a branch that is not refused")),
        }
        self.globals.change(xid, |global| {
            if let Some(branch) = global.branch_mut(id) {
                branch.stage = Stage::Resolved(resolution);
                global.refused -= 1;
            }
        });
        let how = match resolution {
            Resolution::RestoreClean => "restore clean",
            Resolution::AcceptCurrent => "accept current",
            Resolution::ForceBefore => "force before",
        };
        self.note_action(now, xid, &format!("branch {id}: {how} by {operator}"), out);
        self.put_branch(xid, id, out);
        if let Some(global) = self.globals.get(xid) {
            out.effects.extend(global.due().filter(|call| call.branch == id).map(Effect::PhaseTwo));
        }
        Ok(())
    }

    fn note_action(&mut self, now: Timestamp, xid: Xid, what: &str, out: &mut Outcome) {
        let what = self.names.text_of(what);
        let events_max = self.limits.events_per_global_max;
        self.globals.change(xid, |global| global.note(now, what, events_max));
        self.put_global(xid, out);
    }
}

fn name_of(action: OperatorAction) -> &'static str {
    match action {
        OperatorAction::Retry => "retry",
        OperatorAction::Pause => "pause",
        OperatorAction::Resume => "resume",
        OperatorAction::Resolve { .. } => "resolve",
    }
}
