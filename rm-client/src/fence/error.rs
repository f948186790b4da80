//! The errors of a fence. Variants by what the caller can do.

use handfast_rm_core::fence::{FenceRefusal, FenceState, Operation};

use super::Fence;
use crate::at::CommitError;
use crate::guard::KEPT;

/// A fence that does not let an operation through, or could not be asked.
///
/// After any of them but [`EndedEarly`](Self::EndedEarly) the local transaction is to be rolled
/// back: nothing of the operation has happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The try or action comes after its own cancel or compensation. It must never run: give up,
    /// and report a failure.
    #[error("{fence}: {operation} comes too late, the branch is {state}")]
    Barred {
        /// The branch.
        fence: Fence,
        /// The operation.
        operation: Operation,
        /// The state of the branch.
        state: FenceState,
    },
    /// The branch is to be confirmed and has not been tried here, as far as this database knows.
    /// Its try may still be under way: ask again.
    #[error("{fence}: not tried, as far as this database knows")]
    NotTried {
        /// The branch.
        fence: Fence,
    },
    /// Confirm after cancel, or cancel after confirm. A coordinator never asks for both: another
    /// program called, or the decision was overruled by hand. An operator has to look.
    #[error("{fence}: {operation} contradicts what has happened, the branch is {state}")]
    Contradicted {
        /// The branch.
        fence: Fence,
        /// The operation.
        operation: Operation,
        /// The state of the branch.
        state: FenceState,
    },
    /// The database ended the local transaction in favour of another one. Nothing is lost: repeat
    /// the local transaction, as [`Fence::run`] does by itself.
    #[error("the local transaction was ended in favour of another one: repeat it")]
    Conflict {
        /// The error of the database.
        source: sqlx::Error,
    },
    /// MySQL: the local transaction had ended before its COMMIT, and the fence may be lost. A
    /// statement failed in a way that rolls all of it back, such as a deadlock, and the work went
    /// on; or a statement committed it, such as CREATE TABLE. Statements after that may have taken
    /// effect by themselves: look at what they write before the operation is repeated, and let the
    /// work return the first error of the database.
    #[error(
        "the local transaction ended before its COMMIT, by an error that the work ignored or by \
         a statement that commits: statements after that may have taken effect by themselves"
    )]
    EndedEarly {
        /// The error of the database, which misses the local transaction.
        source: sqlx::Error,
    },
    /// The closure of [`Fence::run`] has ended, and its local transaction is still kept somewhere.
    /// It will be rolled back.
    #[error(
        "the closure moved its local transaction out, so it cannot be committed: leave it in the \
         closure, and await there what uses it"
    )]
    Kept,
    /// The table of fences is missing in the database, or is not ours.
    #[error(
        "table branch_fence is missing or has other columns: apply the client migrations, with \
         `handfast.migrate(&pool).await` or from migrations/"
    )]
    TableMissing {
        /// The error of the database.
        source: sqlx::Error,
    },
    /// The branch has a name that the fence cannot keep.
    #[error("no name for a fence: {reason}")]
    Name {
        /// The fault of the name.
        reason: String,
    },
    /// The data to be left in the fence is too large. Keep it in a table of your own, and leave its
    /// key.
    #[error("{bytes} bytes of context are too many: at most {bytes_max}")]
    ContextTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The database failed. Whether a COMMIT that was under way was carried out is unknown; asking
    /// again tells.
    #[error(transparent)]
    Database(sqlx::Error),
    /// Redis failed. Whether the script was carried out is unknown if the connection broke; asking
    /// again tells.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
}

impl FenceError {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Barred { .. } => "HF-FENCE-BARRED",
            Self::NotTried { .. } => "HF-FENCE-NOT-TRIED",
            Self::Contradicted { .. } => "HF-FENCE-CONTRADICTED",
            Self::Conflict { .. } => "HF-FENCE-CONFLICT",
            Self::EndedEarly { .. } => "HF-FENCE-ENDED-EARLY",
            Self::Kept => KEPT,
            Self::TableMissing { .. } => "HF-FENCE-TABLE-MISSING",
            Self::Name { .. } => "HF-FENCE-NAME",
            Self::ContextTooLarge { .. } => "HF-FENCE-CONTEXT-TOO-LARGE",
            Self::Database(_) => "HF-FENCE-DATABASE",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "HF-FENCE-REDIS",
        }
    }

    /// The error that a refusal of the decision table is.
    pub(super) fn refused(
        refusal: FenceRefusal,
        fence: &Fence,
        operation: Operation,
        found: Option<FenceState>,
    ) -> Self {
        let fence = fence.clone();
        match (refusal, found) {
            (FenceRefusal::Barred, Some(state)) => Self::Barred { fence, operation, state },
            (FenceRefusal::Contradicted, Some(state)) => {
                Self::Contradicted { fence, operation, state }
            }
            (FenceRefusal::NotTried, _)
            | (FenceRefusal::Barred | FenceRefusal::Contradicted, None) => Self::NotTried { fence },
        }
    }
}

impl From<sqlx::Error> for FenceError {
    fn from(source: sqlx::Error) -> Self {
        if is_conflict(&source) { Self::Conflict { source } } else { Self::Database(source) }
    }
}

impl From<CommitError> for FenceError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::EndedEarly(source) => Self::EndedEarly { source },
            CommitError::Database(source) => source.into(),
        }
    }
}

/// Whether a database error means that the same local transaction, repeated from its start, may
/// well succeed: a deadlock, or a snapshot that another transaction has overtaken.
pub(crate) fn is_conflict(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // Record changed since it was last read; deadlock.
        return matches!(error.number(), 1020 | 1213);
    }
    // PostgreSQL: serialization failure, deadlock. SQLite: a snapshot that is too old to write.
    error.code().is_some_and(|code| matches!(&*code, "40001" | "40P01" | "517"))
}
