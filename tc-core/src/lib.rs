//! The decisions of the Handfast transaction coordinator, without IO.
//!
//! [`Coordinator`] holds all state in memory. Requests go in, with the time; changed records and
//! effects come out. The driver stores the changes and then releases the effects, in order
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
//! connections, of storage, of retry pacing, and of leadership.
//!
//! # Example
//!
//! A global takes a row, commits, and its one branch carries the commit out.
//!
//! ```
//! use handfast_core::*;
//!
//! let mut coordinator = Coordinator::load(Epoch(1), "tc:7091".into(), Limits::default(), [])?;
//! let mut ask = |at: u64, command: Command| {
//!     let mut out = Outcome::default();
//!     let request = Request { reply_to: Some(Correlation(at)), command };
//!     coordinator.decide(Timestamp(at), request, &mut out);
//!     out
//! };
//!
//! let (application, name) = ("shop".into(), "place-order".into());
//! let labels = Labels::from_iter([Label::new("order", "42")]);
//! let (timeout_ms, key, loan) = (None, None, LoanTerms::default());
//! let begun = ask(1, Command::Begin { application, name, timeout_ms, labels, key, loan });
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
//! let registered = ask(2, Command::RegisterBranch { xid, branch, wait });
//! assert_eq!(registered.changes.len(), 2, "the global and its branch");
//!
//! let rounds = VotingRounds::PrepareOnly;
//! let (decision, by, reply_when) = (Decision::Commit, DecidedBy::Client, ReplyWhen::Decided);
//! let decided = ask(3, Command::End { xid, decision, rounds, by, reason: "".into(), reply_when });
//! assert!(decided.effects.contains(&Effect::Reply {
//!     to: Correlation(3),
//!     reply: Reply::Ended(GlobalStatus::Committing),
//!     when: After::Batch,
//! }));
//!
//! let (branch, outcome) = (BranchId(641), PhaseTwoOutcome::Done);
//! let finished = ask(4, Command::FinishPhaseTwo { xid, branch, decision, outcome });
//! let (to, reply, when) = (Correlation(4), Reply::Reported, After::Batch);
//! assert_eq!(finished.effects, [Effect::Reply { to, reply, when }]);
//! assert_eq!(coordinator.status(xid), GlobalStatus::Committed);
//! # Ok::<(), LoadError>(())
//! ```
#![warn(missing_docs)]

mod collections;
mod contract;
mod coordinator;
mod deadlock;
mod deadlock_log;
mod decision_context;
mod global;
mod id_generator;
mod invariant;
mod load;
mod named_lock;
mod operator;
mod restart;
mod row_lock;
mod saga;
mod shares;
mod tick;
mod waiting;

pub use contract::{
    After, Alert, AlertKind, Asker, BranchId, BranchRecord, BranchState, CallTrace, Change,
    ChildDefinition, ChildRef, ClientId, ClosureReason, ClosureRecord, Command, Correlation,
    Counts, Decided, DecidedBy, Decision, DeltaTag, DirtyColumn, DirtyRow, Effect, Epoch, Event,
    EventKind, FencingToken, FinishedBranch, GlobalRecord, GlobalState, GlobalStatus, GlobalTrace,
    Holding, Label, Labels, LeaseId, LeaseRecord, LentXid, Limits, LoadError, LoanTerms, LockHeld,
    LockMode, LockShare, LockToken, LockWait, Mode, NewBranch, NewLease, OperatorAction, Outcome,
    PhaseOneOutcome, PhaseTwoCall, PhaseTwoOutcome, Record, RecordKey, RefusedRows, Rejection,
    Reply, ReplyWhen, Request, RequestTrace, Resolution, Retry, RollbackReason, RowChange, RowLock,
    RowStanding, SagaDefinition, SagaFault, SagaPart, SagaRecord, SagaState, SagaStatus, ShareOf,
    SpanPlace, StatusKind, StepCall, StepDefinition, StepKind, StepOutput, StepRecord, StepRef,
    StepState, Timestamp, TracedCommand, TurnCause, VoteCall, VoteRequest, VotingRounds, Xid,
    XidLoan, XidText, XidTextError, display_row_key,
};
pub use coordinator::Coordinator;
pub use deadlock_log::{DeadlockMember, RefusedDeadlock};
pub use named_lock::view::{NamedLockView, NamedLockWaiter};
pub use operator::list::{GlobalFilter, ListOrder, LockCursor, LockFilter};
pub use operator::page::{Page, PageBounds};
pub use operator::preview::Preview;
pub use operator::saga::{SagaFilter, SagaSummary, SagaView};
pub use operator::view::{
    BranchView, GlobalPart, GlobalSummary, GlobalView, LockHolder, LockView, LockWaiter, SHOWN_MAX,
};
pub use operator::waits::{
    QueueCursor, WaitCursor, WaitEdge, WaitedFor, WaitingGlobal, WaitingRequest,
};
