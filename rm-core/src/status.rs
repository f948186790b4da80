//! The status of a global, as the coordinator reports it.

use std::fmt;

use handfast_proto::v1;

/// The status of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GlobalStatus {
    /// The coordinator does not know the global: it was never begun, it had no branch stored when
    /// the coordinator restarted, or it finished longer ago than the coordinator remembers. Never
    /// read this as committed or as rolled back.
    Unknown,
    /// Undecided.
    Active,
    /// Committed; undo logs are still to be deleted.
    Committing,
    /// Committed and finished.
    Committed,
    /// Rolling back; branches are still to be undone.
    RollingBack(RollbackReason),
    /// Rolled back and finished.
    RolledBack(RollbackReason),
    /// Rolling back, and a branch cannot be undone without an operator.
    NeedsOperator(RollbackReason),
}

/// The reason for which a global is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollbackReason {
    /// Its TM requested it.
    Requested,
    /// Its time ran out.
    Timeout,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// An operator requested it.
    Operator,
    /// A participant refuses to prepare.
    Refused,
    /// The coordinator gave no reason that this version knows.
    Unspecified,
}

impl GlobalStatus {
    #[doc(hidden)]
    #[must_use]
    pub fn from_wire(status: v1::GlobalStatus, reason: v1::RollbackReason) -> Self {
        let reason = RollbackReason::from_wire(reason);
        match status {
            v1::GlobalStatus::Unknown => Self::Unknown,
            v1::GlobalStatus::Active => Self::Active,
            v1::GlobalStatus::Committing => Self::Committing,
            v1::GlobalStatus::Committed => Self::Committed,
            v1::GlobalStatus::RollingBack => Self::RollingBack(reason),
            v1::GlobalStatus::RolledBack => Self::RolledBack(reason),
            v1::GlobalStatus::NeedsOperator => Self::NeedsOperator(reason),
        }
    }
}

impl RollbackReason {
    fn from_wire(reason: v1::RollbackReason) -> Self {
        match reason {
            v1::RollbackReason::Unspecified => Self::Unspecified,
            v1::RollbackReason::Requested => Self::Requested,
            v1::RollbackReason::Timeout => Self::Timeout,
            v1::RollbackReason::BranchUnknown => Self::BranchUnknown,
            v1::RollbackReason::Operator => Self::Operator,
            v1::RollbackReason::Refused => Self::Refused,
        }
    }
}

impl fmt::Display for GlobalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Active => f.write_str("active"),
            Self::Committing => f.write_str("committing"),
            Self::Committed => f.write_str("committed"),
            Self::RollingBack(reason) => write!(f, "rolling back ({reason})"),
            Self::RolledBack(reason) => write!(f, "rolled back ({reason})"),
            Self::NeedsOperator(reason) => write!(f, "needs an operator ({reason})"),
        }
    }
}

impl fmt::Display for RollbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::Timeout => "timeout",
            Self::BranchUnknown => "branch unknown",
            Self::Operator => "operator",
            Self::Refused => "participant refuses",
            Self::Unspecified => "unspecified",
        })
    }
}
