//! The count of a statement's answer, where its rows are ours and the database tells none.

use either::Either;
use handfast_rm_core::plan::Dialect;
use sqlx::Database;

use super::{StatementRun, rows_of};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{Backend, Steps};

/// How many results one text of MariaDB asks for.
const RESULTS_MAX: usize = 500;

impl<DB: Backend> StatementRun<'_, DB> {
    /// The counts of an answer whose rows are ours. Those that MariaDB returns have none with them.
    pub(super) async fn counts_of(
        &mut self,
        steps: Steps<DB>,
        returned: bool,
    ) -> Result<Steps<DB>, sqlx::Error> {
        if returned && DB::DIALECT == Dialect::MySql {
            let rows = rows_of::<DB>(&steps).count();
            return self.counted(rows).await;
        }
        Ok(steps.into_iter().filter(Either::is_left).collect())
    }

    /// An answer that counts so many rows. The driver has none to be made by hand, so that the
    /// database is asked for one: by a read of as many rows without columns, or on MariaDB, whose
    /// reads count nothing, by reads into a variable, which count one each.
    pub(super) async fn counted(&mut self, rows: usize) -> Result<Steps<DB>, sqlx::Error> {
        let mut total = <DB as Database>::QueryResult::default();
        let mut left = rows;
        while left > 0 {
            let (text, asked) = match DB::DIALECT {
                Dialect::MySql => {
                    let asked = left.min(RESULTS_MAX);
                    ("SELECT 1 INTO @handfast_one;".repeat(asked), asked)
                }
                Dialect::Postgres | Dialect::Sqlite => {
                    (format!("SELECT FROM generate_series(1, {left})"), left)
                }
            };
            let steps = DB::steps(self.connection, BoundQuery::plain(text)).await?;
            total.extend(steps.into_iter().filter_map(Either::left));
            left -= asked;
        }
        Ok(vec![Either::Left(total)])
    }
}
