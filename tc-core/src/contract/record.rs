//! The stored form of the coordinator's state.
//!
//! One record per global, one per branch, one per saga with all its steps, one per lease; and a
//! closure if no coordinator may continue from the records. The lock table, the deadline set and
//! the resource index are rebuilt from them at load. How a record becomes bytes is the store's
//! business.

use std::sync::Arc;

use super::closure::ClosureRecord;
use super::event::Event;
use super::id::{BranchId, FencingToken, Timestamp, Xid};
use super::label::Labels;
use super::named_lock::{LeaseId, LeaseRecord};
use super::refused_rows::RefusedRows;
use super::request::{Mode, Resolution};
use super::row_lock::RowLock;
use super::saga_record::SagaRecord;
use super::status::RollbackReason;
use super::trace::{GlobalTrace, RequestTrace};

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A global, unfinished or remembered.
    Global(GlobalRecord),
    /// A branch of an unfinished global.
    Branch(BranchRecord),
    /// A saga, unfinished or remembered.
    Saga(SagaRecord),
    /// A lease of a named lock.
    Lease(LeaseRecord),
    /// A notice that no coordinator may continue from the records.
    Closure(ClosureRecord),
}

/// Where a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// A [`GlobalRecord`].
    Global(Xid),
    /// A [`BranchRecord`].
    Branch(Xid, BranchId),
    /// A [`SagaRecord`].
    Saga(Xid),
    /// A [`LeaseRecord`].
    Lease(LeaseId),
    /// The [`ClosureRecord`].
    Closure,
}

impl Record {
    /// Returns what [`Coordinator::load_in_order`](crate::Coordinator::load_in_order) wants records
    /// to be sorted by: a global is followed by its branches.
    #[must_use]
    pub fn place_to_load(&self) -> (Option<Xid>, bool) {
        match self {
            Self::Global(global) => (Some(global.xid), false),
            Self::Branch(branch) => (Some(branch.xid), true),
            Self::Saga(_) | Self::Lease(_) | Self::Closure(_) => (None, false),
        }
    }

    /// Where the record is stored.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Global(global) => RecordKey::Global(global.xid),
            Self::Branch(branch) => RecordKey::Branch(branch.xid, branch.id),
            Self::Saga(saga) => RecordKey::Saga(saga.xid),
            Self::Lease(lease) => RecordKey::Lease(lease.id),
            Self::Closure(_) => RecordKey::Closure,
        }
    }
}

/// A global transaction as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalRecord {
    /// Its id.
    pub xid: Xid,
    /// The address part of its text form, as it was when it began.
    pub address: Arc<str>,
    /// The application that began it.
    pub application: Arc<str>,
    /// The application's name for this kind of transaction.
    pub name: Arc<str>,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it is rolled back if still undecided.
    pub deadline: Timestamp,
    /// Where it stands.
    pub state: GlobalState,
    /// Whether phase two is held back by an operator.
    pub paused: bool,
    /// Whether a branch's unknown local outcome forbids a commit.
    pub rollback_only: bool,
    /// Decisions, operator actions and waits that were refused, oldest first; bounded.
    pub events: Arc<[Event]>,
    /// The labels that it was begun with.
    pub labels: Labels,
    /// The key by which a second begin finds it.
    pub key: Option<Arc<str>>,
    /// Where it stands in traces; none once it is finished.
    pub trace: Option<Box<GlobalTrace>>,
    /// Set when the global is finished: what became of its branches.
    pub finished_branches: Arc<[FinishedBranch]>,
}

/// Where a global stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalState {
    /// Undecided.
    Active,
    /// To be committed.
    Committing,
    /// Finished at the time given.
    Committed(Timestamp),
    /// To be rolled back.
    RollingBack(RollbackReason),
    /// Finished at the time given.
    RolledBack(RollbackReason, Timestamp),
}

/// A branch as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// Its global.
    pub xid: Xid,
    /// Its id.
    pub id: BranchId,
    /// Its place in the global's order of registration, from 0.
    pub sequence: u32,
    /// The resource that it runs on.
    pub resource: Arc<str>,
    /// Its mode.
    pub mode: Mode,
    /// The rows whose global locks it holds; empty once they are released.
    pub rows: Vec<RowLock>,
    /// The newest fencing token granted to it.
    pub token: FencingToken,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Handed back in phase two.
    pub application_data: Box<[u8]>,
    /// Where it stands.
    pub state: BranchState,
    /// Phase-two attempts that failed.
    pub attempts: u32,
    /// When the last attempt failed and why.
    pub last_failure: Option<(Timestamp, Arc<str>)>,
    /// The process that registered it; `None` where that is not known, as in old records.
    pub registered_by: Option<Arc<str>>,
    /// When phase one was reported done, if it was.
    pub phase_one_at: Option<Timestamp>,
    /// Waits for its rows and failed attempts at phase two, oldest first; bounded.
    pub events: Arc<[Event]>,
    /// Where its registration stands in a trace.
    pub trace: Option<Box<RequestTrace>>,
}

/// Where a branch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchState {
    /// Phase one runs, or has ended without a report.
    Registered,
    /// As registered, and its local commit decides the global, which is undecided until then.
    Deciding,
    /// Phase one is reported done.
    PhaseOneDone,
    /// Phase two is refused without an operator: the error and the rows of the branch.
    Refused(Arc<str>, Arc<RefusedRows>),
    /// An operator has said how phase two shall end.
    Resolved(Resolution),
    /// Phase two is carried out.
    Finished(Timestamp),
}

/// The memory that a finished global keeps of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedBranch {
    /// Its id.
    pub id: BranchId,
    /// The resource.
    pub resource: Arc<str>,
    /// Its mode.
    pub mode: Mode,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When phase two was carried out.
    pub finished_at: Timestamp,
    /// Phase-two attempts that failed before.
    pub attempts: u32,
    /// When phase one was reported done, if it was.
    pub phase_one_at: Option<Timestamp>,
    /// Waits for its rows and failed attempts at phase two, oldest first; bounded.
    pub events: Arc<[Event]>,
}
