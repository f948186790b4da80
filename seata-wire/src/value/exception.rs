//! Exception codes, whose numbers moved between versions.

use super::{Dialect, Family};

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum ExceptionCode {
    Unknown,
    BeginFailed,
    LockKeyConflict,
    Io,
    BranchRollbackFailedRetriable,
    BranchRollbackFailedUnretriable,
    BranchRegisterFailed,
    BranchReportFailed,
    LockableCheckFailed,
    BranchTransactionNotExist,
    GlobalTransactionNotExist,
    GlobalTransactionNotActive,
    GlobalTransactionStatusInvalid,
    FailedToSendBranchCommitRequest,
    FailedToSendBranchRollbackRequest,
    FailedToAddBranch,
    FailedLockGlobalTransaction,
    FailedWriteSession,
    FailedStore,
    NotRaftLeader,
    LockKeyConflictFailFast,
    TransactionTimeout,
    CommitHeuristic,
    Broken,
}

use ExceptionCode as Code;

/// The numbers of the last five for each group of clients; `None` where the client has no such
/// code.
///
/// ```text
///                       up to 1.4  1.5 and 1.6  1.7 to 1.8  from 2.0   seata-go
/// ```
const MOVED: [(Code, [Option<u8>; 5]); 5] = [
    (Code::NotRaftLeader, [None, None, None, Some(19), None]),
    (Code::LockKeyConflictFailFast, [None, Some(19), Some(19), Some(20), Some(19)]),
    (Code::TransactionTimeout, [None, None, Some(20), Some(21), None]),
    (Code::CommitHeuristic, [None, None, Some(21), Some(22), None]),
    (Code::Broken, [None, None, Some(22), Some(23), None]),
];

/// The codes whose numbers are the same in all versions, by number.
const FIXED: [Code; 19] = [
    Code::Unknown,
    Code::BeginFailed,
    Code::LockKeyConflict,
    Code::Io,
    Code::BranchRollbackFailedRetriable,
    Code::BranchRollbackFailedUnretriable,
    Code::BranchRegisterFailed,
    Code::BranchReportFailed,
    Code::LockableCheckFailed,
    Code::BranchTransactionNotExist,
    Code::GlobalTransactionNotExist,
    Code::GlobalTransactionNotActive,
    Code::GlobalTransactionStatusInvalid,
    Code::FailedToSendBranchCommitRequest,
    Code::FailedToSendBranchRollbackRequest,
    Code::FailedToAddBranch,
    Code::FailedLockGlobalTransaction,
    Code::FailedWriteSession,
    Code::FailedStore,
];

/// The codes of protobuf, by number. `BeginFailed` is missing, so each number is one lower.
/// `FailedLockGlobalTransaction` is spelled differently there, and Java cannot read it by name.
const PROTOBUF: [Code; 18] = [
    Code::Unknown,
    Code::LockKeyConflict,
    Code::Io,
    Code::BranchRollbackFailedRetriable,
    Code::BranchRollbackFailedUnretriable,
    Code::BranchRegisterFailed,
    Code::BranchReportFailed,
    Code::LockableCheckFailed,
    Code::BranchTransactionNotExist,
    Code::GlobalTransactionNotExist,
    Code::GlobalTransactionNotActive,
    Code::GlobalTransactionStatusInvalid,
    Code::FailedToSendBranchCommitRequest,
    Code::FailedToSendBranchRollbackRequest,
    Code::FailedToAddBranch,
    Code::FailedLockGlobalTransaction,
    Code::FailedWriteSession,
    Code::FailedStore,
];

impl ExceptionCode {
    /// Every code.
    pub const ALL: [Self; 24] = {
        let mut all = [Code::Unknown; 24];
        let mut at = 0;
        while at < all.len() {
            all[at] = if at < FIXED.len() { FIXED[at] } else { MOVED[at - FIXED.len()].0 };
            at += 1;
        }
        all
    };

    /// Returns its number for the peer. A code that the peer does not have becomes the nearest one:
    /// a conflict stays a conflict, and the others become unknown.
    #[must_use]
    pub fn number(self, dialect: &Dialect) -> u8 {
        if let Some(at) = FIXED.iter().position(|&code| code == self) {
            return small(at);
        }
        let numbers = MOVED.iter().find(|(code, _)| *code == self).map(|(_, numbers)| numbers);
        let number = numbers.and_then(|numbers| numbers[column(dialect)]);
        number.unwrap_or_else(|| small_of(self.fallback(), &FIXED))
    }

    /// Returns the code of a peer's number, or the unknown code for a number it does not have.
    #[must_use]
    pub fn from_number(number: u8, dialect: &Dialect) -> Self {
        let column = column(dialect);
        let moved = || MOVED.iter().find(|(_, numbers)| numbers[column] == Some(number));
        let fixed = FIXED.get(usize::from(number)).copied();
        fixed.or_else(|| moved().map(|&(code, _)| code)).unwrap_or(Self::Unknown)
    }

    /// Returns its number in protobuf.
    pub(crate) fn protobuf_number(self) -> u8 {
        let has_name = self != Self::FailedLockGlobalTransaction && PROTOBUF.contains(&self);
        small_of(if has_name { self } else { self.fallback() }, &PROTOBUF)
    }

    /// Returns the code of a number in protobuf.
    pub(crate) fn from_protobuf_number(number: i32) -> Self {
        let at = usize::try_from(number).ok();
        at.and_then(|at| PROTOBUF.get(at).copied()).unwrap_or(Self::Unknown)
    }

    fn fallback(self) -> Self {
        if self == Self::LockKeyConflictFailFast { Self::LockKeyConflict } else { Self::Unknown }
    }
}

/// Returns the peer's column of [`MOVED`].
fn column(dialect: &Dialect) -> usize {
    match dialect.family {
        Family::Go => 4,
        Family::Java if dialect.is_at_least(2, 0) => 3,
        Family::Java if dialect.is_at_least(1, 7) => 2,
        Family::Java if dialect.is_at_least(1, 5) => 1,
        Family::Java => 0,
    }
}

fn small_of(code: ExceptionCode, table: &[ExceptionCode]) -> u8 {
    small(table.iter().position(|&it| it == code).unwrap_or(0))
}

fn small(at: usize) -> u8 {
    u8::try_from(at).expect("the tables are short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::ClientVersion;

    fn numbers(code: ExceptionCode) -> [u8; 5] {
        let java = [(1, 4, 2), (1, 6, 1), (1, 8, 0), (2, 0, 0)]
            .map(|(a, b, c)| Dialect::java(ClientVersion::new(a, b, c)));
        let go = Dialect { family: Family::Go, ..java[1] };
        [java[0], java[1], java[2], java[3], go].map(|dialect| code.number(&dialect))
    }

    #[test]
    fn numbers_are_those_of_the_clients_version() {
        for (code, expected) in [
            (Code::LockKeyConflict, [2; 5]),
            (Code::FailedStore, [18; 5]),
            (Code::NotRaftLeader, [0, 0, 0, 19, 0]),
            (Code::LockKeyConflictFailFast, [2, 19, 19, 20, 19]),
            (Code::TransactionTimeout, [0, 0, 20, 21, 0]),
            (Code::CommitHeuristic, [0, 0, 21, 22, 0]),
            (Code::Broken, [0, 0, 22, 23, 0]),
        ] {
            assert_eq!(numbers(code), expected, "{code:?}");
        }
    }

    #[test]
    fn a_number_is_read_as_it_was_written() {
        let dialect = Dialect::java(ClientVersion::new(2, 0, 0));
        for code in ExceptionCode::ALL {
            assert_eq!(ExceptionCode::from_number(code.number(&dialect), &dialect), code);
        }
        assert_eq!(ExceptionCode::from_number(200, &dialect), Code::Unknown);
    }

    #[test]
    fn protobuf_has_no_begin_failed() {
        for (code, number) in [
            (Code::Unknown, 0),
            (Code::BeginFailed, 0),
            (Code::LockKeyConflict, 1),
            (Code::LockKeyConflictFailFast, 1),
            (Code::GlobalTransactionNotExist, 9),
            (Code::FailedLockGlobalTransaction, 0),
            (Code::FailedStore, 17),
            (Code::NotRaftLeader, 0),
        ] {
            assert_eq!(code.protobuf_number(), number, "{code:?}");
        }
    }
}
