//! The horizon: up to which number every event is visible that will ever be.
//!
//! Numbers are drawn when an event is inserted and seen when it is committed, so that a smaller
//! number can turn up after a greater one. On PostgreSQL a writer has its transaction number before
//! it draws the event's. So when the greatest visible event is `seq`, and a transaction number
//! `mark` is drawn after that look, whoever may still bring an event below `seq` has a number below
//! `mark`; once all those have ended, everything up to `seq` is to be seen.
//!
//! MySQL shows rows of running writers to who wants to see them, and the claim looks at those
//! instead. SQLite has one writer at a time.

use super::super::error::OutboxError;
use super::super::query::{Query, number_of};
use super::super::table::explain;
use crate::at::{AtDatabase, Dialect};

/// A mark that is not passed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    seq: i64,
    mark: i64,
}

/// What is known of the horizon.
#[derive(Debug, Default)]
pub struct Horizon {
    settled: i64,
    ahead: Option<Ahead>,
}

impl Horizon {
    /// Looks again; answers up to where events may be published.
    pub(super) async fn advance<DB: AtDatabase>(
        &mut self,
        connection: &mut DB::Connection,
    ) -> Result<i64, OutboxError> {
        match DB::DIALECT {
            Dialect::Postgres => {
                self.look::<DB>(connection).await.map_err(explain::<DB>)?;
                Ok(self.settled)
            }
            Dialect::MySql | Dialect::Sqlite => Ok(i64::MAX),
        }
    }

    async fn look<DB: AtDatabase>(
        &mut self,
        connection: &mut DB::Connection,
    ) -> Result<(), sqlx::Error> {
        let (oldest, seq) = seen::<DB>(connection).await?;
        if self.wants_mark(oldest, seq) {
            let query =
                Query::<DB>::new("SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)");
            let mark = query.rows(connection).await?;
            let mark = mark.first().map(|row| number_of::<DB>(row, 0)).transpose()?;
            if let Some(mark) = mark {
                self.mark(seq, mark);
            }
            // Where nobody is writing this settles it at once.
            let (oldest, _) = seen::<DB>(connection).await?;
            self.pass(oldest);
        }
        Ok(())
    }

    /// Up to where events may be published.
    #[must_use]
    pub fn settled(&self) -> i64 {
        self.settled
    }

    /// Takes in a look: all transactions before `oldest` have ended, and `seq` is the greatest
    /// visible event. Answers whether a transaction number is to be drawn, to [`mark`](Self::mark)
    /// how far that is.
    pub fn wants_mark(&mut self, oldest: i64, seq: i64) -> bool {
        self.pass(oldest);
        self.ahead.is_none() && seq > self.settled
    }

    /// Everything up to `seq` is settled when all transactions before `mark` have ended.
    pub fn mark(&mut self, seq: i64, mark: i64) {
        self.ahead = Some(Ahead { seq, mark });
    }

    /// All transactions before `oldest` have ended.
    pub fn pass(&mut self, oldest: i64) {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.mark <= oldest) {
            self.settled = ahead.seq;
        }
    }
}

/// The oldest transaction that is still running and the greatest event that is visible, of one
/// moment.
async fn seen<DB: AtDatabase>(connection: &mut DB::Connection) -> Result<(i64, i64), sqlx::Error> {
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
        let mut horizon = Horizon { settled: 5, ahead: Some(Ahead { seq: 9, mark: 100 }) };
        horizon.pass(99);
        assert_eq!((horizon.settled, horizon.ahead.is_some()), (5, true));
        horizon.pass(100);
        assert_eq!((horizon.settled, horizon.ahead), (9, None));
        horizon.pass(200);
        assert_eq!(horizon.settled, 9);
    }
}
