//! The alerts for operators: as something happens, and as it stands in the records after a start.

use std::sync::Arc;

use crate::contract::{
    Alert, AlertKind, BranchId, SagaPart, SagaRecord, SagaState, StepKind, StepRef, StepState,
    TurnCause,
};
use crate::coordinator::Coordinator;
use crate::global::branch::BranchStage;
use crate::global::state::Global;

impl Coordinator {
    /// Returns the alerts whose causes stand, each as it was first raised, if the global or saga
    /// has not gone on since. A server that has just taken the lead raises them again.
    pub fn alerts(&self) -> impl Iterator<Item = Alert> + '_ {
        let of_globals = self.globals.iter().filter_map(Global::standing_alert);
        of_globals.chain(self.sagas.iter().flat_map(SagaRecord::standing_alerts))
    }
}

impl Global {
    /// The alert about a branch that refuses.
    pub(crate) fn alert(&self, id: BranchId) -> Option<Alert> {
        let branch = self.branch(id)?;
        let failure = branch.extras.as_ref().and_then(|extras| extras.last_failure.as_ref());
        Some(Alert {
            kind: AlertKind::NeedsOperator,
            xid: self.xid,
            address: Arc::clone(&self.origin.address),
            branch: id,
            resource: branch.resource().clone(),
            error: failure.map_or_else(|| Arc::from(""), |(_, error)| Arc::clone(error)),
            occasion: branch.attempts(),
            step: None,
            key: None,
        })
    }

    /// The alert about the branch that was the first to refuse.
    fn standing_alert(&self) -> Option<Alert> {
        if self.refused == 0 {
            return None;
        }
        let refused = self.branches.iter().filter(|it| it.stage == BranchStage::Refused);
        let first = refused.min_by_key(|branch| {
            let failure = branch.extras.as_ref().and_then(|extras| extras.last_failure.as_ref());
            (failure.map(|(at, _)| *at), branch.sequence)
        })?;
        self.alert(first.id)
    }
}

impl SagaRecord {
    /// The alert about a step.
    pub(crate) fn alert(&self, kind: AlertKind, step: StepRef) -> Alert {
        let (definition, record) =
            (&self.definition.steps[step.place()], &self.steps[step.place()]);
        let failure = record.last_failure.as_ref();
        // A step can be stuck twice: on its way forward, and on its way back.
        let is_on_its_way_back = record.state == StepState::CompensatingStuck;
        Alert {
            kind,
            xid: self.xid,
            address: Arc::clone(&self.address),
            branch: step.branch(),
            resource: Arc::clone(&definition.resource),
            error: failure.map_or_else(|| Arc::from(""), |(_, error)| Arc::clone(error)),
            occasion: u32::from(kind == AlertKind::NeedsOperator && is_on_its_way_back),
            step: Some(self.definition.path(SagaPart::Step(step))),
            key: Some(Arc::clone(&self.key)),
        }
    }

    /// The alert about a step that was given up, if that is why the saga is compensated. A signal
    /// that does not come in time is an answer, and no fault.
    pub(crate) fn given_up(&self) -> Option<Alert> {
        let SagaState::Compensating(cause) = self.state else { return None };
        let step = match cause {
            TurnCause::Exhausted(step) | TurnCause::StepTimeout(step) => step,
            TurnCause::Refused(_)
            | TurnCause::ChildTimeout(_)
            | TurnCause::Timeout
            | TurnCause::Cancelled
            | TurnCause::Operator => return None,
        };
        let is_called = self.definition.steps[step.place()].kind != StepKind::Signal;
        is_called.then(|| self.alert(AlertKind::StepGivenUp, step))
    }

    fn standing_alerts(&self) -> impl Iterator<Item = Alert> + use<> {
        let is_stuck = |step: &StepRef| {
            let state = self.steps[step.place()].state;
            matches!(state, StepState::RunningStuck | StepState::CompensatingStuck)
        };
        let stuck = self.each().map(|(step, ..)| step).find(is_stuck);
        let stuck = stuck.map(|step| self.alert(AlertKind::NeedsOperator, step));
        stuck.into_iter().chain(self.given_up())
    }
}
