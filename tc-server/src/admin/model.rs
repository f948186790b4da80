//! The admin API's messages, which the server writes and the command line reads.
//!
//! Ids are strings: a branch id has 63 bits, and many JSON readers keep only 53. Points in time are
//! RFC 3339 in UTC. Durations are in milliseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod audit;
mod bulk;
mod cluster;
mod event;
mod live;
mod named_lock;
mod query;
mod recent;
mod refusal;
mod saga;
mod sign_in;
mod timeline;
mod wait;

pub use audit::{AuditLine, AuditPage, AuditQuery};
pub use bulk::{BulkAction, BulkItem, BulkOutcome, BulkReply, BulkRequest};
pub use cluster::{Cluster, ClusterNode, NodeStanding, SeenClusterNode, TransferReply};
pub use event::{
    EventOutcome, EventPage, EventQuery, EventReply, OutboxLane, OutboxRelay, ParkedEvent,
};
pub use live::LiveQuery;
pub use named_lock::{
    Lease, NamedLock, NamedLockPage, NamedLockQuery, NamedLockWaiter, OneNamedLockQuery,
    ReleaseReply, ReleaseRequest,
};
pub use query::{
    BranchQuery, ListOrder, LockQuery, LockQueueQuery, OneLockQuery, TransactionQuery,
    WaitGraphQuery,
};
pub use recent::{Recent, RecentStep, Timing};
pub use refusal::{
    DirtyColumn, DirtyRow, EventFate, HeldEvents, Refusal, Resolution, ResolveRequest, RowChange,
    RowStanding,
};
pub use saga::{
    NextAttempt, NextAttemptState, OneSagaQuery, Payload, SagaDetail, SagaOverview, SagaPage,
    SagaQuery, SagaReply, SagaRetry, SagaStanding, SagaStep, SagaStepKind, SagaStepState,
    SignalRequest, StartSagaRequest,
};
pub use sign_in::{AdminRole, Me, SignInRequest};
pub use timeline::{EventKind, TimelineEntry, Timer, TimerKind};
pub use wait::{
    Deadlock, DeadlockMember, Deadlocks, LockQueuePage, LockWait, WaitEdge, WaitGraph, WaitNode,
    WaitTarget,
};

/// The status of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Status {
    /// Undecided.
    Active,
    /// Decided, branches to be finished.
    Committing,
    /// Finished.
    Committed,
    /// Decided, branches to be finished.
    RollingBack,
    /// Finished.
    RolledBack,
    /// Rolling back, and a branch refuses until an operator resolves it.
    NeedsOperator,
}

/// Why a global is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RollbackReason {
    /// The application asked for it.
    Requested,
    /// Its time ran out.
    Timeout,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// An operator asked for it.
    Operator,
    /// A participant refuses to prepare.
    Refused,
}

/// A global transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Transaction {
    /// Its id, `{address}:{number}`.
    pub xid: String,
    /// The application that began it.
    pub application: String,
    /// The application's name for this kind of transaction.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// The reason, if it is being or was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_reason: Option<RollbackReason>,
    /// An operator has paused phase two.
    pub paused: bool,
    /// A branch's unknown local outcome forbids a commit.
    pub rollback_only: bool,
    /// When it began.
    pub begun_at: String,
    /// Time since it began.
    pub age_ms: u64,
    /// When it is rolled back if still undecided.
    pub deadline: String,
    /// When its last branch was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// How many branches it has.
    pub branch_count: usize,
    /// Names and values that the application calls it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One page of transactions in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransactionPage {
    /// At most `limit` items; perhaps none, although the list continues.
    pub items: Vec<Transaction>,
    /// The `cursor` of the following page, if there may be one: where a search takes long, or an
    /// item is large, a page is short.
    pub next: Option<String>,
}

/// A transaction in detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransactionDetail {
    /// The transaction.
    #[serde(flatten)]
    pub transaction: Transaction,
    /// Its branches in the order of registration, as many as one answer shows.
    pub branches: Vec<Branch>,
    /// The events of these branches and, with the first branches, of the transaction, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Its requests that wait for rows, the first 32.
    #[serde(default)]
    pub waits: Vec<LockWait>,
    /// Its timers: its deadline, and the next attempts at phase two, the first 100.
    #[serde(default)]
    pub to_come: Vec<Timer>,
    /// The `cursor` of its further branches, if there are any.
    #[serde(default)]
    pub next: Option<String>,
}

/// The mode of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Images and undo log.
    At,
    /// Try, confirm, cancel.
    Tcc,
    /// Two-phase commit of the resource itself.
    Xa,
    /// Actions and compensations.
    Saga,
    /// Asked to prepare when the transaction is to be committed.
    TwoPhase,
}

/// The state of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchState {
    /// Phase one runs, or has ended without a report.
    Registered,
    /// As registered, and its local commit decides the transaction.
    Deciding,
    /// Phase one is reported done.
    PhaseOneDone,
    /// Phase two is refused until an operator resolves it.
    Refused,
    /// An operator has chosen how phase two ends.
    Resolved,
    /// Phase two is done.
    Finished,
}

/// A branch of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Branch {
    /// Its id within the transaction.
    pub id: String,
    /// The resource that it runs on.
    pub resource: String,
    /// Its mode.
    pub mode: Mode,
    /// Its state.
    pub state: BranchState,
    /// The rows whose global locks it holds, at most 100.
    pub rows: Vec<Row>,
    /// The number of these rows.
    #[serde(default)]
    pub row_count: usize,
    /// When it was registered.
    pub registered_at: String,
    /// When phase one was reported done, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_one_at: Option<String>,
    /// When phase two was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Phase-two attempts that failed.
    pub attempts: u32,
    /// The last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// Why phase two is refused, with the dirty rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// How an operator ended the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// When.
    pub at: String,
    /// Why.
    pub error: String,
}

/// A locked row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Row {
    /// The table, as the database's catalogue spells it.
    pub table: String,
    /// The key for display: its parts joined by a comma.
    pub key: String,
    /// The key as it is locked: `{length}:{text}` for each part.
    pub canonical_key: String,
    /// How it is locked.
    pub mode: LockMode,
}

/// The mode of a global lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// Compatible with shared ones of other transactions.
    Shared,
    /// Compatible with those of other transactions whose changes of the row commute with these.
    Delta,
    /// Compatible with nothing of another transaction.
    Exclusive,
}

/// A row that is locked, or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lock {
    /// The resource that the row belongs to.
    pub resource: String,
    /// The table.
    pub table: String,
    /// The key, for operators.
    pub key: String,
    /// The key as it is locked.
    pub canonical_key: String,
    /// The holders: one exclusive, or several shared or delta; at most 100.
    pub holders: Vec<LockHolder>,
    /// How many branches hold it.
    #[serde(default)]
    pub holding: usize,
    /// The waiting requests in the order of arrival, at most 100.
    pub queue: Vec<LockWaiter>,
    /// How many requests wait.
    #[serde(default)]
    pub waiting: usize,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockHolder {
    /// The transaction.
    pub xid: String,
    /// The mode of its lock.
    pub mode: LockMode,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
}

/// A request that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockWaiter {
    /// The transaction; none for a read outside one.
    pub xid: Option<String>,
    /// The mode it requests.
    pub mode: LockMode,
    /// Whether it will take the row; a check goes on without it.
    #[serde(default = "takes")]
    pub takes: bool,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// When it is refused.
    #[serde(default)]
    pub deadline: String,
}

/// Returns the default for an earlier coordinator's answer: nearly all requests take their rows.
fn takes() -> bool {
    true
}

/// One page of locks, those of the oldest transaction first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockPage {
    /// At most `limit`; perhaps none, although the list goes on.
    pub items: Vec<Lock>,
    /// The `cursor` of the following page, if there may be one: where a search takes long, or an
    /// item is large, a page is short.
    pub next: Option<String>,
}

/// A resource on which branches run: a connected process serves it, or phase two on it is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resource {
    /// Its id.
    pub id: String,
    /// Product, host and database, for display; empty while no process serves it.
    pub label: String,
    /// The mode it is used in.
    pub mode: Mode,
    /// Connected processes that can execute its phase two.
    pub processes: usize,
    /// Branches whose phase two waits for a process or for its next attempt.
    pub waiting_branches: usize,
    /// Branches for which a process was called and has not answered.
    pub asked_branches: usize,
}

/// A connected client process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientProcess {
    /// Unique per process life.
    pub client_id: String,
    /// The application that it belongs to.
    pub application: String,
    /// Library name and version.
    pub agent: String,
    /// Its network address.
    pub peer: String,
    /// When it connected.
    pub connected_at: String,
    /// Branches for which it was called and has not answered.
    pub asked_branches: usize,
    /// The resources for which it can execute phase two, at most 100.
    pub resources: Vec<String>,
    /// The number of its resources.
    #[serde(default)]
    pub resource_count: usize,
}

/// All resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    /// In the order of their ids; at most 1,000.
    pub items: Vec<Resource>,
    /// The number of known resources.
    #[serde(default)]
    pub count: usize,
}

/// All connected processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Processes {
    /// The longest connected first; at most 1,000.
    pub items: Vec<ClientProcess>,
    /// The number of connected processes.
    #[serde(default)]
    pub count: usize,
}

/// The status of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// The server's version.
    pub version: String,
    /// The store that keeps the records.
    pub store: String,
    /// The address in the text form of XIDs.
    pub advertised_address: String,
    /// When the server started.
    pub started_at: String,
    /// Time since then.
    pub uptime_ms: u64,
    /// Undecided transactions.
    pub active: usize,
    /// Transactions being committed.
    pub committing: usize,
    /// Transactions being rolled back, those that need an operator aside.
    pub rolling_back: usize,
    /// Transactions that need an operator.
    pub needs_operator: usize,
    /// Finished transactions that are remembered.
    pub remembered: usize,
    /// Global locks held.
    pub locks: usize,
    /// Requests waiting for global locks.
    pub waiters: usize,
    /// Branches whose phase two is decided and not done, without those that are refused, and last
    /// branches that are asked whether they have committed.
    pub pending_branches: usize,
    /// Connected processes.
    pub processes: usize,
    /// Relays of outboxes that report.
    #[serde(default)]
    pub relays: usize,
    /// Events that these relays report as parked.
    #[serde(default)]
    pub parked_events: u64,
}

/// The reason for an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionRequest {
    /// For the timeline and the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

/// The answer to an action that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionReply {
    /// The transaction.
    pub xid: String,
    /// Its status after the action.
    pub status: Status,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The stable code, listed in docs/errors.md.
    pub code: String,
    /// The failure and what to do about it.
    pub message: String,
}
