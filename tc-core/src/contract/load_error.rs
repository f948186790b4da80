//! Why records cannot be loaded.

use std::sync::Arc;

use super::closure::{ClosureReason, ClosureRecord};
use super::id::{BranchId, EPOCH_MAX, Epoch, Xid};
use super::named_lock::LeaseId;
use super::record::RecordKey;

/// The records contradict each other or the epoch: the store is damaged, or not ours. Or they are
/// closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The epoch does not fit into an XID.
    #[error("epoch {} is past the last one, {EPOCH_MAX}", .0.0)]
    EpochTooLarge(Epoch),
    /// An XID was drawn under this epoch or a later one: it would be drawn again.
    #[error("xid {0} belongs to this epoch or a later one")]
    XidOfLaterEpoch(Xid),
    /// Two records have the same key.
    #[error("record {0:?} is there twice")]
    RecordTwice(RecordKey),
    /// A branch whose global is missing or finished.
    #[error("branch {branch} of xid {xid} has no unfinished global")]
    BranchWithoutGlobal {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
    },
    /// The branch's state does not fit that of its global, or another branch has its sequence
    /// number.
    #[error("branch {branch} of xid {xid} does not fit its global")]
    BranchMisfit {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
    },
    /// A decided global without an unfinished branch, which should be finished.
    #[error("xid {0} is decided and has nothing left to do, but is not finished")]
    NothingLeftToDo(Xid),
    /// A saga whose steps, state and definition do not belong together, or whose key another saga
    /// has.
    #[error("saga {0} contradicts itself or another saga")]
    SagaMisfit(Xid),
    /// A lease that another one leaves no room for, or whose global is missing or done.
    #[error("lease {} contradicts another one or its global", .0.0)]
    LeaseMisfit(LeaseId),
    /// The records are closed: they were moved, or are not all there.
    #[error("{0}")]
    Closed(ClosureRecord),
    /// Two globals hold a row in conflicting modes.
    #[error("a row of table {table} is held by xid {first} and xid {second}")]
    RowHeldTwice {
        /// The table.
        table: Arc<str>,
        /// One holder.
        first: Xid,
        /// The other.
        second: Xid,
    },
}

impl LoadError {
    /// The stable name of the error, as listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Closed(ClosureRecord { reason: ClosureReason::Moved, .. }) => "HF-TC-STORE-MOVED",
            Self::Closed(ClosureRecord { reason: ClosureReason::Incomplete, .. }) => {
                "HF-TC-STORE-INCOMPLETE"
            }
            Self::EpochTooLarge(_)
            | Self::XidOfLaterEpoch(_)
            | Self::RecordTwice(_)
            | Self::BranchWithoutGlobal { .. }
            | Self::BranchMisfit { .. }
            | Self::NothingLeftToDo(_)
            | Self::SagaMisfit(_)
            | Self::LeaseMisfit(_)
            | Self::RowHeldTwice { .. } => "HF-TC-RECORDS-CONTRADICT",
        }
    }
}
