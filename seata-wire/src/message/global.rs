//! A TM's requests about a global, and the answers.

use crate::value::GlobalStatus;

use super::TxResult;

/// Begin a global.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalBegin {
    /// The time after which it is rolled back.
    pub timeout_ms: i32,
    /// The application's name for it. The prefix `$Saga_` marks a saga.
    pub name: String,
}

/// The answer to a begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalBegun {
    /// Whether it has begun.
    pub result: TxResult,
    /// Its XID; empty if it has not.
    pub xid: String,
    /// Unused.
    pub extra_data: String,
}

/// Commit a global, roll it back, or query its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalEnd {
    /// The global.
    pub xid: String,
    /// Unused.
    pub extra_data: String,
}

/// How the state machine of a saga ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalReport {
    /// The global.
    pub xid: String,
    /// Unused.
    pub extra_data: String,
    /// How it ended.
    pub status: Option<GlobalStatus>,
}

/// The status of a global, as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalStatusAnswer {
    /// Whether the request succeeded. Clients ignore it after commits and rollbacks.
    pub result: TxResult,
    /// The status, which clients go by.
    pub status: GlobalStatus,
}
