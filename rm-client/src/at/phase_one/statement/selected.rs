//! INSERT of the rows of a query: they are read, and inserted as values.

use either::Either;
use handfast_rm_core::plan::{Plan, SelectedRows, StatementRefusal};
use sqlx::Database;

use super::{StatementRun, rows_of};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{Backend, Carried, Steps};
use crate::at::error::AtError;

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn selected(mut self, plan: &SelectedRows) -> Result<Steps<DB>, sqlx::Error> {
        let found = self.answer(&plan.select).await?;
        let rows: Vec<&DB::Row> = rows_of::<DB>(&found).collect();
        let Some(width) = rows.first().map(|row| DB::width(row)) else {
            return Ok(vec![Either::Left(<DB as Database>::QueryResult::default())]);
        };
        let rows_max = DB::ARGUMENTS_MAX / width;
        if rows.len() > rows_max {
            return Err(AtError::TooManyRows { rows: rows.len(), rows_max }.into());
        }
        let arguments = self.carried(plan, &rows).await?;
        let text = plan.statement(rows.len(), width);
        let query = BoundQuery::ours(text, arguments).uncached();
        let planned = self.catalogue.plan_once(self.connection, &query).await?;
        let run = StatementRun {
            connection: &mut *self.connection,
            begins: false,
            mark: None,
            merges: self.merges,
            log: &mut *self.log,
            loaded: &planned.loaded,
            tables: &planned.tables,
            catalogue: self.catalogue,
            query,
        };
        run.insert_values(&planned.plan).await
    }

    async fn insert_values(mut self, plan: &Plan) -> Result<Steps<DB>, sqlx::Error> {
        match plan {
            Plan::Insert(plan) => self.insert(plan).await,
            Plan::Upsert(plan) => self.upsert(plan).await,
            Plan::Pass
            | Plan::LockingRead(_)
            | Plan::JoinedRead(_)
            | Plan::Update(_)
            | Plan::Delete(_)
            | Plan::Selected(_)
            | Plan::Several(_)
            | Plan::With(_) => Err(refused("its values are no rows of an INSERT")),
        }
    }

    /// The values of all rows, as they were answered.
    async fn carried(
        &mut self,
        plan: &SelectedRows,
        rows: &[&DB::Row],
    ) -> Result<DB::Arguments, sqlx::Error> {
        let mut arguments = DB::Arguments::default();
        let mut at_fixed_offset = false;
        for row in rows {
            if DB::width(row) != plan.columns.len() {
                return Err(refused("it selects another number of values than it has columns"));
            }
            for (index, column) in plan.columns.iter().enumerate() {
                match DB::carry(&mut arguments, row, index, &self.loaded.types[*column])? {
                    Carried::Exactly => {}
                    Carried::AtFixedOffset => at_fixed_offset = true,
                    Carried::EmptyGeometry => {
                        return Err(refused(
                            "it selects an empty geometry, which no session can write: leave its \
                             row out by WHERE, or give it a value before",
                        ));
                    }
                    Carried::No => {
                        return Err(refused(
                            "it selects a value of another type than its column; CAST it to that",
                        ));
                    }
                }
            }
        }
        if at_fixed_offset && !DB::is_at_fixed_offset(self.connection).await? {
            return Err(refused(
                "in the session's time zone some times come twice a year; use an offset, such as \
                 '+00:00'",
            ));
        }
        Ok(arguments)
    }
}

fn refused(reason: &'static str) -> sqlx::Error {
    AtError::Refused(StatementRefusal::InsertSelect { reason }).into()
}
