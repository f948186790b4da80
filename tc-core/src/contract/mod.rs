//! The words of the coordinator: what goes in, what comes out, and what is stored.
//!
//! Plain values, with no decision in them. Every other module of the crate may use them; they use
//! none.

mod asker;
mod change_size;
mod closure;
mod counts;
mod display;
mod event;
mod id;
mod label;
mod limits;
mod load_error;
mod loan;
mod named_lock;
mod outcome;
mod record;
mod refused_rows;
mod rejection;
mod request;
mod row_lock;
mod saga_definition;
mod saga_record;
mod status;
mod trace;
mod xid_text;

pub use asker::{Asker, ClientId, ShareOf};
pub use closure::{ClosureReason, ClosureRecord};
pub(crate) use counts::Counted;
pub use counts::Counts;
pub use display::display_row_key;
pub(crate) use display::display_xid;
pub use event::{Event, EventKind};
pub(crate) use event::{noted, noted_of_branch};
pub use id::{BranchId, Correlation, Epoch, FencingToken, Timestamp, Xid};
pub(crate) use id::{COUNTER_BITS, EPOCH_MAX};
pub use label::{Label, Labels};
pub use limits::Limits;
pub use load_error::LoadError;
pub use loan::{LentXid, LoanTerms, XidLoan};
pub use named_lock::{LeaseId, LeaseRecord, LockHeld, LockShare, LockToken, NewLease};
pub use outcome::{
    After, Alert, AlertKind, Change, Decided, Effect, Outcome, PhaseTwoCall, Reply, VoteCall,
};
pub use record::{
    BranchRecord, BranchState, FinishedBranch, GlobalRecord, GlobalState, Record, RecordKey,
};
pub use refused_rows::{DirtyColumn, DirtyRow, RefusedRows, RowChange, RowStanding};
pub use rejection::Rejection;
pub use request::{
    Command, DecidedBy, Decision, Holding, LockWait, Mode, NewBranch, OperatorAction,
    PhaseOneOutcome, PhaseTwoOutcome, ReplyWhen, Request, Resolution, VoteRequest, VotingRounds,
};
pub use row_lock::{DeltaTag, LockMode, RowLock};
pub use saga_definition::{
    ChildDefinition, ChildRef, Retry, SagaDefinition, SagaFault, SagaPart, StepDefinition,
    StepKind, StepRef,
};
pub use saga_record::{
    SagaRecord, SagaState, SagaStatus, StepCall, StepOutput, StepRecord, StepState, TurnCause,
};
pub use status::{GlobalStatus, RollbackReason, StatusKind};
pub use trace::{CallTrace, GlobalTrace, RequestTrace, SpanPlace, TracedCommand};
pub use xid_text::{XidText, XidTextError};
