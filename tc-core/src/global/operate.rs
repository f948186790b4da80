//! Operators' actions on a decided global.
//!
//! Decisions themselves, an operator's too, are in `end`.

use super::branch::BranchStage;
use super::globals::Globals;
use super::state::{Global, Phase};
use crate::contract::{
    BranchId, Effect, Event, EventKind, Mode, OperatorAction, Rejection, Reply, Resolution, Xid,
};
use crate::deciding::HandlerResult;

/// The refused action on a branch without images, which has no rows to put back.
pub(crate) const RESTORE_WITHOUT_ROWS: &str =
    "restore_clean of a branch without row images (say accept_current or force_before)";

impl Globals<'_> {
    /// Carries out an operator's action. An action that is sent again is answered as the first
    /// time; a retry retries once more.
    pub(crate) fn operate(
        &mut self,
        xid: Xid,
        action: OperatorAction,
        operator: &str,
    ) -> HandlerResult {
        self.check_applicable(xid, action)?;
        match action {
            OperatorAction::Retry => self.retry(xid, operator)?,
            OperatorAction::Pause => self.pause(xid, operator),
            OperatorAction::Resume => self.resume(xid, operator),
            OperatorAction::Resolve { branch, resolution } => {
                self.resolve(xid, branch, resolution, operator)?;
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
    fn retry(&mut self, xid: Xid, operator: &str) -> Result<(), Rejection> {
        if self.globals.get(xid).is_some_and(|global| global.paused) {
            return Err(self.not_applicable(xid, "retry of a paused global"));
        }
        self.note_action(xid, &format!("retry by {operator}"));
        if let Some(global) = self.globals.get(xid) {
            // `due` would leave the refused branches out.
            let calls = global.next_branches().into_iter().filter_map(|it| global.call(it));
            self.on.out.effects.extend(calls.map(Effect::PhaseTwo));
        }
        Ok(())
    }

    fn pause(&mut self, xid: Xid, operator: &str) {
        let was_paused = self.globals.change(xid, |it| std::mem::replace(&mut it.paused, true));
        if was_paused == Some(false) {
            self.note_action(xid, &format!("pause by {operator}"));
            self.on.out.effects.push(Effect::Hold { xid, branch: None });
        }
    }

    fn resume(&mut self, xid: Xid, operator: &str) {
        let was_paused = self.globals.change(xid, |it| std::mem::replace(&mut it.paused, false));
        if was_paused == Some(true) {
            self.note_action(xid, &format!("resume by {operator}"));
            let due = self.globals.get(xid).into_iter().flat_map(Global::due);
            self.on.out.effects.extend(due.map(Effect::PhaseTwo));
        }
    }

    fn resolve(
        &mut self,
        xid: Xid,
        id: BranchId,
        resolution: Resolution,
        operator: &str,
    ) -> Result<(), Rejection> {
        let branch = self.globals.get(xid).and_then(|global| global.branch(id));
        if resolution == Resolution::RestoreClean && branch.is_some_and(|it| it.mode != Mode::At) {
            return Err(self.not_applicable(xid, RESTORE_WITHOUT_ROWS));
        }
        match branch.map(|branch| branch.stage) {
            None => return Err(Rejection::UnknownBranch { xid, branch: id }),
            Some(BranchStage::Refused) => {}
            Some(BranchStage::Resolved(made)) if made == resolution => return Ok(()),
            Some(
                BranchStage::Registered
                | BranchStage::PhaseOneDone
                | BranchStage::Resolved(_)
                | BranchStage::Finished,
            ) => return Err(self.not_applicable(xid, "resolve of a branch that is not refused")),
        }
        self.globals.change(xid, |global| {
            if let Some(branch) = global.branch_mut(id) {
                branch.stage = BranchStage::Resolved(resolution);
                global.refused -= 1;
            }
        });
        let how = match resolution {
            Resolution::RestoreClean => "restore clean",
            Resolution::AcceptCurrent => "accept current",
            Resolution::ForceBefore => "force before",
        };
        self.note_action(xid, &format!("branch {id}: {how} by {operator}"));
        self.put_branch(xid, id);
        // The operator's answer concerns this branch. Calls of the others are out already.
        if let Some(global) = self.globals.get(xid) {
            self.on
                .out
                .effects
                .extend(global.due().filter(|call| call.branch == id).map(Effect::PhaseTwo));
        }
        Ok(())
    }

    fn note_action(&mut self, xid: Xid, what: &str) {
        let what = self.on.names.text_of(what);
        let events_max = self.on.limits.events_per_global_max;
        let event = Event { at: self.on.now, what, kind: EventKind::Acted };
        self.globals.change(xid, |global| global.note(event, events_max));
        self.put_global(xid);
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
