//! What a TM asks about a global, and the answers.

use crate::value::GlobalStatus;

use super::TxResult;

/// Begin a global.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalBegin {
    /// After this long it is to be rolled back.
    pub timeout_ms: i32,
    /// What the application calls it; the prefix `$Saga_` marks a saga.
    pub name: String,
}

/// A global has begun, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalBegun {
    /// Whether.
    pub result: TxResult,
    /// Its XID; empty if it has not.
    pub xid: String,
    /// Unused.
    pub extra_data: String,
}

/// Commit a global, roll it back, or say how it stands.
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

/// How a global stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalStanding {
    /// Whether the request succeeded. Clients ignore it after commits and rollbacks.
    pub result: TxResult,
    /// What counts.
    pub status: GlobalStatus,
}
