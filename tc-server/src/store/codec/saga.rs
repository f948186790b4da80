//! The stored form of a saga: version 1, and with children version 2. Field numbers are never used
//! for anything else again.

use std::sync::Arc;

use handfast_core::{
    ChildDefinition, ChildRef, Retry, SagaDefinition, SagaPart, SagaRecord, SagaState,
    StepDefinition, StepKind, StepRecord, StepRef, StepState, Timestamp, TurnCause, Xid,
};

use super::fields::Fields;
use super::global::{
    StoredEvent, StoredLabel, read_events, read_labels, write_events, write_labels,
};
use super::trace::{read_request, write_request};
use super::{CodecError, unknown};

const RUNNING: u32 = 1;
const COMPENSATING: u32 = 2;
const COMPLETED: u32 = 3;
const COMPENSATED: u32 = 4;

/// Added to the index of a child to tell it from a step.
const CHILDREN: u64 = 1 << 32;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredSaga {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(string, tag = "2")]
    application: String,
    #[prost(string, tag = "3")]
    key: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint64, optional, tag = "5")]
    timeout_ms: Option<u64>,
    #[prost(uint64, tag = "6")]
    begun_at: u64,
    #[prost(uint64, optional, tag = "7")]
    deadline: Option<u64>,
    #[prost(uint32, tag = "8")]
    state: u32,
    /// Set for a saga that is being or was compensated; 0 otherwise.
    #[prost(uint32, tag = "9")]
    cause: u32,
    /// The step or child that was the cause, if one was.
    #[prost(uint32, tag = "10")]
    cause_step: u32,
    /// Set for an ended saga; 0 otherwise.
    #[prost(uint64, tag = "11")]
    ended_at: u64,
    #[prost(bool, tag = "12")]
    paused: bool,
    #[prost(message, repeated, tag = "13")]
    steps: Vec<StoredStep>,
    #[prost(message, repeated, tag = "14")]
    events: Vec<StoredEvent>,
    #[prost(message, repeated, tag = "15")]
    children: Vec<StoredChild>,
    /// The last error of the step that was the cause.
    #[prost(string, optional, tag = "16")]
    cause_error: Option<String>,
    /// Earlier versions ignore them, like every field of a higher number.
    #[prost(message, repeated, tag = "17")]
    labels: Vec<StoredLabel>,
    #[prost(bytes = "vec", optional, tag = "18")]
    trace: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredChild {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    saga: String,
    #[prost(uint32, optional, tag = "3")]
    parent: Option<u32>,
    #[prost(uint32, tag = "4")]
    group: u32,
    #[prost(uint64, optional, tag = "5")]
    timeout_ms: Option<u64>,
    /// A part, as in `takes`.
    #[prost(uint64, optional, tag = "6")]
    output: Option<u64>,
}

/// A step's definition, followed by its state.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredStep {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    group: u32,
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(string, tag = "4")]
    resource: String,
    #[prost(string, tag = "5")]
    action: String,
    #[prost(bytes = "vec", tag = "6")]
    input: Vec<u8>,
    /// Parts: a step as its index, a child as its index plus `CHILDREN`.
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    takes: Vec<u64>,
    #[prost(uint64, tag = "8")]
    base_ms: u64,
    #[prost(uint32, tag = "9")]
    factor: u32,
    #[prost(uint64, tag = "10")]
    cap_ms: u64,
    #[prost(uint32, optional, tag = "11")]
    attempts_max: Option<u32>,
    #[prost(uint64, optional, tag = "12")]
    timeout_ms: Option<u64>,
    #[prost(uint32, tag = "13")]
    state: u32,
    #[prost(uint64, optional, tag = "14")]
    started_at: Option<u64>,
    #[prost(uint64, optional, tag = "15")]
    ended_at: Option<u64>,
    #[prost(uint32, tag = "16")]
    attempts: u32,
    /// Why the last attempt failed, if one did.
    #[prost(string, optional, tag = "17")]
    error: Option<String>,
    #[prost(uint64, tag = "18")]
    failed_at: u64,
    #[prost(bytes = "vec", optional, tag = "19")]
    output: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "20")]
    parent: Option<u32>,
}

/// Writes what [`StoredSaga`] reads.
pub(super) fn write(saga: &SagaRecord, fields: &mut Fields<'_>) {
    let (state, cause, ended_at) = state_numbers(saga.state);
    let (cause, cause_step) = cause.map_or((0, 0), cause_numbers);
    fields.text(1, &saga.address);
    fields.text(2, &saga.application);
    fields.text(3, &saga.key);
    fields.text(4, &saga.definition.name);
    fields.optional_number(5, saga.definition.timeout_ms);
    fields.number(6, saga.begun_at.0);
    fields.optional_number(7, saga.deadline.map(|at| at.0));
    fields.number(8, state);
    fields.number(9, cause);
    fields.number(10, cause_step);
    fields.number(11, ended_at);
    fields.number(12, saga.paused);
    for (definition, step) in saga.definition.steps.iter().zip(&saga.steps) {
        fields.message(13, |fields| {
            write_definition(definition, fields);
            write_step(step, fields);
            // This comes behind the fields of the step: `prost` writes fields in the order of
            // numbers.
            fields.optional_number(20, definition.parent.map(|parent| parent.0));
        });
    }
    write_events(14, &saga.events, fields);
    for child in &saga.definition.children {
        fields.message(15, |fields| write_child(child, fields));
    }
    if let Some(error) = &saga.cause_error {
        fields.item(16, error.as_bytes());
    }
    write_labels(17, &saga.labels, fields);
    write_request(18, saga.trace.as_deref().copied(), fields);
}

fn write_child(child: &ChildDefinition, fields: &mut Fields<'_>) {
    fields.text(1, &child.name);
    fields.text(2, &child.saga);
    fields.optional_number(3, child.parent.map(|parent| parent.0));
    fields.number(4, child.group);
    fields.optional_number(5, child.timeout_ms);
    fields.optional_number(6, child.output.map(part_number));
}

fn write_definition(step: &StepDefinition, fields: &mut Fields<'_>) {
    fields.text(1, &step.name);
    fields.number(2, step.group);
    fields.number(3, kind_number(step.kind));
    fields.text(4, &step.resource);
    fields.text(5, &step.action);
    fields.bytes(6, &step.input);
    for taken in &step.takes {
        // An item of a list is written also where it is 0, which is the first step.
        fields.optional_number(7, Some(part_number(*taken)));
    }
    fields.number(8, step.retry.base_ms);
    fields.number(9, step.retry.factor);
    fields.number(10, step.retry.cap_ms);
    fields.optional_number(11, step.retry.attempts);
    fields.optional_number(12, step.timeout_ms);
}

fn write_step(step: &StepRecord, fields: &mut Fields<'_>) {
    fields.number(13, step_number(step.state));
    fields.optional_number(14, step.started_at.map(|at| at.0));
    fields.optional_number(15, step.ended_at.map(|at| at.0));
    fields.number(16, step.attempts);
    if let Some((at, error)) = &step.last_failure {
        fields.item(17, error.as_bytes());
        fields.number(18, at.0);
    }
    if let Some(output) = &step.output {
        fields.item(19, output);
    }
}

impl StoredSaga {
    pub(super) fn read(self, xid: Xid) -> Result<SagaRecord, CodecError> {
        let state = self.state()?;
        let steps = self.steps.into_iter().map(StoredStep::read);
        let (definitions, steps) = steps.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let definition = SagaDefinition {
            name: self.name.into(),
            timeout_ms: self.timeout_ms,
            steps: definitions,
            children: self.children.into_iter().map(StoredChild::read).collect::<Result<_, _>>()?,
        };
        Ok(SagaRecord {
            xid,
            address: self.address.into(),
            application: self.application.into(),
            key: self.key.into(),
            definition: Arc::new(definition),
            begun_at: Timestamp(self.begun_at),
            deadline: self.deadline.map(Timestamp),
            state,
            cause_error: self.cause_error.map(Into::into),
            paused: self.paused,
            steps,
            events: read_events(self.events),
            labels: read_labels(self.labels),
            trace: self.trace.as_deref().map(read_request).transpose()?.map(Box::new),
        })
    }

    fn state(&self) -> Result<SagaState, CodecError> {
        let cause = || cause(self.cause, self.cause_step);
        let ended_at = Timestamp(self.ended_at);
        match self.state {
            RUNNING => Ok(SagaState::Running),
            COMPENSATING => Ok(SagaState::Compensating(cause()?)),
            COMPLETED => Ok(SagaState::Completed(ended_at)),
            COMPENSATED => Ok(SagaState::Compensated(cause()?, ended_at)),
            other => Err(unknown("state of a saga", other)),
        }
    }
}

impl StoredStep {
    fn read(self) -> Result<(StepDefinition, StepRecord), CodecError> {
        let failed_at = Timestamp(self.failed_at);
        let record = StepRecord {
            state: step_state(self.state)?,
            started_at: self.started_at.map(Timestamp),
            ended_at: self.ended_at.map(Timestamp),
            attempts: self.attempts,
            last_failure: self.error.map(|error| (failed_at, error.into())),
            output: self.output.map(Into::into),
        };
        let (base_ms, factor, cap_ms) = (self.base_ms, self.factor, self.cap_ms);
        let definition = StepDefinition {
            name: self.name.into(),
            parent: self.parent.map(ChildRef),
            group: self.group,
            kind: kind(self.kind)?,
            resource: self.resource.into(),
            action: self.action.into(),
            input: self.input.into(),
            takes: self.takes.into_iter().map(part).collect::<Result<_, _>>()?,
            retry: Retry { base_ms, factor, cap_ms, attempts: self.attempts_max },
            timeout_ms: self.timeout_ms,
        };
        Ok((definition, record))
    }
}

impl StoredChild {
    fn read(self) -> Result<ChildDefinition, CodecError> {
        Ok(ChildDefinition {
            name: self.name.into(),
            saga: self.saga.into(),
            parent: self.parent.map(ChildRef),
            group: self.group,
            timeout_ms: self.timeout_ms,
            output: self.output.map(part).transpose()?,
        })
    }
}

fn part_number(part: SagaPart) -> u64 {
    match part {
        SagaPart::Step(step) => u64::from(step.0),
        SagaPart::Child(child) => CHILDREN + u64::from(child.0),
    }
}

fn part(number: u64) -> Result<SagaPart, CodecError> {
    let place = u32::try_from(number % CHILDREN);
    match (number / CHILDREN, place) {
        (0, Ok(step)) => Ok(SagaPart::Step(StepRef(step))),
        (1, Ok(child)) => Ok(SagaPart::Child(ChildRef(child))),
        _ => Err(unknown("part of a saga", i64::try_from(number).unwrap_or(i64::MAX))),
    }
}

fn state_numbers(state: SagaState) -> (u32, Option<TurnCause>, u64) {
    match state {
        SagaState::Running => (RUNNING, None, 0),
        SagaState::Compensating(cause) => (COMPENSATING, Some(cause), 0),
        SagaState::Completed(at) => (COMPLETED, None, at.0),
        SagaState::Compensated(cause, at) => (COMPENSATED, Some(cause), at.0),
    }
}

fn cause_numbers(cause: TurnCause) -> (u32, u32) {
    match cause {
        TurnCause::Refused(step) => (1, step.0),
        TurnCause::Exhausted(step) => (2, step.0),
        TurnCause::StepTimeout(step) => (3, step.0),
        TurnCause::Timeout => (4, 0),
        TurnCause::Cancelled => (5, 0),
        TurnCause::Operator => (6, 0),
        TurnCause::ChildTimeout(child) => (7, child.0),
    }
}

fn cause(number: u32, place: u32) -> Result<TurnCause, CodecError> {
    let step = StepRef(place);
    match number {
        1 => Ok(TurnCause::Refused(step)),
        2 => Ok(TurnCause::Exhausted(step)),
        3 => Ok(TurnCause::StepTimeout(step)),
        4 => Ok(TurnCause::Timeout),
        5 => Ok(TurnCause::Cancelled),
        6 => Ok(TurnCause::Operator),
        7 => Ok(TurnCause::ChildTimeout(ChildRef(place))),
        other => Err(unknown("cause of a saga's turn", other)),
    }
}

fn kind_number(kind: StepKind) -> u32 {
    match kind {
        StepKind::Compensable => 1,
        StepKind::Harmless => 2,
        StepKind::Pivot => 3,
        StepKind::Retriable => 4,
        StepKind::Signal => 5,
    }
}

fn kind(number: u32) -> Result<StepKind, CodecError> {
    match number {
        1 => Ok(StepKind::Compensable),
        2 => Ok(StepKind::Harmless),
        3 => Ok(StepKind::Pivot),
        4 => Ok(StepKind::Retriable),
        5 => Ok(StepKind::Signal),
        other => Err(unknown("kind of a step", other)),
    }
}

fn step_number(state: StepState) -> u32 {
    match state {
        StepState::Waiting => 1,
        StepState::Running => 2,
        StepState::RunningStuck => 3,
        StepState::Done => 4,
        StepState::Failed => 5,
        StepState::Compensating => 6,
        StepState::CompensatingStuck => 7,
        StepState::Compensated => 8,
    }
}

fn step_state(number: u32) -> Result<StepState, CodecError> {
    match number {
        1 => Ok(StepState::Waiting),
        2 => Ok(StepState::Running),
        3 => Ok(StepState::RunningStuck),
        4 => Ok(StepState::Done),
        5 => Ok(StepState::Failed),
        6 => Ok(StepState::Compensating),
        7 => Ok(StepState::CompensatingStuck),
        8 => Ok(StepState::Compensated),
        other => Err(unknown("state of a step", other)),
    }
}
