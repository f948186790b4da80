//! The visibility horizon: the number up to which every event that will ever be visible is visible.
//!
//! An event gets its number when it is inserted, and becomes visible when it is committed, so a
//! smaller number can appear after a greater one. On PostgreSQL a writer has its transaction number
//! before it draws the event's number. Let the greatest visible event be `seq`, and let a
//! transaction number `mark` be drawn after that was read. Then every writer that may still commit
//! an event below `seq` has a transaction number below `mark`. Once all these have ended, all
//! events up to `seq` are visible.
//!
//! MySQL shows the rows of running writers to a reader of uncommitted rows, and the claim uses that
//! instead. SQLite has one writer at a time.

use super::super::error::OutboxError;
use super::super::query::{Query, number_of};
use super::super::table::explain;
use crate::at::{AtDatabase, Dialect};

/// A mark before which transactions are still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingMark {
    seq: i64,
    mark: i64,
}

/// The progress of the visibility horizon.
#[derive(Debug, Default)]
pub struct VisibilityHorizon {
    settled: i64,
    ahead: Option<PendingMark>,
}

impl VisibilityHorizon {
    /// Reads the database's progress, and returns the number up to which events may be published.
    pub(super) async fn advance<DB: AtDatabase>(
        &mut self,
        connection: &mut DB::Connection,
    ) -> Result<i64, OutboxError> {
        match DB::DIALECT {
            Dialect::Postgres => {
                self.read::<DB>(connection).await.map_err(explain::<DB>)?;
                Ok(self.settled)
            }
            Dialect::MySql | Dialect::Sqlite => Ok(i64::MAX),
        }
    }

    async fn read<DB: AtDatabase>(
        &mut self,
        connection: &mut DB::Connection,
    ) -> Result<(), sqlx::Error> {
        let (oldest, seq) = read_progress::<DB>(connection).await?;
        if self.wants_mark(oldest, seq) {
            let query =
                Query::<DB>::new("SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)");
            let mark = query.rows(connection).await?;
            let mark = mark.first().map(|row| number_of::<DB>(row, 0)).transpose()?;
            if let Some(mark) = mark {
                self.mark(seq, mark);
            }
            // If no transaction is writing, this settles the mark at once.
            let (oldest, _) = read_progress::<DB>(connection).await?;
            self.pass(oldest);
        }
        Ok(())
    }

    /// Returns the number up to which events may be published.
    #[must_use]
    pub fn settled(&self) -> i64 {
        self.settled
    }

    /// Records that all transactions before `oldest` have ended and that `seq` is the greatest
    /// visible event. Returns whether the caller should draw a transaction number and pass it to
    /// [`mark`](Self::mark).
    pub fn wants_mark(&mut self, oldest: i64, seq: i64) -> bool {
        self.pass(oldest);
        self.ahead.is_none() && seq > self.settled
    }

    /// Records that all events up to `seq` are settled when all transactions before `mark` have
    /// ended.
    pub fn mark(&mut self, seq: i64, mark: i64) {
        self.ahead = Some(PendingMark { seq, mark });
    }

    /// Records that all transactions before `oldest` have ended.
    pub fn pass(&mut self, oldest: i64) {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.mark <= oldest) {
            self.settled = ahead.seq;
        }
    }
}

/// Returns the oldest running transaction and the greatest visible event, both of one moment.
async fn read_progress<DB: AtDatabase>(
    connection: &mut DB::Connection,
) -> Result<(i64, i64), sqlx::Error> {
    let query = Query::<DB>::new(
        "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT), \
         (SELECT MAX(seq) FROM event_outbox)",
    );
    let found = query.rows(connection).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok((number_of::<DB>(row, 0)?, number_of::<DB>(row, 1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_when_all_before_it_have_ended() {
        let mut horizon =
            VisibilityHorizon { settled: 5, ahead: Some(PendingMark { seq: 9, mark: 100 }) };
        horizon.pass(99);
        assert_eq!((horizon.settled, horizon.ahead.is_some()), (5, true));
        horizon.pass(100);
        assert_eq!((horizon.settled, horizon.ahead), (9, None));
        horizon.pass(200);
        assert_eq!(horizon.settled, 9);
    }
}
