//! The protocol's enumerations, and their numbers for peers of each version.
//!
//! A Java client that meets an unknown number cannot decode the whole frame, and its caller waits
//! until the request times out. So a value that a client does not know is written as the nearest
//! one that it knows.
//!
//! Sources: `core/.../model/GlobalStatus.java`, `BranchStatus.java`, `BranchType.java`,
//! `core/.../exception/TransactionExceptionCode.java`.

use crate::error::WireError;
use crate::version::{Dialect, Family};

mod exception;

pub use exception::ExceptionCode;

/// The status of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the protocol's")]
#[repr(u8)]
pub enum GlobalStatus {
    UnKnown = 0,
    Begin = 1,
    Committing = 2,
    CommitRetrying = 3,
    Rollbacking = 4,
    RollbackRetrying = 5,
    TimeoutRollbacking = 6,
    TimeoutRollbackRetrying = 7,
    AsyncCommitting = 8,
    Committed = 9,
    CommitFailed = 10,
    Rollbacked = 11,
    RollbackFailed = 12,
    TimeoutRollbacked = 13,
    TimeoutRollbackFailed = 14,
    /// "No such transaction".
    Finished = 15,
    CommitRetryTimeout = 16,
    RollbackRetryTimeout = 17,
    Deleting = 18,
    StopCommitOrCommitRetry = 19,
    StopRollbackOrRollbackRetry = 20,
}

impl GlobalStatus {
    /// Every value, by number.
    pub const ALL: [Self; 21] = [
        Self::UnKnown,
        Self::Begin,
        Self::Committing,
        Self::CommitRetrying,
        Self::Rollbacking,
        Self::RollbackRetrying,
        Self::TimeoutRollbacking,
        Self::TimeoutRollbackRetrying,
        Self::AsyncCommitting,
        Self::Committed,
        Self::CommitFailed,
        Self::Rollbacked,
        Self::RollbackFailed,
        Self::TimeoutRollbacked,
        Self::TimeoutRollbackFailed,
        Self::Finished,
        Self::CommitRetryTimeout,
        Self::RollbackRetryTimeout,
        Self::Deleting,
        Self::StopCommitOrCommitRetry,
        Self::StopRollbackOrRollbackRetry,
    ];

    pub(crate) fn from_number(number: i64) -> Result<Self, WireError> {
        by_number(&Self::ALL, number, "globalStatus")
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Returns this status, or the nearest one that the client knows.
    #[must_use]
    pub fn known_to(self, dialect: &Dialect) -> Self {
        let is_known = match self.number() {
            0..=15 => true,
            16 | 17 => dialect.is_at_least(1, 5),
            _ => dialect.is_at_least(2, 4),
        };
        if is_known { self } else { self.before_1_5() }
    }

    /// Returns the nearest of the first sixteen statuses, the only ones that protobuf has.
    pub(crate) fn before_1_5(self) -> Self {
        match self {
            Self::CommitRetryTimeout => Self::CommitFailed,
            Self::RollbackRetryTimeout => Self::RollbackFailed,
            // A client reads anything but this as "committed".
            Self::Deleting => Self::Finished,
            Self::StopCommitOrCommitRetry => Self::CommitRetrying,
            Self::StopRollbackOrRollbackRetry => Self::RollbackRetrying,
            Self::UnKnown
            | Self::Begin
            | Self::Committing
            | Self::CommitRetrying
            | Self::Rollbacking
            | Self::RollbackRetrying
            | Self::TimeoutRollbacking
            | Self::TimeoutRollbackRetrying
            | Self::AsyncCommitting
            | Self::Committed
            | Self::CommitFailed
            | Self::Rollbacked
            | Self::RollbackFailed
            | Self::TimeoutRollbacked
            | Self::TimeoutRollbackFailed
            | Self::Finished => self,
        }
    }
}

/// The status of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the protocol's")]
#[repr(u8)]
pub enum BranchStatus {
    Unknown = 0,
    Registered = 1,
    PhaseOneDone = 2,
    PhaseOneFailed = 3,
    PhaseOneTimeout = 4,
    PhaseTwoCommitted = 5,
    PhaseTwoCommitFailedRetryable = 6,
    PhaseTwoCommitFailedUnretryable = 7,
    PhaseTwoRollbacked = 8,
    PhaseTwoRollbackFailedRetryable = 9,
    PhaseTwoRollbackFailedUnretryable = 10,
    PhaseTwoCommitFailedXaerNotaRetryable = 11,
    PhaseTwoRollbackFailedXaerNotaRetryable = 12,
    PhaseOneRdonly = 13,
    StopRetry = 14,
}

impl BranchStatus {
    /// Every value, by number.
    pub const ALL: [Self; 15] = [
        Self::Unknown,
        Self::Registered,
        Self::PhaseOneDone,
        Self::PhaseOneFailed,
        Self::PhaseOneTimeout,
        Self::PhaseTwoCommitted,
        Self::PhaseTwoCommitFailedRetryable,
        Self::PhaseTwoCommitFailedUnretryable,
        Self::PhaseTwoRollbacked,
        Self::PhaseTwoRollbackFailedRetryable,
        Self::PhaseTwoRollbackFailedUnretryable,
        Self::PhaseTwoCommitFailedXaerNotaRetryable,
        Self::PhaseTwoRollbackFailedXaerNotaRetryable,
        Self::PhaseOneRdonly,
        Self::StopRetry,
    ];

    pub(crate) fn from_number(number: i64) -> Result<Self, WireError> {
        by_number(&Self::ALL, number, "branchStatus")
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

/// The mode of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the protocol's")]
#[repr(u8)]
pub enum BranchType {
    At = 0,
    Tcc = 1,
    Saga = 2,
    Xa = 3,
    SagaAnnotation = 4,
}

impl BranchType {
    /// Every value, by number.
    pub const ALL: [Self; 5] = [Self::At, Self::Tcc, Self::Saga, Self::Xa, Self::SagaAnnotation];

    pub(crate) fn from_number(number: i64) -> Result<Self, WireError> {
        by_number(&Self::ALL, number, "branchType")
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

fn by_number<T: Copy>(all: &[T], number: i64, field: &'static str) -> Result<T, WireError> {
    let value = usize::try_from(number).ok().and_then(|at| all.get(at).copied());
    value.ok_or(WireError::BadValue { field, value: number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::ClientVersion;

    #[test]
    fn every_value_is_at_the_index_of_its_number() {
        for (at, status) in GlobalStatus::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(status.number()), at);
        }
        for (at, status) in BranchStatus::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(status.number()), at);
        }
        for (at, kind) in BranchType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), at);
        }
    }

    #[test]
    fn a_client_gets_a_status_that_it_knows() {
        let old = Dialect::java(ClientVersion::new(1, 4, 2));
        let middle = Dialect::java(ClientVersion::new(2, 3, 0));
        let newest = Dialect::java(ClientVersion::new(2, 6, 0));
        for (status, expected) in [
            (GlobalStatus::CommitRetryTimeout, [10, 16, 16]),
            (GlobalStatus::RollbackRetryTimeout, [12, 17, 17]),
            (GlobalStatus::Deleting, [15, 15, 18]),
            (GlobalStatus::StopRollbackOrRollbackRetry, [5, 5, 20]),
            (GlobalStatus::Committed, [9, 9, 9]),
        ] {
            let numbers = [old, middle, newest].map(|it| status.known_to(&it).number());
            assert_eq!(numbers, expected, "{status:?}");
        }
    }
}
