//! The decisions of the Handfast transaction coordinator.

mod id;
mod outcome;
mod record;
mod request;

use std::sync::Arc;

pub use id::{BranchId, Correlation, Epoch, FencingToken, Timestamp, Xid};
pub use outcome::{
    Change, Effect, GlobalStatus, Outcome, PhaseTwoCall, Rejection, Reply, RollbackReason,
};
pub use record::{
    BranchRecord, BranchState, Event, FinishedBranch, GlobalRecord, GlobalState, Record, RecordKey,
};
pub use request::{
    DecidedBy, Decision, DirtyColumn, DirtyRow, Grant, Holding, LockMode, LockWait, Mode,
    NewBranch, OperatorAction, PhaseOneOutcome, PhaseTwoOutcome, ReplyWhen, Request, Resolution,
    RowLock, What,
};

/// Bounds of the coordinator's state.
#[derive(Clone, Debug, Default)]
pub struct Limits {}

/// Records that do not fit together.
#[derive(Debug, thiserror::Error)]
#[error("records do not fit together")]
pub struct LoadError {}

/// All state of one coordinator.
#[derive(Debug)]
pub struct Coordinator {}

impl Coordinator {
    /// Gives back the coordinator that wrote the records (RECORDED).
    pub fn load(_: Epoch, _: Arc<str>, _: Limits, _: Vec<Record>) -> Result<Self, LoadError> {
        Ok(Self {})
    }
    /// Decides one request.
    pub fn decide(&mut self, _: Timestamp, _: Request, _: &mut Outcome) {}
    /// When the shell should send the next `Tick`.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }
    /// What phase two still owes.
    pub fn owed(&self, _: &mut Outcome) {}
}

pub(crate) fn key_for_people(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

pub(crate) fn cycle_for_people(cycle: &[(Xid, Arc<str>)]) -> String {
    cycle.iter().map(|(x, a)| format!("{a}:{x}")).collect::<Vec<_>>().join(" -> ")
}

impl std::fmt::Display for GlobalStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
