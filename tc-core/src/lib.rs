//! The decisions of the Handfast transaction coordinator, without IO.
//!
//! [`Coordinator`] holds all state in memory. Requests go in, with the time; changed records and
//! effects come out. Whoever drives it stores the changes and then lets the effects out, in order
//! (DURABLE-FIRST); after a crash, [`Coordinator::load`] makes the same coordinator from the
//! records.
//!
//! ```text
//!            Request ─▶ ┌─────────────┐ ─▶ Change  (to be stored first)
//!  Timestamp (its now)─▶│ Coordinator │
//!                       └─────────────┘ ─▶ Effect  (replies, phase-two calls)
//!            Record  ─▶ load
//! ```
//!
//! The core reads no clock, no random source, no environment and no hash order (PURE), and it
//! answers every request, a wrong one with a [`Rejection`] (TOTAL). It knows nothing of
//! connections, of storage, of retry pacing, and of who leads.
//!
//! # Example
//!
//! A global takes a row, commits, and its one branch carries the commit out.
//!
//! ```
//! use handfast_core::*;
//!
//! let mut coordinator = Coordinator::load(Epoch(1), "tc:7091".into(), Limits::default(), [])?;
//! let mut ask = |at: u64, what: What| {
//!     let mut out = Outcome::default();
//!     let request = Request { reply_to: Some(Correlation(at)), what };
//!     coordinator.decide(Timestamp(at), request, &mut out);
//!     out
//! };
//!
//! let (application, name) = ("shop".into(), "place-order".into());
//! let begun = ask(1, What::Begin { application, name, timeout_ms: None });
//! let Effect::Reply { reply: Reply::Begun { xid, .. }, .. } = begun.effects[0] else { panic!() };
//! assert!(begun.changes.is_empty(), "until its first branch a global need not survive");
//!
//! let row = RowLock { table: "item".into(), key: (*b"1:7").into(), mode: LockMode::Exclusive };
//! let branch = NewBranch {
//!     id: BranchId(641),
//!     resource: "postgres:7012/shop/public".into(),
//!     mode: Mode::At,
//!     rows: vec![row],
//!     application_data: Box::default(),
//!     registered_by: Some("0f9c".into()),
//! };
//! let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
//! let registered = ask(2, What::RegisterBranch { xid, branch, wait });
//! assert_eq!(registered.changes.len(), 2, "the global and its branch");
//!
//! let rounds = Rounds::PrepareOnly;
//! let (decision, by, reply_when) = (Decision::Commit, DecidedBy::Client, ReplyWhen::Decided);
//! let decided = ask(3, What::End { xid, decision, rounds, by, reason: "".into(), reply_when });
//! assert!(decided.effects.contains(&Effect::Reply {
//!     to: Correlation(3),
//!     reply: Reply::Status(GlobalStatus::Committing),
//! }));
//!
//! let (branch, outcome) = (BranchId(641), PhaseTwoOutcome::Done);
//! let finished = ask(4, What::FinishPhaseTwo { xid, branch, decision, outcome });
//! let (to, reply) = (Correlation(4), Reply::Reported);
//! assert_eq!(finished.effects, [Effect::Reply { to, reply }]);
//! assert_eq!(coordinator.status(xid), GlobalStatus::Committed);
//! # Ok::<(), LoadError>(())
//! ```
#![warn(missing_docs)]

mod branch;
mod by_xid;
mod coordinator;
mod counts;
mod deadlock;
mod end;
mod global;
mod globals;
mod gone;
mod held;
mod history;
mod id;
mod index;
mod invariant;
mod key;
mod lease;
mod limits;
mod list;
mod load;
mod lock;
mod name;
mod number;
mod operate;
mod outcome;
mod party;
mod people;
mod phase_two;
mod queue;
mod record;
mod register;
mod report;
mod request;
mod restart;
mod saga;
mod tick;
mod view;
mod vote;
mod wait;
mod xid_text;

pub use coordinator::Coordinator;
pub use counts::Counts;
pub use id::{BranchId, Correlation, Epoch, FencingToken, Timestamp, Xid};
pub use lease::{
    LeaseId, LeaseRecord, LockHeld, LockShare, LockToken, NamedLockView, NamedLockWaiter, NewLease,
};
pub use limits::Limits;
pub use list::{GlobalFilter, LockCursor, LockFilter, Page, PageBounds};
pub use load::LoadError;
pub use outcome::{
    Change, Effect, GlobalStatus, OperatorNeeded, Outcome, PhaseTwoCall, Rejection, Reply,
    RollbackReason, StatusKind, VoteCall,
};
pub use party::{Asker, ClientId, ShareOf};
pub use people::key_for_people;
pub use record::{
    BranchRecord, BranchState, Event, FinishedBranch, GlobalRecord, GlobalState, Record, RecordKey,
};
pub use request::{
    DecidedBy, Decision, DirtyColumn, DirtyRow, Holding, LockMode, LockWait, Mode, NewBranch,
    OperatorAction, PhaseOneOutcome, PhaseTwoOutcome, Question, RefusedRows, ReplyWhen, Request,
    Resolution, Rounds, RowChange, RowLock, RowStanding, What,
};
pub use saga::{
    ChildDefinition, ChildRef, Retry, SagaDefinition, SagaFault, SagaPart, SagaRecord, SagaState,
    SagaStatus, StepCall, StepDefinition, StepKind, StepOutput, StepRecord, StepRef, StepState,
    TurnCause,
};
pub use view::{
    BranchView, GlobalPart, GlobalSummary, GlobalView, LockHolder, LockView, LockWaiter, SHOWN_MAX,
};
pub use xid_text::{XidText, XidTextError};
