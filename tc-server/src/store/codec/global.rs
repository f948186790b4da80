//! The stored form of a global, version 1. Field numbers are never used for anything else again.

use std::sync::Arc;

use handfast_core::{
    BranchId, Event, EventKind, FinishedBranch, GlobalRecord, GlobalState, Label, Labels,
    RollbackReason, Timestamp, Xid,
};

use super::fields::Fields;
use super::recurring::Recurring;
use super::trace::{read_global, write_place, write_request};
use super::{CodecError, mode, mode_number, unknown};

const ACTIVE: u32 = 1;
const COMMITTING: u32 = 2;
const COMMITTED: u32 = 3;
const ROLLING_BACK: u32 = 4;
const ROLLED_BACK: u32 = 5;

const DECIDED: u32 = 1;
const ACTED: u32 = 2;
const WAITED: u32 = 3;
const FAILED: u32 = 4;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredGlobal {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(string, tag = "2")]
    application: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(uint64, tag = "4")]
    begun_at: u64,
    #[prost(uint64, tag = "5")]
    deadline: u64,
    #[prost(uint32, tag = "6")]
    state: u32,
    /// Set for a rollback; 0 otherwise.
    #[prost(uint32, tag = "7")]
    reason: u32,
    /// Set for a finished global; 0 otherwise.
    #[prost(uint64, tag = "8")]
    finished_at: u64,
    #[prost(bool, tag = "9")]
    paused: bool,
    #[prost(bool, tag = "10")]
    rollback_only: bool,
    #[prost(message, repeated, tag = "11")]
    events: Vec<StoredEvent>,
    #[prost(message, repeated, tag = "12")]
    finished_branches: Vec<StoredFinishedBranch>,
    /// Earlier versions ignore them, like every field of a higher number.
    #[prost(message, repeated, tag = "13")]
    labels: Vec<StoredLabel>,
    #[prost(string, optional, tag = "14")]
    key: Option<String>,
    #[prost(bytes = "vec", optional, tag = "15")]
    transaction_trace: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "16")]
    decision_trace: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredLabel {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredEvent {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    what: String,
    /// 0 another one, 1 decided, 2 acted, 3 waited, 4 failed.
    #[prost(uint32, tag = "3")]
    kind: u32,
    /// Set for a wait.
    #[prost(uint64, tag = "4")]
    ms: u64,
    #[prost(uint64, tag = "5")]
    behind: u64,
    /// Set for a failed attempt.
    #[prost(uint32, tag = "6")]
    attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredFinishedBranch {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(uint32, tag = "3")]
    mode: u32,
    #[prost(uint64, tag = "4")]
    registered_at: u64,
    #[prost(uint64, tag = "5")]
    finished_at: u64,
    #[prost(uint32, tag = "6")]
    attempts: u32,
    /// 0 if it was not reported.
    #[prost(uint64, tag = "7")]
    phase_one_at: u64,
    #[prost(message, repeated, tag = "8")]
    events: Vec<StoredEvent>,
}

/// Writes what [`StoredGlobal`] reads.
pub(super) fn write(global: &GlobalRecord, fields: &mut Fields<'_>) {
    let (state, reason, finished_at) = state_numbers(global.state);
    fields.text(1, &global.address);
    fields.text(2, &global.application);
    fields.text(3, &global.name);
    fields.number(4, global.begun_at.0);
    fields.number(5, global.deadline.0);
    fields.number(6, state);
    fields.number(7, reason);
    fields.number(8, finished_at);
    fields.number(9, global.paused);
    fields.number(10, global.rollback_only);
    write_events(11, &global.events, fields);
    for branch in global.finished_branches.iter() {
        fields.message(12, |fields| write_finished_branch(branch, fields));
    }
    write_labels(13, &global.labels, fields);
    fields.optional(14, global.key.as_deref());
    if let Some(trace) = &global.trace {
        write_place(15, trace.transaction, fields);
        write_request(16, trace.decision, fields);
    }
}

pub(super) fn write_labels(tag: u32, labels: &Labels, fields: &mut Fields<'_>) {
    for label in labels.iter() {
        fields.message(tag, |fields| {
            fields.text(1, &label.name);
            fields.text(2, &label.value);
        });
    }
}

pub(super) fn read_labels(labels: Vec<StoredLabel>) -> Labels {
    labels.into_iter().map(|it| Label::new(it.name, it.value)).collect()
}

impl StoredGlobal {
    pub(super) fn read(
        self,
        xid: Xid,
        recurring: &mut Recurring,
    ) -> Result<GlobalRecord, CodecError> {
        let state = self.state()?;
        let transaction_trace = self.transaction_trace.as_deref();
        let trace = read_global(transaction_trace, self.decision_trace.as_deref())?;
        let finished = self.finished_branches.into_iter();
        let finished: Result<_, _> = finished.map(|branch| branch.read(recurring)).collect();
        let finished_branches = recurring.branches(finished?);
        Ok(GlobalRecord {
            xid,
            address: recurring.text(&self.address),
            application: recurring.text(&self.application),
            name: recurring.text(&self.name),
            begun_at: Timestamp(self.begun_at),
            deadline: Timestamp(self.deadline),
            state,
            paused: self.paused,
            rollback_only: self.rollback_only,
            events: recurring.events(self.events.into_iter().map(StoredEvent::read)),
            labels: read_labels(self.labels),
            key: self.key.map(Into::into),
            trace,
            finished_branches,
        })
    }

    fn state(&self) -> Result<GlobalState, CodecError> {
        let finished_at = Timestamp(self.finished_at);
        match self.state {
            ACTIVE => Ok(GlobalState::Active),
            COMMITTING => Ok(GlobalState::Committing),
            COMMITTED => Ok(GlobalState::Committed(finished_at)),
            ROLLING_BACK => Ok(GlobalState::RollingBack(reason(self.reason)?)),
            ROLLED_BACK => Ok(GlobalState::RolledBack(reason(self.reason)?, finished_at)),
            other => Err(unknown("state of a global", other)),
        }
    }
}

fn write_event(event: &Event, fields: &mut Fields<'_>) {
    fields.number(1, event.at.0);
    fields.text(2, &event.what);
    match event.kind {
        EventKind::Note => {}
        EventKind::Decided => fields.number(3, DECIDED),
        EventKind::Acted => fields.number(3, ACTED),
        EventKind::Waited { ms, behind } => {
            fields.number(3, WAITED);
            fields.number(4, ms);
            fields.number(5, behind.0);
        }
        EventKind::Failed { attempt } => {
            fields.number(3, FAILED);
            fields.number(6, attempt);
        }
    }
}

pub(super) fn write_events(tag: u32, events: &[Event], fields: &mut Fields<'_>) {
    for event in events {
        fields.message(tag, |fields| write_event(event, fields));
    }
}

pub(super) fn read_events(events: Vec<StoredEvent>) -> Arc<[Event]> {
    events.into_iter().map(StoredEvent::read).collect()
}

impl StoredEvent {
    pub(super) fn read(self) -> Event {
        let kind = match self.kind {
            DECIDED => EventKind::Decided,
            ACTED => EventKind::Acted,
            WAITED => EventKind::Waited { ms: self.ms, behind: Xid(self.behind) },
            FAILED => EventKind::Failed { attempt: self.attempt },
            // Kinds are for display alone: a later version may have more of them.
            _ => EventKind::Note,
        };
        Event { at: Timestamp(self.at), what: self.what.into(), kind }
    }
}

fn write_finished_branch(branch: &FinishedBranch, fields: &mut Fields<'_>) {
    fields.number(1, branch.id.0);
    fields.text(2, &branch.resource);
    fields.number(3, mode_number(branch.mode));
    fields.number(4, branch.registered_at.0);
    fields.number(5, branch.finished_at.0);
    fields.number(6, branch.attempts);
    fields.number(7, branch.phase_one_at.unwrap_or_default().0);
    write_events(8, &branch.events, fields);
}

impl StoredFinishedBranch {
    fn read(self, recurring: &mut Recurring) -> Result<FinishedBranch, CodecError> {
        Ok(FinishedBranch {
            id: BranchId(self.id),
            resource: recurring.text(&self.resource),
            mode: mode(self.mode)?,
            registered_at: Timestamp(self.registered_at),
            finished_at: Timestamp(self.finished_at),
            attempts: self.attempts,
            phase_one_at: read_phase_one_at(self.phase_one_at),
            events: recurring.events(self.events.into_iter().map(StoredEvent::read)),
        })
    }
}

/// Reads when phase one was reported done: 0 if it was not.
pub(super) fn read_phase_one_at(at: u64) -> Option<Timestamp> {
    (at > 0).then_some(Timestamp(at))
}

fn state_numbers(state: GlobalState) -> (u32, u32, u64) {
    match state {
        GlobalState::Active => (ACTIVE, 0, 0),
        GlobalState::Committing => (COMMITTING, 0, 0),
        GlobalState::Committed(at) => (COMMITTED, 0, at.0),
        GlobalState::RollingBack(reason) => (ROLLING_BACK, reason_number(reason), 0),
        GlobalState::RolledBack(reason, at) => (ROLLED_BACK, reason_number(reason), at.0),
    }
}

fn reason_number(reason: RollbackReason) -> u32 {
    match reason {
        RollbackReason::Requested => 1,
        RollbackReason::Timeout => 2,
        RollbackReason::BranchUnknown => 3,
        RollbackReason::Operator => 4,
        RollbackReason::Refused => 5,
    }
}

fn reason(number: u32) -> Result<RollbackReason, CodecError> {
    match number {
        1 => Ok(RollbackReason::Requested),
        2 => Ok(RollbackReason::Timeout),
        3 => Ok(RollbackReason::BranchUnknown),
        4 => Ok(RollbackReason::Operator),
        5 => Ok(RollbackReason::Refused),
        other => Err(unknown("rollback reason", other)),
    }
}
