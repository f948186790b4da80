//! The queries that move the visibility horizon of a relay.
//!
//! Only PostgreSQL needs it. MySQL shows rows of running writers to a reader of uncommitted rows,
//! and the claim reads those instead. SQLite has one writer at a time.

use handfast_rm_core::relay::VisibilityHorizon;

use super::super::error::OutboxError;
use super::super::query::{Query, number_of};
use super::super::table::explain;
use crate::at::{AtDatabase, Dialect};

/// Advances the horizon. Returns the number up to which events may be published.
pub(super) async fn advance<DB: AtDatabase>(
    horizon: &mut VisibilityHorizon,
    connection: &mut DB::Connection,
) -> Result<i64, OutboxError> {
    match DB::DIALECT {
        Dialect::Postgres => {
            look::<DB>(horizon, connection).await.map_err(explain::<DB>)?;
            Ok(horizon.settled())
        }
        Dialect::MySql | Dialect::Sqlite => Ok(i64::MAX),
    }
}

async fn look<DB: AtDatabase>(
    horizon: &mut VisibilityHorizon,
    connection: &mut DB::Connection,
) -> Result<(), sqlx::Error> {
    let (oldest, seq) = seen::<DB>(connection).await?;
    if horizon.wants_mark(oldest, seq) {
        // Drawn after that query: a writer that may still commit a smaller number began before it.
        let query = Query::<DB>::new("SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)");
        let mark = query.rows(connection).await?;
        let mark = mark.first().map(|row| number_of::<DB>(row, 0)).transpose()?;
        if let Some(mark) = mark {
            horizon.mark(seq, mark);
        }
        // If no transaction writes, this settles the events at once.
        let (oldest, _) = seen::<DB>(connection).await?;
        horizon.pass(oldest);
    }
    Ok(())
}

/// Returns the oldest transaction that is still running and the greatest event that is visible, at
/// one moment.
async fn seen<DB: AtDatabase>(connection: &mut DB::Connection) -> Result<(i64, i64), sqlx::Error> {
    let query = Query::<DB>::new(
        "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT), \
         (SELECT MAX(seq) FROM event_outbox)",
    );
    let found = query.rows(connection).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok((number_of::<DB>(row, 0)?, number_of::<DB>(row, 1)?))
}
