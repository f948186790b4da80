//! The stored form of a global, version 1. Field numbers are never used for anything else again.

use handfast_core::{
    BranchId, Event, FinishedBranch, GlobalRecord, GlobalState, RollbackReason, Timestamp, Xid,
};

use super::{CodecError, mode, mode_number, unknown};

const ACTIVE: u32 = 1;
const COMMITTING: u32 = 2;
const COMMITTED: u32 = 3;
const ROLLING_BACK: u32 = 4;
const ROLLED_BACK: u32 = 5;

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
    /// Of a rollback; 0 otherwise.
    #[prost(uint32, tag = "7")]
    reason: u32,
    /// Of a finished global; 0 otherwise.
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
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredEvent {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    what: String,
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
}

impl From<&GlobalRecord> for StoredGlobal {
    fn from(global: &GlobalRecord) -> Self {
        let (state, reason, finished_at) = state_numbers(global.state);
        Self {
            address: global.address.as_ref().to_owned(),
            application: global.application.as_ref().to_owned(),
            name: global.name.as_ref().to_owned(),
            begun_at: global.begun_at.0,
            deadline: global.deadline.0,
            state,
            reason,
            finished_at,
            paused: global.paused,
            rollback_only: global.rollback_only,
            events: global.events.iter().map(StoredEvent::from).collect(),
            finished_branches: global.finished_branches.iter().map(Into::into).collect(),
        }
    }
}

impl StoredGlobal {
    pub(super) fn read(self, xid: Xid) -> Result<GlobalRecord, CodecError> {
        let state = self.state()?;
        let finished = self.finished_branches.into_iter().map(StoredFinishedBranch::read);
        Ok(GlobalRecord {
            xid,
            address: self.address.into(),
            application: self.application.into(),
            name: self.name.into(),
            begun_at: Timestamp(self.begun_at),
            deadline: Timestamp(self.deadline),
            state,
            paused: self.paused,
            rollback_only: self.rollback_only,
            events: self.events.into_iter().map(StoredEvent::read).collect(),
            finished_branches: finished.collect::<Result<_, _>>()?,
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

impl From<&Event> for StoredEvent {
    fn from(event: &Event) -> Self {
        Self { at: event.at.0, what: event.what.as_ref().to_owned() }
    }
}

impl StoredEvent {
    fn read(self) -> Event {
        Event { at: Timestamp(self.at), what: self.what.into() }
    }
}

impl From<&FinishedBranch> for StoredFinishedBranch {
    fn from(branch: &FinishedBranch) -> Self {
        Self {
            id: branch.id.0,
            resource: branch.resource.as_ref().to_owned(),
            mode: mode_number(branch.mode),
            registered_at: branch.registered_at.0,
            finished_at: branch.finished_at.0,
            attempts: branch.attempts,
        }
    }
}

impl StoredFinishedBranch {
    fn read(self) -> Result<FinishedBranch, CodecError> {
        Ok(FinishedBranch {
            id: BranchId(self.id),
            resource: self.resource.into(),
            mode: mode(self.mode)?,
            registered_at: Timestamp(self.registered_at),
            finished_at: Timestamp(self.finished_at),
            attempts: self.attempts,
        })
    }
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
    }
}

fn reason(number: u32) -> Result<RollbackReason, CodecError> {
    match number {
        1 => Ok(RollbackReason::Requested),
        2 => Ok(RollbackReason::Timeout),
        3 => Ok(RollbackReason::BranchUnknown),
        4 => Ok(RollbackReason::Operator),
        other => Err(unknown("rollback reason", other)),
    }
}
