//! Commits a local transaction whose statements the library does not see.
//!
//! Such a statement may fail while the application goes on. Some databases then report success for
//! COMMIT, although part of the local transaction is lost. A statement before COMMIT detects this.

use sqlx::Transaction;

use super::Backend;
use super::bound_query::BoundQuery;

/// Why a local transaction is not committed.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// It had ended before. Statements after its end took effect by themselves.
    EndedEarly(sqlx::Error),
    /// The database failed. If COMMIT was under way, it may have been carried out.
    Database(sqlx::Error),
}

/// Commits a local transaction that [`Backend::begin_marked`] has begun.
pub(crate) async fn commit<DB: Backend>(mut local: Transaction<'_, DB>) -> Result<(), CommitError> {
    if let Some(text) = DB::BEFORE_COMMIT {
        let checked = DB::steps(&mut local, BoundQuery::plain(text.to_owned())).await;
        checked.map_err(failed::<DB>)?;
    }
    local.commit().await.map_err(CommitError::Database)
}

/// Converts an error of the statement before COMMIT.
fn failed<DB: Backend>(error: sqlx::Error) -> CommitError {
    if DB::is_mark_lost(&error) {
        CommitError::EndedEarly(error)
    } else {
        CommitError::Database(error)
    }
}
