//! The TC's requests to an RM, and the answers.

use crate::value::{BranchStatus, BranchType};

use super::TxResult;

/// Commit a branch or roll it back. Neither the XID nor the resource may be empty: Java stops
/// reading there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchEnd {
    /// The global.
    pub xid: String,
    /// The branch.
    pub branch_id: i64,
    /// The mode.
    pub branch_type: BranchType,
    /// The resource.
    pub resource_id: String,
    /// The application data as registered or reported. For a saga, the name of the global's status.
    pub application_data: String,
}

/// How phase two of a branch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchEnded {
    /// Whether the RM could attempt it.
    pub result: TxResult,
    /// The global.
    pub xid: String,
    /// The branch.
    pub branch_id: i64,
    /// The status of the branch, which decides.
    pub status: BranchStatus,
}

/// Delete undo logs that are older than a number of days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoLogDelete {
    /// The mode.
    pub branch_type: BranchType,
    /// The resource.
    pub resource_id: String,
    /// The days.
    pub save_days: i16,
}
