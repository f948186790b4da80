//! Takes the global lock of a counter before the local transaction begins.
//!
//! ```text
//! alone:       BEGIN, change the row ─┬─ undo row ──────┬─ COMMIT
//!                                     └─ RegisterBranch ┘
//! among many:  read the key │ RegisterBranch │ BEGIN, change the row, undo row, COMMIT
//!                                            └─ joined with others: `joint_queue`
//! ```
//!
//! A row that many change is theirs one after the other in the database, however well the changes
//! commute. So the database must not keep it locked while the coordinator is asked. A statement
//! that runs alone has less to wait for if both are asked at the same time.

use std::sync::Arc;

use handfast_rm_core::plan::{DeltaKind, Plan, Statement, Update};

use super::attempts::Attempts;
use super::branch::Role;
use super::row_locks::{RowLockMode, RowLocks};
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Planned;
use crate::at::database::{AtDatabase, LoadedTable};
use crate::at::undo::image::Layout;

impl<DB: AtDatabase> Attempts<DB> {
    /// Takes the lock that a statement will need, if it changes a counter that others of this
    /// process are changing too.
    pub(crate) async fn take_ahead(
        &mut self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Result<(), sqlx::Error> {
        let Some(planned) = self.known_plan(query, statement) else { return Ok(()) };
        let Plan::Update(plan) = &planned.plan else { return Ok(()) };
        if plan.key_read.is_none() || planned.is_misjudged() {
            return Ok(());
        }
        let running = self.running_plan.insert(Planned::start(&planned));
        if running.others() == 0 {
            return Ok(());
        }
        let rows = self.rows_ahead(plan, &planned.loaded, query).await.unwrap_or_else(|error| {
            // The statement itself reports what is wrong.
            tracing::debug!(%error, "key of a counter not read ahead");
            RowLocks::default()
        });
        if !rows.is_empty() {
            crash_point("before-register");
            self.wait_and_take(&rows).await?;
            crash_point("after-register");
            if let Role::Branch(branch) = &mut self.role {
                branch.granted = rows;
            }
        }
        Ok(())
    }

    /// The plan, where it is in memory and the branch does not have to register at its end in any
    /// case.
    fn known_plan(
        &self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Option<Arc<Planned<DB>>> {
        let Role::Branch(branch) = &self.role else { return None };
        if branch.may_decide() {
            return None;
        }
        self.shared.catalogue.known_plan(branch.reads, statement, query)
    }

    /// The row that the statement names; none if its guard fails.
    async fn rows_ahead(
        &self,
        plan: &Update,
        loaded: &LoadedTable<DB>,
        query: &BoundQuery<DB>,
    ) -> Result<RowLocks, sqlx::Error> {
        let Some(read) = &plan.key_read else { return Ok(RowLocks::default()) };
        let mut connection = self.shared.pool.acquire().await?;
        let steps = DB::steps(&mut connection, query.with_text(&read.text)).await?;
        let found = steps.iter().filter_map(|step| step.as_ref().right());
        let keys = Layout::of(&[]).rows(loaded, found)?.into_iter().map(|row| row.key);
        let changes = plan.deltas.iter().map(|delta| {
            let name = &*loaded.table.columns[delta.counter.column].name;
            (name, delta.counter.bounds, delta.direction)
        });
        let mode = RowLockMode::Delta(DeltaKind::of(changes));
        let mut rows = RowLocks::default();
        rows.add(&loaded.lock_name, mode, keys);
        Ok(rows)
    }
}
