//! The admin API's messages, as the server writes and the command line reads them.
//!
//! Ids are strings: a branch id has 63 bits, and many JSON readers keep 53. Points in time are RFC
//! 3339 in UTC, durations are milliseconds.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod named_lock;
mod query;
mod refusal;

pub use named_lock::{
    Lease, NamedLock, NamedLockPage, NamedLockQuery, NamedLockWaiter, OneNamedLockQuery,
    ReleaseReply, ReleaseRequest,
};
pub use query::{BranchQuery, LockQuery, OneLockQuery, TransactionQuery};
pub use refusal::{
    DirtyColumn, DirtyRow, EventFate, HeldEvents, Refusal, Resolution, ResolveRequest, RowChange,
    RowStanding,
};

/// How a global stands.
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
    /// Rolling back, and a branch refuses without a person.
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
    /// What the application calls this kind of transaction.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// Why, if it is or was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_reason: Option<RollbackReason>,
    /// Phase two is held back by an operator.
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
}

/// One page of transactions, youngest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransactionPage {
    /// At most `limit`; perhaps none, although the list goes on.
    pub items: Vec<Transaction>,
    /// The `cursor` of the following page, if there may be one: where a search takes long, or an
    /// item is large, a page is short.
    pub next: Option<String>,
}

/// A transaction with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransactionDetail {
    /// The transaction.
    #[serde(flatten)]
    pub transaction: Transaction,
    /// Its branches in the order of registration, as many as one answer shows.
    pub branches: Vec<Branch>,
    /// What happened to these branches, and to the transaction where they are its first, oldest
    /// first.
    pub timeline: Vec<TimelineEntry>,
    /// The `cursor` of its further branches, if there are any.
    #[serde(default)]
    pub next: Option<String>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When.
    pub at: String,
    /// What.
    pub what: String,
}

/// How a branch takes part.
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

/// Where a branch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchState {
    /// Phase one runs, or has ended without a report.
    Registered,
    /// Phase one is reported done.
    PhaseOneDone,
    /// Phase two is refused without a person.
    Refused,
    /// A person has said how phase two shall end.
    Resolved,
    /// Phase two is carried out.
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
    /// Where it stands.
    pub state: BranchState,
    /// The rows whose global locks it holds; at most 100 of them.
    pub rows: Vec<Row>,
    /// How many they are.
    #[serde(default)]
    pub row_count: usize,
    /// When it was registered.
    pub registered_at: String,
    /// When phase two was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Phase-two attempts that failed.
    pub attempts: u32,
    /// The last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// Why phase two is refused, with the rows in the way.
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

/// A row's place in its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Row {
    /// The table, as the database's catalogue spells it.
    pub table: String,
    /// The key, for people: its parts joined by a comma.
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
    /// The key, for people.
    pub key: String,
    /// The key as it is locked.
    pub canonical_key: String,
    /// Who holds it: one exclusively, or several shared; at most 100 of them.
    pub holders: Vec<LockHolder>,
    /// How many branches hold it.
    #[serde(default)]
    pub holding: usize,
    /// Who waits, first come first; at most 100 of them.
    pub queue: Vec<LockWaiter>,
    /// How many requests wait.
    #[serde(default)]
    pub waiting: usize,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockHolder {
    /// The transaction.
    pub xid: String,
    /// How it holds it.
    pub mode: LockMode,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
}

/// Who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockWaiter {
    /// The transaction; none for a read outside one.
    pub xid: Option<String>,
    /// How it wants it.
    pub mode: LockMode,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
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

/// Something that branches run on: a connected process serves it, or phase two on it is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resource {
    /// Its id.
    pub id: String,
    /// For people: product, host and database; empty while no process serves it.
    pub label: String,
    /// The mode it is used in.
    pub mode: Mode,
    /// Connected processes that can carry out its phase two.
    pub processes: usize,
    /// Branches whose phase two waits for a process or for its next attempt.
    pub waiting_branches: usize,
    /// Branches that a process was asked to finish and has not answered for.
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
    /// Since when it is connected.
    pub connected_at: String,
    /// Branches that it was asked to finish and has not answered for.
    pub asked_branches: usize,
    /// The resources that it can carry out phase two for; at most 100 of them.
    pub resources: Vec<String>,
    /// How many it has registered.
    #[serde(default)]
    pub resource_count: usize,
}

/// All resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    /// In the order of their ids; at most 1,000.
    pub items: Vec<Resource>,
    /// How many the coordinator knows.
    #[serde(default)]
    pub count: usize,
}

/// All connected processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Processes {
    /// The longest connected first; at most 1,000.
    pub items: Vec<ClientProcess>,
    /// How many are connected.
    #[serde(default)]
    pub count: usize,
}

/// How the coordinator stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// The server's version.
    pub version: String,
    /// Which store keeps the records.
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
    /// Branches whose phase two is decided and not carried out.
    pub pending_branches: usize,
    /// Connected processes.
    pub processes: usize,
}

/// Why an action is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionRequest {
    /// For the timeline and the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

/// An action was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionReply {
    /// The transaction.
    pub xid: String,
    /// How it stands after the action.
    pub status: Status,
}

/// Why a request was not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable; listed in docs/errors.md.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
}
