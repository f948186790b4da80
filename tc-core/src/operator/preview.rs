//! Previews of operators' actions, by the same checks with which these are carried out.

use crate::contract::{BranchId, Decision, OperatorAction, Rejection, StepState, Xid};
use crate::coordinator::Coordinator;
use crate::global::branch::BranchStage;
use crate::global::end::{Ending, ending};
use crate::global::operate::check_action;

/// The effect that an action would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preview {
    /// It would change the global or saga.
    Changes,
    /// Nothing: it was carried out before.
    Unchanged,
}

impl Preview {
    pub(crate) fn of_change(changes: bool) -> Self {
        if changes { Self::Changes } else { Self::Unchanged }
    }
}

impl Coordinator {
    /// Returns what an operator's action on a global or saga would do.
    ///
    /// # Errors
    ///
    /// Why it would be refused.
    pub fn preview_action(&self, xid: Xid, action: OperatorAction) -> Result<Preview, Rejection> {
        match self.sagas.get(xid) {
            Some(saga) => saga.check_action(action),
            None => check_action(&self.globals, &self.history, xid, action),
        }
    }

    /// Returns what an operator's rollback of a global would do.
    ///
    /// # Errors
    ///
    /// Why it would be refused.
    pub fn preview_rollback(&self, xid: Xid) -> Result<Preview, Rejection> {
        self.check_is_no_saga(xid)?;
        ending(&self.globals, &self.history, xid, Decision::RollBack).map(|ending| match ending {
            Ending::Undecided { .. } => Preview::Changes,
            Ending::DecidedAlike(_) => Preview::Unchanged,
        })
    }

    /// Returns the first refused branches of a global, or the steps of a saga that are stuck, and
    /// how many had to be looked at to find them.
    #[must_use]
    pub fn refused_branches(&self, xid: Xid, max: usize) -> (Vec<BranchId>, usize) {
        let mut scanned = 0;
        let global = self.globals.get(xid).filter(|global| global.refused > 0);
        let branches = global.into_iter().flat_map(|global| &global.branches);
        let refused = branches.inspect(|_| scanned += 1);
        let refused = refused.filter(|branch| branch.stage == BranchStage::Refused);
        let mut found: Vec<BranchId> = refused.map(|branch| branch.id).take(max).collect();
        if let Some(saga) = self.sagas.get(xid) {
            scanned += saga.steps.len();
            let stuck = saga.each().filter(|(_, _, step)| {
                matches!(step.state, StepState::RunningStuck | StepState::CompensatingStuck)
            });
            found.extend(stuck.map(|(place, ..)| place.branch()).take(max));
        }
        (found, scanned)
    }

    /// A saga has requests of its own, and is not decided as a global.
    pub(crate) fn check_is_no_saga(&self, xid: Xid) -> Result<(), Rejection> {
        let Some(saga) = self.sagas.get(xid) else { return Ok(()) };
        let action = "a decision about a saga (cancel it, or give its signals)";
        Err(Rejection::NotApplicable { xid, action, status: saga.global_status() })
    }
}
