//! Sagas between wire messages and the core's types, both ways.
//!
//! Sizes of names are checked here; what makes a saga impossible is the core's to refuse.

use std::sync::Arc;

use handfast_core::{
    DecidedBy, Retry, SagaDefinition, SagaRecord, SagaStatus, StepCall, StepDefinition, StepKind,
    StepRecord, StepRef, StepState, What,
};
use handfast_proto::v1 as wire;

use super::bounds::{BadRequest, Bounds, at_most_bytes};
use super::from_wire::{missing, present, reply_when};
use super::to_wire::xid_text;

impl Bounds {
    pub(super) fn start_saga(&self, request: wire::StartSagaRequest) -> Result<What, BadRequest> {
        self.name("application", &request.application)?;
        self.name("key", &request.key)?;
        let definition = request.definition.ok_or(missing("definition"))?;
        Ok(What::StartSaga {
            application: request.application.into(),
            key: present("key", request.key)?.into(),
            definition: Arc::new(self.definition(definition)?),
        })
    }

    pub(super) fn get_saga(&self, request: &wire::GetSagaRequest) -> Result<What, BadRequest> {
        let reply_when = reply_when(request.reply_when)?;
        Ok(What::GetSaga { xid: self.xid(&request.xid)?, reply_when })
    }

    pub(super) fn signal_saga(&self, request: wire::SignalSagaRequest) -> Result<What, BadRequest> {
        self.name("signal", &request.signal)?;
        at_most_bytes("payload", request.payload.len(), self.application_data_bytes_max)?;
        Ok(What::SignalSaga {
            xid: self.xid(&request.xid)?,
            signal: request.signal.into(),
            payload: request.payload.into(),
        })
    }

    pub(super) fn cancel_saga(
        &self,
        request: &wire::CancelSagaRequest,
    ) -> Result<What, BadRequest> {
        Ok(What::CancelSaga {
            xid: self.xid(&request.xid)?,
            by: DecidedBy::Client,
            reason: self.reason(&request.reason).into(),
        })
    }

    /// A definition, whose sizes are as they may be.
    pub(crate) fn definition(
        &self,
        wire: wire::SagaDefinition,
    ) -> Result<SagaDefinition, BadRequest> {
        self.name("saga name", &wire.name)?;
        let steps = wire.steps.into_iter().map(|step| self.step(step));
        Ok(SagaDefinition {
            name: present("saga name", wire.name)?.into(),
            timeout_ms: wire.timeout_ms,
            steps: steps.collect::<Result<_, _>>()?,
        })
    }

    fn step(&self, wire: wire::SagaStep) -> Result<StepDefinition, BadRequest> {
        self.name("step name", &wire.name)?;
        self.name("resource_id", &wire.resource_id)?;
        self.name("action", &wire.action)?;
        at_most_bytes("input", wire.input.len(), self.application_data_bytes_max)?;
        let retry = wire.retry.map_or(Retry::DEFAULT, |retry| Retry {
            base_ms: retry.base_ms,
            factor: retry.factor,
            cap_ms: retry.cap_ms,
            attempts: retry.attempts,
        });
        Ok(StepDefinition {
            kind: kind(wire.kind())?,
            name: wire.name.into(),
            group: wire.group,
            resource: wire.resource_id.into(),
            action: wire.action.into(),
            input: wire.input.into(),
            takes: wire.takes.into_iter().map(StepRef).collect(),
            retry,
            timeout_ms: wire.timeout_ms,
        })
    }
}

/// How a saga stands.
pub(super) fn reply(saga: &SagaRecord) -> wire::SagaReply {
    let steps = saga.definition.steps.iter().zip(&saga.steps);
    wire::SagaReply {
        xid: xid_text(&saga.address, saga.xid),
        key: saga.key.as_ref().to_owned(),
        name: saga.definition.name.as_ref().to_owned(),
        status: status(saga.status()).into(),
        cause: saga.cause().unwrap_or_default(),
        steps: steps.map(|(definition, step)| report(&definition.name, step)).collect(),
    }
}

/// What a participant is told of its step.
pub(super) fn call(step: &StepCall) -> wire::SagaStepCall {
    let outputs = step.outputs.iter().map(|given| wire::SagaOutput {
        step: given.step.as_ref().to_owned(),
        output: given.output.to_vec(),
    });
    wire::SagaStepCall {
        saga: step.saga.as_ref().to_owned(),
        key: step.key.as_ref().to_owned(),
        step: step.step.as_ref().to_owned(),
        action: step.action.as_ref().to_owned(),
        kind: kind_number(step.kind).into(),
        outputs: outputs.collect(),
    }
}

fn report(name: &str, step: &StepRecord) -> wire::SagaStepReport {
    let error = step.last_failure.as_ref().map(|(_, error)| error.as_ref().to_owned());
    wire::SagaStepReport {
        name: name.to_owned(),
        state: state(step.state).into(),
        attempts: step.attempts,
        error: error.unwrap_or_default(),
        output: step.output.as_ref().map(|output| output.to_vec()),
    }
}

fn kind(kind: wire::SagaStepKind) -> Result<StepKind, BadRequest> {
    match kind {
        wire::SagaStepKind::Compensable => Ok(StepKind::Compensable),
        wire::SagaStepKind::Harmless => Ok(StepKind::Harmless),
        wire::SagaStepKind::Pivot => Ok(StepKind::Pivot),
        wire::SagaStepKind::Retriable => Ok(StepKind::Retriable),
        wire::SagaStepKind::Signal => Ok(StepKind::Signal),
        wire::SagaStepKind::Unspecified => Err(missing("step kind")),
    }
}

fn kind_number(kind: StepKind) -> wire::SagaStepKind {
    match kind {
        StepKind::Compensable => wire::SagaStepKind::Compensable,
        StepKind::Harmless => wire::SagaStepKind::Harmless,
        StepKind::Pivot => wire::SagaStepKind::Pivot,
        StepKind::Retriable => wire::SagaStepKind::Retriable,
        StepKind::Signal => wire::SagaStepKind::Signal,
    }
}

fn status(status: SagaStatus) -> wire::SagaStatus {
    match status {
        SagaStatus::Running => wire::SagaStatus::Running,
        SagaStatus::Completed => wire::SagaStatus::Completed,
        SagaStatus::Compensating => wire::SagaStatus::Compensating,
        SagaStatus::Compensated => wire::SagaStatus::Compensated,
        SagaStatus::NeedsOperator => wire::SagaStatus::NeedsOperator,
    }
}

fn state(state: StepState) -> wire::SagaStepState {
    match state {
        StepState::Waiting => wire::SagaStepState::Waiting,
        StepState::Running => wire::SagaStepState::Running,
        StepState::RunningStuck => wire::SagaStepState::RunningStuck,
        StepState::Done => wire::SagaStepState::Done,
        StepState::Failed => wire::SagaStepState::Failed,
        StepState::Compensating => wire::SagaStepState::Compensating,
        StepState::CompensatingStuck => wire::SagaStepState::CompensatingStuck,
        StepState::Compensated => wire::SagaStepState::Compensated,
    }
}
