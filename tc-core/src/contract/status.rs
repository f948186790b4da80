//! The status of a global, and why it is rolled back.

use std::fmt;

/// How a global stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalStatus {
    /// No memory of it: never begun, begun without a branch before a restart, or forgotten.
    Unknown,
    /// Undecided.
    Active,
    /// Decided, branches to be finished.
    Committing,
    /// Finished.
    Committed,
    /// Decided, branches to be finished.
    RollingBack(RollbackReason),
    /// Finished.
    RolledBack(RollbackReason),
    /// Rolling back, and a branch refuses without an operator.
    NeedsOperator(RollbackReason),
}

impl fmt::Display for GlobalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, reason) = match *self {
            Self::Unknown => ("unknown", None),
            Self::Active => ("active", None),
            Self::Committing => ("committing", None),
            Self::Committed => ("committed", None),
            Self::RollingBack(reason) => ("rolling back", Some(reason)),
            Self::RolledBack(reason) => ("rolled back", Some(reason)),
            Self::NeedsOperator(reason) => ("in need of an operator", Some(reason)),
        };
        f.write_str(text)?;
        reason.map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// A [`GlobalStatus`] without its reason, for filters and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusKind {
    /// No memory of it.
    Unknown,
    /// Undecided.
    Active,
    /// Decided for commit, branches to be finished.
    Committing,
    /// Finished.
    Committed,
    /// Decided for rollback, branches to be finished.
    RollingBack,
    /// Finished.
    RolledBack,
    /// Rolling back, and a branch refuses without an operator.
    NeedsOperator,
}

impl GlobalStatus {
    /// Returns this status, or `end` if the global is unknown: a history without room forgets a
    /// global as soon as it has ended.
    pub(crate) fn or_if_forgotten(self, end: Self) -> Self {
        if self == Self::Unknown { end } else { self }
    }

    /// The status without its reason.
    #[must_use]
    pub fn kind(self) -> StatusKind {
        match self {
            Self::Unknown => StatusKind::Unknown,
            Self::Active => StatusKind::Active,
            Self::Committing => StatusKind::Committing,
            Self::Committed => StatusKind::Committed,
            Self::RollingBack(_) => StatusKind::RollingBack,
            Self::RolledBack(_) => StatusKind::RolledBack,
            Self::NeedsOperator(_) => StatusKind::NeedsOperator,
        }
    }
}

/// Why a global is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollbackReason {
    /// The TM asked for it.
    Requested,
    /// Its time ran out.
    Timeout,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// An operator asked for it.
    Operator,
    /// A participant was asked to prepare, or whether it could, and refuses.
    Refused,
}

impl fmt::Display for RollbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::Timeout => "timeout",
            Self::BranchUnknown => "a branch's outcome is unknown",
            Self::Operator => "operator",
            Self::Refused => "a participant refuses",
        })
    }
}
