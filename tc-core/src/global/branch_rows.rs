//! The rows of a branch, as names of lock slots: nearly always one or two, which take no memory of
//! their own.
//!
//! In which mode a row is held is in the lock table.

use std::slice;

use smallvec::SmallVec;

use crate::contract::Timestamp;
use crate::row_lock::table::LockId;

/// Rows that a branch has given up.
pub(crate) type GivenUpRows = SmallVec<[LockId; 4]>;

/// All in bytes, without alignment: a branch has just this much room beside its other fields.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BranchRows {
    None,
    One(LockId),
    Two([LockId; 2]),
    /// They are with what few branches have.
    Many,
    /// A finished branch holds none. The time at which it finished.
    Finished([u8; 8]),
}

impl BranchRows {
    pub(crate) fn finished(at: Timestamp) -> Self {
        Self::Finished(at.0.to_ne_bytes())
    }

    /// When the branch finished; 0 if it did not.
    pub(crate) fn finished_at(self) -> Timestamp {
        match self {
            Self::Finished(at) => Timestamp(u64::from_ne_bytes(at)),
            Self::None | Self::One(_) | Self::Two(_) | Self::Many => Timestamp(0),
        }
    }

    /// The rows, unless they are many.
    pub(crate) fn few(&self) -> Option<&[LockId]> {
        match self {
            Self::None | Self::Finished(_) => Some(&[]),
            Self::One(lock) => Some(slice::from_ref(lock)),
            Self::Two(locks) => Some(locks),
            Self::Many => None,
        }
    }

    /// Returns the rows with one more, unless they are many then.
    pub(crate) fn with(self, lock: LockId) -> Option<Self> {
        match self {
            Self::None => Some(Self::One(lock)),
            Self::One(first) => Some(Self::Two([first, lock])),
            Self::Two(_) | Self::Many | Self::Finished(_) => None,
        }
    }
}
