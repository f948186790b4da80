//! Which errors may be gone when the whole transaction is repeated.

use std::error::Error as StdError;

use handfast_rm_core::{Rejection, RejectionDetail};

use crate::at::AtError;
use crate::error::Error;
use crate::fence::FenceError;
use crate::outbox::OutboxError;
use crate::twophase::XaError;

/// The coordinator's code for an XID that it has no memory of.
pub(crate) const UNKNOWN_XID: &str = "HF-TC-UNKNOWN-XID";
/// The coordinator's code for a lent XID that it has taken back.
const NOT_LENT: &str = "HF-TC-XID-NOT-LENT";

/// Returns whether an error says that the same global transaction, repeated from its start, may
/// well succeed: a deadlock, a row that stayed locked until the lock timeout, a snapshot that was
/// overtaken, an XID that the coordinator does not know because it was restarted.
///
/// It looks at the error and at its [`source`](StdError::source)s, so an error type of the
/// application's own may wrap `sqlx::Error`, [`Error`], [`AtError`], [`XaError`], [`FenceError`]
/// and [`OutboxError`], with `#[from]` or `#[source]` of `thiserror`. With `#[error(transparent)]`
/// only what is in `sqlx::Error` is seen.
///
/// It says nothing of the outcome: whether anything of the transaction remains is what
/// [`TransactionError`](crate::TransactionError) tells.
///
/// ```
/// assert!(!handfast::is_transient(&sqlx::Error::RowNotFound));
/// ```
#[must_use]
pub fn is_transient(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if is_transient_itself(error) {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_transient_itself(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return error.as_database_error().is_some_and(|error| is_of_database(error.as_error()));
    }
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.rejection().is_some_and(is_rejection);
    }
    if let Some(error) = error.downcast_ref::<AtError>() {
        let is_of_its_own = matches!(error, AtError::RowsDiffer { .. } | AtError::Ended);
        return is_of_its_own || error.rejection().is_some_and(is_rejection);
    }
    if let Some(error) = error.downcast_ref::<XaError>() {
        return error.rejection().is_some_and(is_rejection);
    }
    if let Some(error) = error.downcast_ref::<Rejection>() {
        return is_rejection(error);
    }
    matches!(error.downcast_ref(), Some(FenceError::Conflict { .. }))
        || matches!(error.downcast_ref(), Some(OutboxError::Conflict { .. }))
        || is_of_database(error)
}

fn is_rejection(rejection: &Rejection) -> bool {
    match rejection.detail() {
        RejectionDetail::RowLocked { .. } | RejectionDetail::Deadlock { .. } => true,
        // Of a row that waits for an operator the next attempt would be told the same.
        RejectionDetail::RowNeedsOperator { .. }
        | RejectionDetail::AlreadyDecided { .. }
        | RejectionDetail::Plain
        | _ => [UNKNOWN_XID, NOT_LENT].contains(&rejection.code()),
    }
}

/// Whether it is a driver's error for a deadlock, a lock timeout or an overtaken snapshot.
fn is_of_database(error: &(dyn StdError + 'static)) -> bool {
    #[cfg(feature = "postgres")]
    if let Some(error) = error.downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        // Serialization failure, deadlock, lock not available.
        return matches!(error.code(), "40001" | "40P01" | "55P03");
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // Record changed since it was last read; lock wait timeout; deadlock.
        return matches!(error.number(), 1020 | 1205 | 1213);
    }
    #[cfg(feature = "sqlite")]
    if let Some(error) = error.downcast_ref::<sqlx::sqlite::SqliteError>() {
        use sqlx::error::DatabaseError;

        // SQLITE_BUSY and its extended codes, such as that of a snapshot too old to write.
        let code = error.code().and_then(|code| code.parse::<u32>().ok());
        return code.is_some_and(|code| code & 0xff == 5);
    }
    let _ = error;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("sold out")]
        SoldOut,
        #[error("the database failed")]
        Wrapped(#[from] sqlx::Error),
        #[error(transparent)]
        Coordinator(#[from] AtError),
    }

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(#[from] sqlx::Error);

    fn ended() -> sqlx::Error {
        AtError::Ended.into()
    }

    #[test]
    fn causes_are_found_behind_the_errors_of_an_application() {
        assert!(is_transient(&ended()));
        assert!(is_transient(&Failure::from(ended())));
        assert!(is_transient(&Transparent(ended())));
        assert!(is_transient(&*anyhow::Error::from(ended()).context("placing an order")));
        assert!(!is_transient(&Failure::SoldOut));
        assert!(!is_transient(&Failure::from(sqlx::Error::RowNotFound)));
        assert!(!is_transient(&Error::Closed));
        let of_another: sqlx::Error = AtError::HalfRecorded.into();
        assert!(!is_transient(&of_another));
        // As its documentation says: transparent hides what is no sqlx::Error.
        assert!(!is_transient(&Failure::from(AtError::Ended)));
    }
}
