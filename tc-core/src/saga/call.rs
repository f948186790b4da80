//! The call that a step of a saga owes.

use std::sync::Arc;

use crate::contract::{
    CallTrace, Decision, Mode, PhaseTwoCall, SagaPart, SagaRecord, StepCall, StepDefinition,
    StepKind, StepOutput, StepRef,
};

impl SagaRecord {
    /// The call that a step owes, if it owes one.
    pub(crate) fn call(&self, step: StepRef) -> Option<PhaseTwoCall> {
        let definition = self.definition.steps.get(step.place())?;
        let record = self.steps.get(step.place())?;
        let decision = record.state.owes().filter(|_| definition.kind != StepKind::Signal)?;
        Some(PhaseTwoCall {
            xid: self.xid,
            address: self.address.clone(),
            branch: step.branch(),
            resource: definition.resource.clone(),
            mode: Mode::Saga,
            decision,
            resolution: None,
            application_data: (*definition.input).into(),
            attempts: record.attempts,
            step: Some(Arc::new(self.step_call(step, definition, decision))),
            // The coordinator begins steps itself.
            registered_by: None,
            trace: self.call_trace(),
        })
    }

    /// The spans that a call of any step follows from. It belongs under the client's span of the
    /// start: the coordinator's own may be lost with the process that answered the start, and the
    /// saga goes on.
    fn call_trace(&self) -> Option<Box<CallTrace>> {
        let started = self.trace.as_deref()?;
        Some(Box::new(CallTrace {
            parent: started.client,
            decided_at: self.begun_at,
            decision: Some(started.own_place()),
            registration: None,
        }))
    }

    fn step_call(
        &self,
        step: StepRef,
        definition: &StepDefinition,
        decision: Decision,
    ) -> StepCall {
        let own = (decision == Decision::RollBack).then_some(SagaPart::Step(step));
        let outputs = definition.takes.iter().copied().chain(own).filter_map(|taken| {
            let output = self.output(taken)?.clone();
            Some(StepOutput { step: self.definition.name_of(taken), output })
        });
        StepCall {
            saga: self.definition.name.clone(),
            key: self.key.clone(),
            step: self.definition.path(SagaPart::Step(step)),
            action: definition.action.clone(),
            kind: definition.kind,
            outputs: outputs.collect(),
            retry: definition.retry,
        }
    }
}
