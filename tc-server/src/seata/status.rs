//! The status of a global, translated to Seata's status codes.

use handfast_core::{Decision, GlobalStatus as Status, Rejection, RollbackReason};
use handfast_seata_wire::value::{ExceptionCode, GlobalStatus as Word};
use handfast_seata_wire::{ClientVersion, Dialect};

use super::rows::BadLockKey;

/// The first client version that reads "the rollback of a timeout failed" as a failure.
const READS_TIMEOUT_FAILURES: ClientVersion = ClientVersion::new(1, 7, 0);

/// Returns the decision that a status shows, if there is one.
pub(super) fn decision(status: Status) -> Option<Decision> {
    match status {
        Status::Unknown | Status::Active => None,
        Status::Committing | Status::Committed => Some(Decision::Commit),
        Status::RollingBack(_) | Status::RolledBack(_) | Status::NeedsOperator(_) => {
            Some(Decision::RollBack)
        }
    }
}

/// Returns the answer to a query of the status.
pub(super) fn status_word(status: Status) -> Word {
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

/// Returns the answer to a commit. A client takes every status for "committed" except those of a
/// timeout and of an unknown transaction, so every rolled back global is answered with one of
/// these.
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

/// Returns the answer to a rollback.
pub(super) fn of_rollback(status: Status) -> Word {
    match status {
        Status::Active => Word::Rollbacking,
        Status::RollingBack(RollbackReason::Timeout) => Word::TimeoutRollbacking,
        Status::RollingBack(_) => Word::RollbackRetrying,
        Status::Unknown
        | Status::Committing
        | Status::Committed
        | Status::RolledBack(_)
        | Status::NeedsOperator(_) => status_word(status),
    }
}

/// Returns the code for a refused registration, report or query.
///
/// A client that opened its local transaction itself holds row locks of its database while it
/// waits. It gets the code to give up at once where the holder of the global lock may need these
/// rows.
pub(super) fn code_of(rejection: &Rejection, holds_rows: bool) -> ExceptionCode {
    match rejection {
        // Waiting does not free the row: an operator must act.
        Rejection::RowNeedsOperator { .. } => ExceptionCode::LockKeyConflictFailFast,
        Rejection::RowLocked { holder_rolling_back: true, .. } | Rejection::Deadlock { .. }
            if holds_rows =>
        {
            ExceptionCode::LockKeyConflictFailFast
        }
        // Where the queue has no room, the client's own retry loop serves as well.
        Rejection::RowLocked { .. }
        | Rejection::Deadlock { .. }
        | Rejection::LimitReached { what: Rejection::WAITING_REQUESTS, .. }
        | Rejection::ShareReached { what: Rejection::WAITING_REQUESTS, .. } => {
            ExceptionCode::LockKeyConflict
        }
        Rejection::UnknownXid(_) => ExceptionCode::GlobalTransactionNotExist,
        // Rejections about native sagas and named locks do not occur: Seata clients cannot use
        // them.
        Rejection::AlreadyDecided { .. }
        | Rejection::Voting(_)
        | Rejection::XidNotLent(_)
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

/// Returns the code for a refused lock key.
pub(super) fn code_of_key(why: &BadLockKey) -> ExceptionCode {
    match why {
        BadLockKey::Malformed { .. } => ExceptionCode::BranchRegisterFailed,
        // The same code as for a limit of the coordinator.
        BadLockKey::TooLong { .. } => ExceptionCode::FailedToAddBranch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_limit_of_waiting_requests_is_a_conflict() {
        let limit = |what| code_of(&Rejection::LimitReached { what, max: 1 }, true);
        assert_eq!(limit(Rejection::WAITING_REQUESTS), ExceptionCode::LockKeyConflict);
        assert_eq!(limit("branches of a global"), ExceptionCode::FailedToAddBranch);
    }

    #[test]
    fn a_rolled_back_commit_is_never_read_as_committed() {
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
