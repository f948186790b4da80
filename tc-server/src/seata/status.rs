//! How a global stands, in Seata's words.

use handfast_core::{Decision, GlobalStatus as Status, Rejection, RollbackReason};
use handfast_seata_wire::value::{ExceptionCode, GlobalStatus as Word};
use handfast_seata_wire::{ClientVersion, Dialect};

use super::rows::BadLockKey;

/// The first clients that read "the rollback of a timeout failed" as a failure.
const READS_TIMEOUT_FAILURES: ClientVersion = ClientVersion::new(1, 7, 0);

/// What has been decided, if it is known.
pub(super) fn decision(status: Status) -> Option<Decision> {
    match status {
        Status::Unknown | Status::Active => None,
        Status::Committing | Status::Committed => Some(Decision::Commit),
        Status::RollingBack(_) | Status::RolledBack(_) | Status::NeedsOperator(_) => {
            Some(Decision::RollBack)
        }
    }
}

/// The answer to somebody who asks.
pub(super) fn standing(status: Status) -> Word {
    match status {
        Status::Unknown => Word::Finished,
        Status::Active => Word::Begin,
        Status::Committing => Word::AsyncCommitting,
        Status::Committed => Word::Committed,
        Status::RollingBack(RollbackReason::Timeout) => Word::TimeoutRollbacking,
        Status::RollingBack(_) => Word::Rollbacking,
        Status::RolledBack(RollbackReason::Timeout) => Word::TimeoutRollbacked,
        Status::RolledBack(_) => Word::Rollbacked,
        Status::NeedsOperator(RollbackReason::Timeout) => Word::TimeoutRollbackFailed,
        Status::NeedsOperator(_) => Word::RollbackFailed,
    }
}

/// The answer to a commit. A client takes every word for "committed" that does not speak of a
/// timeout or of an unknown transaction, so that whatever is rolled back is said in such a one.
pub(super) fn of_commit(status: Status, dialect: &Dialect) -> Word {
    match status {
        Status::Unknown => Word::Finished,
        Status::Active | Status::Committing => Word::CommitRetrying,
        Status::Committed => Word::Committed,
        Status::RollingBack(_) => Word::TimeoutRollbacking,
        Status::RolledBack(_) => Word::TimeoutRollbacked,
        Status::NeedsOperator(_) if dialect.client >= READS_TIMEOUT_FAILURES => {
            Word::TimeoutRollbackFailed
        }
        Status::NeedsOperator(_) => Word::TimeoutRollbacking,
    }
}

/// The answer to a rollback.
pub(super) fn of_rollback(status: Status) -> Word {
    match status {
        Status::Active => Word::Rollbacking,
        Status::RollingBack(RollbackReason::Timeout) => Word::TimeoutRollbacking,
        Status::RollingBack(_) => Word::RollbackRetrying,
        Status::Unknown
        | Status::Committing
        | Status::Committed
        | Status::RolledBack(_)
        | Status::NeedsOperator(_) => standing(status),
    }
}

/// Why a branch is not registered, or a report or query not answered.
///
/// A client that opened its local transaction itself holds the rows of its database meanwhile: it
/// is told to give up at once where the holder of the lock may need them.
pub(super) fn code_of(rejection: &Rejection, holds_rows: bool) -> ExceptionCode {
    match rejection {
        // Nothing that a client waits for would free the row.
        Rejection::RowNeedsOperator { .. } => ExceptionCode::LockKeyConflictFailFast,
        Rejection::RowLocked { holder_rolling_back: true, .. } | Rejection::Deadlock { .. }
            if holds_rows =>
        {
            ExceptionCode::LockKeyConflictFailFast
        }
        // Where there is no room to wait, a client's own way of waiting is as good.
        Rejection::RowLocked { .. }
        | Rejection::Deadlock { .. }
        | Rejection::LimitReached { what: Rejection::WAITING_REQUESTS, .. }
        | Rejection::ShareReached { what: Rejection::WAITING_REQUESTS, .. } => {
            ExceptionCode::LockKeyConflict
        }
        Rejection::UnknownXid(_) => ExceptionCode::GlobalTransactionNotExist,
        // What is about native sagas, which its clients cannot ask for, is never an answer to them.
        Rejection::AlreadyDecided { .. }
        | Rejection::Voting(_)
        | Rejection::SagaInvalid { .. }
        | Rejection::SagaMismatch { .. }
        | Rejection::UnknownSignal { .. }
        | Rejection::LockParts { .. }
        | Rejection::LockTokenTaken { .. }
        | Rejection::LockRollingBack { .. }
        | Rejection::LockNotHeld { .. }
        | Rejection::PastPivot { .. } => ExceptionCode::GlobalTransactionNotActive,
        Rejection::UnknownBranch { .. } => ExceptionCode::BranchTransactionNotExist,
        Rejection::LimitReached { .. } | Rejection::ShareReached { .. } => {
            ExceptionCode::FailedToAddBranch
        }
        Rejection::BranchMismatch { .. } | Rejection::NotApplicable { .. } => {
            ExceptionCode::BranchRegisterFailed
        }
    }
}

/// Why a branch with this lock key is not registered.
pub(super) fn code_of_key(why: &BadLockKey) -> ExceptionCode {
    match why {
        BadLockKey::Malformed { .. } => ExceptionCode::BranchRegisterFailed,
        // As of a limit of the coordinator.
        BadLockKey::TooLong { .. } => ExceptionCode::FailedToAddBranch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_those_who_wait_is_a_conflict_and_no_other_limit_is() {
        let limit = |what| code_of(&Rejection::LimitReached { what, max: 1 }, true);
        assert_eq!(limit(Rejection::WAITING_REQUESTS), ExceptionCode::LockKeyConflict);
        assert_eq!(limit("branches of a global"), ExceptionCode::FailedToAddBranch);
    }

    #[test]
    fn a_commit_that_was_rolled_back_is_never_taken_for_one() {
        let reasons = [
            RollbackReason::Requested,
            RollbackReason::Timeout,
            RollbackReason::BranchUnknown,
            RollbackReason::Operator,
        ];
        for (client, failures) in [((1, 6, 0), &[6, 13][..]), ((1, 7, 0), &[6, 7, 13, 14, 15])] {
            let dialect = Dialect::java(ClientVersion::new(client.0, client.1, client.2));
            for reason in reasons {
                for status in [
                    Status::RollingBack(reason),
                    Status::RolledBack(reason),
                    Status::NeedsOperator(reason),
                ] {
                    let word = of_commit(status, &dialect) as u8;
                    assert!(failures.contains(&word), "{status:?} is {word} to {client:?}");
                }
            }
        }
    }
}
