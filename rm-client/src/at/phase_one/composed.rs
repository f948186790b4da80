//! Composed statements: the database composes the undo row along with the change.
//!
//! The row is the only one that the statement can change, and is given by whole numbers. So no
//! image has to reach this process: neither the lock nor the undo row depends on what is read.

use std::sync::Arc;

use either::Either;
use handfast_rm_core::plan::{
    ComposedEnd, ComposedRow, ComposedUpdate, Dialect, Plan, Update, row_key,
};
use sqlx::error::ErrorKind;

use super::ahead::whole_numbers;
use super::attempts::Attempts;
use super::branch::{Branch, Role};
use super::compound;
use super::row_locks::{RowLockMode, RowLocks};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::{Managed, Planned};
use crate::at::database::{AtDatabase, Backend, Steps};
use crate::at::resource_state::ResourceState;
use crate::at::undo::composed::{bytes_of, log_of, types_of};
use crate::at::undo::table as undo_table;

/// A statement that brings its composed undo row.
pub(super) struct ComposedStatement<DB: Backend> {
    pub(super) planned: Arc<Planned<DB>>,
    /// The only row that it can change.
    pub(super) row: RowLocks,
    pub(super) call: BoundQuery<DB>,
    /// The end of its text.
    pub(super) end: ComposedEnd,
}

impl<DB: AtDatabase> Attempts<DB> {
    /// Composes the undo row of a branch's only statement, where the database can.
    pub(crate) fn compose(&mut self, query: &BoundQuery<DB>, managed: &Managed) {
        self.composed = self.composed_statement(query, managed);
    }

    fn composed_statement(
        &self,
        query: &BoundQuery<DB>,
        managed: &Managed,
    ) -> Option<ComposedStatement<DB>> {
        let (Role::Branch(branch), Managed::Statement(statement)) = (&self.role, managed) else {
            return None;
        };
        let planned = self.known_plan(query, statement).filter(|_| self.may_compose)?;
        let row = only_row(&planned, query)?;
        let end = ComposedEnd::Open;
        let call = call(&self.shared, &planned, query, branch, end)?;
        Some(ComposedStatement { planned, row, call, end })
    }
}

/// Returns the only row that a statement can change, if that is given by whole numbers.
pub(super) fn only_row<DB: Backend>(
    planned: &Planned<DB>,
    query: &BoundQuery<DB>,
) -> Option<RowLocks> {
    let Plan::Update(plan) = &planned.plan else { return None };
    if planned.is_misjudged() {
        return None;
    }
    let mut rows = RowLocks::default();
    let key = only_key(plan, query)?;
    rows.add(&planned.loaded.lock_name, RowLockMode::Exclusive, [key]);
    Some(rows)
}

/// Returns the key of the only row that the statement can change.
pub(super) fn only_key<DB: Backend>(plan: &Update, query: &BoundQuery<DB>) -> Option<Box<[u8]>> {
    let key = plan.numbered_key.as_ref().filter(|_| plan.deltas.is_empty())?;
    let cells = key.cells(&whole_numbers(query)?)?;
    let texts: Vec<String> = cells.iter().map(i128::to_string).collect();
    Some(row_key(&texts))
}

/// Whether a composed statement says for certain that there is no row to change. A
/// row that it has not changed may also have columns of other types than known.
pub(super) fn is_sure<DB: Backend>() -> bool {
    // PostgreSQL asks for the types of the columns along with the row.
    DB::DIALECT != Dialect::Postgres
}

/// The driver's answer to the change of a composed statement.
pub(super) fn answer<DB: Backend>(
    planned: &Planned<DB>,
    end: ComposedEnd,
    steps: Steps<DB>,
) -> Steps<DB> {
    if !composed_update(planned).is_some_and(|(_, update)| update.is_script()) {
        // Behind that to the insertion of the undo row, if that has one.
        return compound::last_answer::<DB>(steps);
    }
    let before = match end {
        ComposedEnd::Commit | ComposedEnd::Open => 2,
        ComposedEnd::Within => 1,
    };
    steps.into_iter().filter(Either::is_left).skip(before).take(1).collect()
}

/// Takes note that the database has refused such a statement. Where it could not compose the log,
/// it is not asked again.
pub(super) fn note_refusal<DB: Backend>(planned: &Planned<DB>, error: &sqlx::Error) {
    let kind = error.as_database_error().map(|error| error.kind());
    if matches!(kind, Some(ErrorKind::NotNullViolation)) {
        planned.misjudged();
    }
}

/// Whether the answer to a statement that commits with its undo row counts that row too.
pub(super) fn counts_undo_row<DB: Backend>() -> bool {
    DB::DIALECT == Dialect::MySql
}

fn composed_update<DB: Backend>(planned: &Planned<DB>) -> Option<(&Update, &ComposedUpdate)> {
    let Plan::Update(plan) = &planned.plan else { return None };
    Some((plan, plan.composed.as_deref()?))
}

/// The statement with its undo row. `None` where the database cannot compose it.
pub(super) fn call<DB: Backend>(
    shared: &ResourceState<DB>,
    planned: &Planned<DB>,
    query: &BoundQuery<DB>,
    branch: &Branch,
    end: ComposedEnd,
) -> Option<BoundQuery<DB>> {
    let (plan, update) = composed_update(planned)?;
    let takes_several = shared.merges && compound::takes(query.sql().as_str());
    let first = query.argument_count();
    // The mark for the triggers of a guarded table would take a call of its own.
    if (update.is_several() && !takes_several)
        || !update.takes_arguments(first)
        || planned.fires_guard()
    {
        return None;
    }
    let cells = if update.is_several() {
        plan.numbered_key.as_ref()?.cells(&whole_numbers(query)?)?
    } else {
        Vec::new()
    };
    let text = planned.composed(end, || text(planned, &plan.columns, update, first, end))?;
    let mut call = query.with_sql(text.clone());
    let arguments = call.arguments.get_or_insert_default();
    undo_table::bind_composed::<DB>(arguments, &branch.xid, branch.id);
    for cell in cells {
        DB::bind_number(arguments, i64::try_from(cell).ok()?);
    }
    Some(call)
}

/// Returns the text of the call. The undo row's arguments follow the `first` arguments of the
/// application.
fn text<DB: Backend>(
    planned: &Planned<DB>,
    columns: &[usize],
    update: &ComposedUpdate,
    first: usize,
    end: ComposedEnd,
) -> Option<String> {
    let [before, after] = log_of(&planned.loaded, columns, update)?;
    let log = update.log([&before, &after], bytes_of::<DB>);
    let (insert, values) = undo_table::insert_composed::<DB>(&log, first);
    let complete = undo_table::complete_composed::<DB>(&after, first);
    let types = types_of(&planned.loaded, columns, update);
    Some(update.text(&types, &ComposedRow { insert, values, complete }, end))
}
