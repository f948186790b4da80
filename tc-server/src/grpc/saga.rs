//! Sagas between wire messages and the core's types, both ways; `saga_definition` reads
//! definitions.
//!
//! Sizes of names are checked here; the core refuses an impossible saga.

use std::sync::Arc;

use handfast_core::{
    ChildRef, Command, DecidedBy, SagaPart, SagaRecord, SagaStatus, StepCall, StepKind, StepState,
    Xid,
};
use handfast_proto::v1 as wire;

use super::bounds::{BadRequest, at_most_bytes};
use super::decoder::Decoder;
use super::from_wire::{missing, present, reply_when};
use super::to_wire::xid_text;

impl Decoder {
    /// Converts the start of a saga, which operators ask for too.
    pub(crate) fn start_saga(
        &self,
        request: wire::StartSagaRequest,
    ) -> Result<Command, BadRequest> {
        self.name("application", &request.application)?;
        self.name("key", &request.key)?;
        let definition = request.definition.ok_or(missing("definition"))?;
        Ok(Command::StartSaga {
            application: request.application.into(),
            key: present("key", request.key)?.into(),
            definition: Arc::new(self.definition(definition)?),
            labels: self.labels(request.labels)?,
        })
    }

    pub(super) fn get_saga(&self, request: &wire::GetSagaRequest) -> Result<Command, BadRequest> {
        let reply_when = reply_when(request.reply_when)?;
        Ok(Command::GetSaga { xid: self.xid(&request.xid)?, reply_when })
    }

    pub(super) fn signal_saga(
        &self,
        request: wire::SignalSagaRequest,
    ) -> Result<Command, BadRequest> {
        let xid = self.xid(&request.xid)?;
        self.signal(xid, request.signal, request.payload, None)
    }

    /// Returns the signal of an application, or of the operator that is named.
    pub(crate) fn signal(
        &self,
        xid: Xid,
        signal: String,
        payload: Vec<u8>,
        operator: Option<Arc<str>>,
    ) -> Result<Command, BadRequest> {
        self.name("signal", &signal)?;
        at_most_bytes("payload", payload.len(), self.bounds.application_data_bytes_max)?;
        let (signal, payload) = (signal.into(), payload.into());
        Ok(Command::SignalSaga { xid, signal, payload, operator })
    }

    pub(super) fn cancel_saga(
        &self,
        request: &wire::CancelSagaRequest,
    ) -> Result<Command, BadRequest> {
        Ok(Command::CancelSaga {
            xid: self.xid(&request.xid)?,
            by: DecidedBy::Client,
            reason: self.reason(&request.reason).into(),
        })
    }
}

/// How a saga stands.
pub(super) fn reply(saga: &SagaRecord) -> wire::SagaReply {
    let parts = saga.definition.outline().into_iter();
    wire::SagaReply {
        xid: xid_text(&saga.address, saga.xid),
        key: saga.key.as_ref().to_owned(),
        name: saga.definition.name.as_ref().to_owned(),
        status: status(saga.status()).into(),
        cause: saga.cause().unwrap_or_default(),
        steps: parts.map(|part| report(saga, part)).collect(),
    }
}

/// Returns the part of a call that describes the step.
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

fn report(saga: &SagaRecord, part: SagaPart) -> wire::SagaStepReport {
    let step = match part {
        SagaPart::Step(step) => step,
        SagaPart::Child(child) => return report_of_child(saga, child),
    };
    let record = saga.steps.get(step.0 as usize).cloned().unwrap_or_default();
    let error = record.last_failure.as_ref().map(|(_, error)| error.as_ref().to_owned());
    wire::SagaStepReport {
        name: saga.definition.path(part).as_ref().to_owned(),
        state: state(record.state).into(),
        attempts: record.attempts,
        error: error.unwrap_or_default(),
        output: record.output.map(|output| output.to_vec()),
    }
}

fn report_of_child(saga: &SagaRecord, child: ChildRef) -> wire::SagaStepReport {
    let part = SagaPart::Child(child);
    wire::SagaStepReport {
        name: saga.definition.path(part).as_ref().to_owned(),
        state: state(saga.child_state(child)).into(),
        output: saga.output(part).map(|output| output.to_vec()),
        ..wire::SagaStepReport::default()
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
