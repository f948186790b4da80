//! Takes the global lock of a counter before the local transaction begins.
//!
//! ```text
//! alone:       BEGIN, change the row ─┬─ undo row ──────┬─ COMMIT
//!                                     └─ RegisterBranch ┘
//! among many:  the key │ RegisterBranch │ BEGIN, change the row, undo row, COMMIT
//!                                       └─ joined with others: `joint_queue`
//! ```
//!
//! Changes of one row run one after the other in the database, even if they commute. So the
//! database must not keep the row locked while the coordinator is asked. A statement that runs
//! alone has less to wait for if both are asked at the same time.
//!
//! The key is what the statement itself says if it names the row by numbers; otherwise the database
//! is asked for it. In either case it is a hint: the rows granted are compared with those changed.

use std::sync::Arc;

use handfast_rm_core::plan::{DeltaKind, Plan, Statement, Update, row_key};

use super::attempts::Attempts;
use super::branch::Role;
use super::row_locks::{RowLockMode, RowLocks};
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::{Planned, RunningPlan};
use crate::at::database::{AtDatabase, Backend, LoadedTable};
use crate::at::undo::image::Layout;

/// A statement that changes a counter.
pub(crate) struct CountingStatement<DB: Backend> {
    /// Counts it among those that run the same.
    running: RunningPlan<DB>,
    /// Its arguments, if all of them are whole numbers.
    numbers: Option<Vec<i128>>,
}

impl<DB: Backend> CountingStatement<DB> {
    /// The plan and the numbers of a statement that its text and these numbers describe in full.
    pub(super) fn in_numbers(&self) -> Option<(&Arc<Planned<DB>>, &[i128])> {
        let planned = self.running.planned();
        let Plan::Update(Update { row_delta: Some(_), .. }) = &planned.plan else { return None };
        Some((planned, self.numbers.as_deref()?))
    }

    /// Takes note that it has needed another lock than the plan foretells.
    pub(super) fn misjudged(&self) {
        self.running.planned().misjudged();
    }

    /// Takes note of whether it has found a row to change.
    pub(super) fn note_found(&self, found: bool) {
        self.running.planned().note_found(found);
    }
}

impl<DB: AtDatabase> Attempts<DB> {
    /// Takes the lock that a statement will need: if it changes a counter that others of this
    /// process are changing too, or names the row of a last branch.
    pub(crate) async fn take_ahead(
        &mut self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Result<(), sqlx::Error> {
        let Role::Branch(branch) = &self.role else { return Ok(()) };
        if branch.may_decide() {
            return self.take_named(query, statement).await;
        }
        if !self.shared.catalogue.has_counters() {
            return Ok(());
        }
        let Some(planned) = self.known_plan(query, statement) else { return Ok(()) };
        let Plan::Update(plan) = &planned.plan else { return Ok(()) };
        if plan.key_read.is_none() || planned.is_misjudged() {
            return Ok(());
        }
        let running = Planned::start(&planned);
        if running.others() == 0 {
            self.counting = Some(Arc::new(CountingStatement { running, numbers: None }));
            return Ok(());
        }
        let numbers = whole_numbers(query);
        let rows = match named_row(plan, &planned.loaded, numbers.as_deref()) {
            Some(rows) if !planned.finds_nothing() => rows,
            Some(_) | None => self.asked_row(plan, &planned, query).await,
        };
        self.counting = Some(Arc::new(CountingStatement { running, numbers }));
        if !rows.is_empty() {
            crash_point("before-register");
            if let Role::Branch(branch) = &mut self.role {
                branch.ask_ahead();
            }
            self.wait_and_take(&rows).await?;
            crash_point("after-register");
            if let Role::Branch(branch) = &mut self.role {
                branch.granted = rows;
            }
        }
        Ok(())
    }

    /// The plan, where it is in memory.
    pub(super) fn known_plan(
        &self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Option<Arc<Planned<DB>>> {
        let Role::Branch(branch) = &self.role else { return None };
        self.shared.catalogue.known_plan(branch.reads, statement, query)
    }

    /// The row that the statement would change, as the database finds it; none if its guard fails.
    async fn asked_row(
        &self,
        plan: &Update,
        planned: &Planned<DB>,
        query: &BoundQuery<DB>,
    ) -> RowLocks {
        let rows = self.read_row(plan, &planned.loaded, query).await.unwrap_or_else(|error| {
            // The statement itself reports what is wrong.
            tracing::debug!(%error, "key of a counter not read ahead");
            RowLocks::default()
        });
        planned.note_found(!rows.is_empty());
        rows
    }

    async fn read_row(
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
        Ok(row_locks(plan, loaded, keys))
    }
}

/// The arguments of a query, if all of them are whole numbers.
pub(super) fn whole_numbers<DB: Backend>(query: &BoundQuery<DB>) -> Option<Vec<i128>> {
    query.arguments.as_ref().map_or_else(|| Some(Vec::new()), DB::whole_numbers)
}

/// The row that the statement names by numbers.
fn named_row<DB: Backend>(
    plan: &Update,
    loaded: &LoadedTable<DB>,
    numbers: Option<&[i128]>,
) -> Option<RowLocks> {
    // What the statement does to the row has to be known in numbers, too.
    plan.row_delta.as_ref()?;
    let cells = plan.numbered_key.as_ref()?.cells(numbers?)?;
    let texts: Vec<String> = cells.iter().map(i128::to_string).collect();
    Some(row_locks(plan, loaded, [row_key(&texts)]))
}

fn row_locks<DB: Backend>(
    plan: &Update,
    loaded: &LoadedTable<DB>,
    keys: impl IntoIterator<Item = Box<[u8]>>,
) -> RowLocks {
    let mut rows = RowLocks::default();
    rows.add(&loaded.lock_name, RowLockMode::Delta(kind(plan, loaded)), keys);
    rows
}

/// The kind of the changes, as the statement is written.
pub(super) fn kind<DB: Backend>(plan: &Update, loaded: &LoadedTable<DB>) -> DeltaKind {
    DeltaKind::of(plan.deltas.iter().map(|delta| {
        let name = &*loaded.table.columns[delta.counter.column].name;
        (name, delta.counter.bounds, delta.direction)
    }))
}
