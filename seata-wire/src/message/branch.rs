//! An RM's requests in phase one, and the answers.

use crate::value::{BranchStatus, BranchType};

use super::TxResult;

/// Register a branch, or ask whether its rows could be locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRegister {
    /// The global; empty in a lock query outside any.
    pub xid: String,
    /// The mode.
    pub branch_type: BranchType,
    /// The resource.
    pub resource_id: String,
    /// The rows: `table:key,key;table:key`.
    pub lock_key: String,
    /// To be handed back in phase two, byte for byte.
    pub application_data: String,
}

/// The answer to a registration of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRegistered {
    /// Whether it is registered.
    pub result: TxResult,
    /// Its id; 0 if it is not.
    pub branch_id: i64,
}

/// Phase one of a branch ended, or its application data changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchReport {
    /// The global.
    pub xid: String,
    /// The branch.
    pub branch_id: i64,
    /// How it ended.
    pub status: BranchStatus,
    /// The resource.
    pub resource_id: String,
    /// Replaces what was registered, unless it is empty.
    pub application_data: String,
    /// The mode.
    pub branch_type: BranchType,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchReported {
    /// Whether it was accepted.
    pub result: TxResult,
}

/// The answer to a lock query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalLockQueried {
    /// Whether it was understood.
    pub result: TxResult,
    /// Whether no other global holds the rows.
    pub lockable: bool,
}
