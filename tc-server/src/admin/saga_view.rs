//! Translates sagas to the API's messages. Pure.
//!
//! Inputs and outputs are the application's: their lengths are bounded, in each answer together too
//! (BOUNDED).

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    BranchId, ChildDefinition, ChildRef, Event, SagaPart, SagaRecord, SagaStatus, SagaSummary,
    SagaView, StepDefinition, StepKind, StepRecord, StepRef, StepState, Timestamp, TurnCause,
    XidText,
};

use super::model::{
    EventKind, Failure, NextAttempt, NextAttemptState, Payload, SagaDetail, SagaOverview,
    SagaReply, SagaRetry, SagaStanding, SagaStep, SagaStepKind, SagaStepState, TimelineEntry,
};
use super::view;
use crate::dispatch::CallStanding;
use crate::time_format::rfc3339;

/// The bytes of all payloads in one answer.
const PAYLOADS_BYTES_MAX: usize = 1 << 20;

/// The choice of what is shown of a saga, and what the dispatcher knows of its calls.
#[derive(Debug)]
pub(super) struct Shown {
    /// The calls that are owed, by branch.
    pub(super) standings: BTreeMap<BranchId, CallStanding>,
    /// The only step that is to be shown.
    pub(super) step: Option<String>,
    /// The bytes that are shown of each payload.
    pub(super) payload_bytes: usize,
    pub(super) now: Timestamp,
}

pub(super) fn summary(saga: &SagaSummary, now: Timestamp) -> SagaOverview {
    let names = |names: &[Arc<str>]| names.iter().map(|name| name.to_string()).collect();
    SagaOverview {
        xid: XidText { address: &saga.address, xid: saga.xid }.to_string(),
        key: saga.key.to_string(),
        application: saga.application.to_string(),
        name: saga.name.to_string(),
        status: status(saga.status),
        cause: saga.cause.clone(),
        paused: saga.paused,
        begun_at: rfc3339(saga.begun_at),
        age_ms: now.0.saturating_sub(saga.begun_at.0),
        deadline: saga.deadline.map(rfc3339),
        ended_at: saga.ended_at.map(rfc3339),
        step_count: saga.steps,
        steps_done: saga.steps_done,
        under_way: names(&saga.under_way),
        awaits: names(&saga.awaits),
        labels: view::labels(&saga.labels),
    }
}

pub(super) fn detail(view: &SagaView, shown: &Shown) -> SagaDetail {
    let mut room = PAYLOADS_BYTES_MAX;
    let parts = view.record.definition.outline().into_iter();
    let is_wanted = |part: &SagaPart| {
        let name = view.record.definition.path(*part);
        shown.step.as_deref().is_none_or(|wanted| wanted == &*name)
    };
    SagaDetail {
        saga: summary(&view.summary(), shown.now),
        steps: parts.filter(is_wanted).map(|part| step(view, part, shown, &mut room)).collect(),
        timeline: timeline(&view.record),
    }
}

pub(super) fn reply(saga: &SagaRecord) -> SagaReply {
    SagaReply {
        xid: XidText { address: &saga.address, xid: saga.xid }.to_string(),
        key: saga.key.to_string(),
        status: status(saga.status()),
    }
}

fn step(view: &SagaView, part: SagaPart, shown: &Shown, room: &mut usize) -> SagaStep {
    let index = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
    let saga = &view.record;
    match part {
        SagaPart::Step(StepRef(place)) => {
            let definition = saga.definition.steps.get(index(place));
            let (definition, record) = definition
                .zip(saga.steps.get(index(place)))
                .expect("a part of the outline is a part of the saga, which has a record of it");
            own_step(view, StepRef(place), (definition, record), shown, room)
        }
        SagaPart::Child(ChildRef(place)) => {
            let definition = saga.definition.children.get(index(place));
            let definition = definition.expect("a part of the outline is a part of the saga");
            child(view, ChildRef(place), definition, shown, room)
        }
    }
}

fn own_step(
    view: &SagaView,
    place: StepRef,
    (definition, record): (&StepDefinition, &StepRecord),
    shown: &Shown,
    room: &mut usize,
) -> SagaStep {
    let saga = &view.record;
    let path = |part| saga.definition.path(part).to_string();
    let called = definition.kind != StepKind::Signal;
    let (retry, has_input) = (definition.retry, !definition.input.is_empty());
    SagaStep {
        name: path(SagaPart::Step(place)),
        within: definition.parent.map(|child| path(SagaPart::Child(child))),
        group: definition.group,
        kind: kind(definition.kind),
        state: state(record.state),
        branch: Some(place.branch().to_string()),
        resource: called.then(|| definition.resource.to_string()),
        action: called.then(|| definition.action.to_string()),
        saga: None,
        output_of: None,
        takes: definition.takes.iter().map(|&taken| path(taken)).collect(),
        retry: called.then_some(SagaRetry {
            base_ms: retry.base_ms,
            factor: retry.factor,
            cap_ms: retry.cap_ms,
            attempts: retry.attempts,
        }),
        timeout_ms: definition.timeout_ms,
        times_out_at: timeout(view, TurnCause::StepTimeout(place)),
        started_at: record.started_at.map(rfc3339),
        ended_at: record.ended_at.map(rfc3339),
        attempts: record.attempts,
        last_failure: record
            .last_failure
            .as_ref()
            .map(|(at, error)| Failure { at: rfc3339(*at), error: error.to_string() }),
        next_attempt: next_attempt(saga, place, record.state, called, shown),
        input: has_input.then(|| payload(&definition.input, shown, room)),
        output: record.output.as_ref().map(|output| payload(output, shown, room)),
    }
}

fn child(
    view: &SagaView,
    place: ChildRef,
    definition: &ChildDefinition,
    shown: &Shown,
    room: &mut usize,
) -> SagaStep {
    let saga = &view.record;
    let (part, path) = (SagaPart::Child(place), |part| saga.definition.path(part).to_string());
    SagaStep {
        name: path(part),
        within: definition.parent.map(|child| path(SagaPart::Child(child))),
        group: definition.group,
        kind: SagaStepKind::Child,
        state: state(saga.child_state(place)),
        branch: None,
        resource: None,
        action: None,
        saga: Some(definition.saga.to_string()),
        output_of: definition.output.map(path),
        takes: Vec::new(),
        retry: None,
        timeout_ms: definition.timeout_ms,
        times_out_at: timeout(view, TurnCause::ChildTimeout(place)),
        started_at: None,
        ended_at: None,
        attempts: 0,
        last_failure: None,
        next_attempt: None,
        input: None,
        output: saga.output(part).map(|output| payload(output, shown, room)),
    }
}

fn timeout(view: &SagaView, of: TurnCause) -> Option<String> {
    view.timeouts.iter().find(|(_, cause)| *cause == of).map(|(at, _)| rfc3339(*at))
}

fn next_attempt(
    saga: &SagaRecord,
    place: StepRef,
    state: StepState,
    called: bool,
    shown: &Shown,
) -> Option<NextAttempt> {
    let owes = match state {
        StepState::Running
        | StepState::RunningStuck
        | StepState::Compensating
        | StepState::CompensatingStuck => called,
        StepState::Waiting | StepState::Done | StepState::Failed | StepState::Compensated => false,
    };
    if !owes {
        return None;
    }
    let (state, at) = match shown.standings.get(&place.branch()) {
        _ if saga.paused => (NextAttemptState::Paused, None),
        Some(CallStanding::Parked) => (NextAttemptState::WaitsForProcess, None),
        Some(CallStanding::Delayed { until }) => (NextAttemptState::Due, Some(*until)),
        Some(CallStanding::Asked { until }) => (NextAttemptState::Asked, Some(*until)),
        // A call that has just been answered, or is about to be queued.
        Some(CallStanding::Due) | None => (NextAttemptState::Due, None),
    };
    Some(NextAttempt { state, at: at.map(rfc3339) })
}

/// Shows a payload as far as there is room for it.
fn payload(bytes: &[u8], shown: &Shown, room: &mut usize) -> Payload {
    let max = shown.payload_bytes.min(*room);
    let whole = bytes.len() <= max;
    let json = if whole { serde_json::from_slice(bytes).ok() } else { None };
    let visible = &bytes[..bytes.len().min(max)];
    *room -= visible.len();
    let text = json.is_none().then(|| String::from_utf8_lossy(visible).into_owned());
    Payload { bytes: bytes.len(), json, text, cut: !whole }
}

/// Returns the events of a saga and its steps, oldest first. Events of one millisecond are in
/// causal order.
fn timeline(saga: &SagaRecord) -> Vec<TimelineEntry> {
    let mut happened = vec![(saga.begun_at, EventKind::Begun, "begun".to_owned())];
    let noted = |event: &Event| (event.at, EventKind::Note, event.what.to_string());
    happened.extend(saga.events.iter().map(noted));
    for (place, record) in (0..).map(StepRef).zip(&saga.steps) {
        let name = saga.definition.path(SagaPart::Step(place));
        let started =
            record.started_at.map(|at| (at, EventKind::Note, format!("step {name}: begun")));
        let failed = record.last_failure.as_ref().map(|(at, error)| {
            let what = format!("step {name}: attempt {} failed: {error}", record.attempts);
            (*at, EventKind::AttemptFailed, what)
        });
        let ended = record
            .ended_at
            .map(|at| (at, EventKind::Note, format!("step {name}: {}", record.state)));
        happened.extend(started.into_iter().chain(failed).chain(ended));
    }
    happened.extend(saga.ended_at().map(|at| (at, EventKind::Ended, saga.status().to_string())));
    // A stable sort, because the events of one step were added in causal order.
    happened.sort_by_key(|(at, ..)| *at);
    let entry = |(at, kind, what)| TimelineEntry {
        at: rfc3339(at),
        what,
        kind,
        branch: None,
        ms: None,
        by: None,
    };
    happened.into_iter().map(entry).collect()
}

fn status(status: SagaStatus) -> SagaStanding {
    match status {
        SagaStatus::Running => SagaStanding::Running,
        SagaStatus::Completed => SagaStanding::Completed,
        SagaStatus::Compensating => SagaStanding::Compensating,
        SagaStatus::Compensated => SagaStanding::Compensated,
        SagaStatus::NeedsOperator => SagaStanding::NeedsOperator,
    }
}

pub(super) fn core_status(status: SagaStanding) -> SagaStatus {
    match status {
        SagaStanding::Running => SagaStatus::Running,
        SagaStanding::Completed => SagaStatus::Completed,
        SagaStanding::Compensating => SagaStatus::Compensating,
        SagaStanding::Compensated => SagaStatus::Compensated,
        SagaStanding::NeedsOperator => SagaStatus::NeedsOperator,
    }
}

fn kind(kind: StepKind) -> SagaStepKind {
    match kind {
        StepKind::Compensable => SagaStepKind::Compensable,
        StepKind::Harmless => SagaStepKind::Harmless,
        StepKind::Pivot => SagaStepKind::Pivot,
        StepKind::Retriable => SagaStepKind::Retriable,
        StepKind::Signal => SagaStepKind::Signal,
    }
}

fn state(state: StepState) -> SagaStepState {
    match state {
        StepState::Waiting => SagaStepState::Waiting,
        StepState::Running => SagaStepState::Running,
        StepState::RunningStuck => SagaStepState::RunningStuck,
        StepState::Done => SagaStepState::Done,
        StepState::Failed => SagaStepState::Failed,
        StepState::Compensating => SagaStepState::Compensating,
        StepState::CompensatingStuck => SagaStepState::CompensatingStuck,
        StepState::Compensated => SagaStepState::Compensated,
    }
}
