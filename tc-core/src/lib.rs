//! The decisions of the Handfast transaction coordinator, without IO.
#![warn(missing_docs)]

mod branch;
mod coordinator;
mod counts;
mod deadlock;
mod end;
mod global;
mod globals;
mod history;
mod id;
mod index;
mod invariant;
mod limits;
mod load;
mod lock;
mod name;
mod number;
mod operate;
mod outcome;
mod people;
mod phase_two;
mod queue;
mod record;
mod register;
mod report;
mod request;
mod tick;
mod view;
mod wait;
mod xid_text;

pub use coordinator::Coordinator;
pub use counts::Counts;
pub use id::{BranchId, Correlation, Epoch, FencingToken, Timestamp, Xid};
pub use limits::Limits;
pub use load::LoadError;
pub use outcome::{
    Change, Effect, GlobalStatus, Outcome, PhaseTwoCall, Rejection, Reply, RollbackReason,
    StatusKind,
};
pub use people::key_for_people;
pub use record::{
    BranchRecord, BranchState, Event, FinishedBranch, GlobalRecord, GlobalState, Record, RecordKey,
};
pub use request::{
    DecidedBy, Decision, DirtyColumn, DirtyRow, Holding, LockMode, LockWait, Mode, NewBranch,
    OperatorAction, PhaseOneOutcome, PhaseTwoOutcome, ReplyWhen, Request, Resolution, RowLock,
    What,
};
pub use view::{
    GlobalFilter, GlobalSummary, GlobalView, LockCursor, LockFilter, LockHolder, LockView,
    LockWaiter,
};
pub use xid_text::{XidText, XidTextError};
