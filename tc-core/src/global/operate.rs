//! Operators' actions on a decided global.
//!
//! Decisions themselves, an operator's too, are in `end`.

use super::branch::BranchStage;
use super::globals::Globals;
use super::history::History;
use super::state::{Global, Phase};
use super::table::GlobalTable;
use crate::contract::{
    BranchId, Effect, Event, EventKind, GlobalStatus, Mode, OperatorAction, Rejection, Reply,
    Resolution, Xid,
};
use crate::decision_context::HandlerResult;
use crate::operator::preview::Preview;

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
        match check_action(self.globals, self.history, xid, action)? {
            Preview::Unchanged => {}
            Preview::Changes => self.carry_out(xid, action, operator),
        }
        Ok(Some(Reply::Operated(self.status(xid))))
    }

    fn carry_out(&mut self, xid: Xid, action: OperatorAction, operator: &str) {
        match action {
            OperatorAction::Retry => self.retry(xid, operator),
            OperatorAction::Pause => self.pause(xid, operator),
            OperatorAction::Resume => self.resume(xid, operator),
            OperatorAction::Resolve { branch, resolution } => {
                self.resolve(xid, branch, resolution, operator);
            }
        }
    }

    /// Calls every branch that may be called, refused ones too: the rows may have been put right.
    fn retry(&mut self, xid: Xid, operator: &str) {
        self.note_action(xid, &format!("retry by {operator}"));
        if let Some(global) = self.globals.get(xid) {
            // `due` would leave the refused branches out.
            let calls = global.next_branches().into_iter().filter_map(|it| global.call(it));
            self.on.out.effects.extend(calls.map(Effect::PhaseTwo));
        }
    }

    fn pause(&mut self, xid: Xid, operator: &str) {
        self.globals.change(xid, |global| global.extras_mut().paused = true);
        self.note_action(xid, &format!("pause by {operator}"));
        self.on.out.effects.push(Effect::Hold { xid, branch: None });
    }

    fn resume(&mut self, xid: Xid, operator: &str) {
        self.globals.change(xid, |global| global.extras_mut().paused = false);
        self.note_action(xid, &format!("resume by {operator}"));
        let due = self.globals.get(xid).into_iter().flat_map(Global::due);
        self.on.out.effects.extend(due.map(Effect::PhaseTwo));
    }

    fn resolve(&mut self, xid: Xid, id: BranchId, resolution: Resolution, operator: &str) {
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
    }

    fn note_action(&mut self, xid: Xid, what: &str) {
        let what = self.on.names.text_of(what);
        let events_max = self.on.limits.events_per_global_max;
        let event = Event { at: self.on.now, what, kind: EventKind::Acted };
        self.globals.change(xid, |global| global.note(event, events_max));
        self.put_global(xid);
    }
}

/// Returns what an operator's action would do to a global, or why it is refused.
pub(crate) fn check_action(
    globals: &GlobalTable,
    history: &History,
    xid: Xid,
    action: OperatorAction,
) -> Result<Preview, Rejection> {
    let Some(global) = globals.get(xid) else {
        let finished = history.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        return Err(not_applicable(xid, name_of(action), finished.status()));
    };
    let refused = |action| Err(not_applicable(xid, action, global.status()));
    match action {
        _ if global.phase == Phase::Active => refused(name_of(action)),
        OperatorAction::Retry if global.is_paused() => refused("retry of a paused global"),
        OperatorAction::Retry => Ok(Preview::Changes),
        OperatorAction::Pause => Ok(Preview::of_change(!global.is_paused())),
        OperatorAction::Resume => Ok(Preview::of_change(global.is_paused())),
        OperatorAction::Resolve { branch, resolution } => {
            check_resolution(global, branch, resolution)
        }
    }
}

fn check_resolution(
    global: &Global,
    id: BranchId,
    resolution: Resolution,
) -> Result<Preview, Rejection> {
    let xid = global.xid;
    let branch = global.branch(id).ok_or(Rejection::UnknownBranch { xid, branch: id })?;
    if resolution == Resolution::RestoreClean && branch.mode != Mode::At {
        return Err(not_applicable(xid, RESTORE_WITHOUT_ROWS, global.status()));
    }
    match branch.stage {
        BranchStage::Refused => Ok(Preview::Changes),
        BranchStage::Resolved(made) if made == resolution => Ok(Preview::Unchanged),
        BranchStage::Registered
        | BranchStage::Deciding
        | BranchStage::PhaseOneDone
        | BranchStage::Resolved(_)
        | BranchStage::Finished => {
            let action = "resolve of a branch that is not refused";
            Err(not_applicable(xid, action, global.status()))
        }
    }
}

fn not_applicable(xid: Xid, action: &'static str, status: GlobalStatus) -> Rejection {
    Rejection::NotApplicable { xid, action, status }
}

fn name_of(action: OperatorAction) -> &'static str {
    match action {
        OperatorAction::Retry => "retry",
        OperatorAction::Pause => "pause",
        OperatorAction::Resume => "resume",
        OperatorAction::Resolve { .. } => "resolve",
    }
}
