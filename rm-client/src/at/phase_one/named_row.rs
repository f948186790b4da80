//! A last branch of one statement whose row numbers name.
//!
//! ```text
//! RegisterBranch │ change, undo row, COMMIT │ report
//! ```
//!
//! The row is known before anything is sent to the database, so its lock is asked for first. While
//! the coordinator is asked, nothing is locked in the database; after it, nothing is left that could
//! be refused, and one call does the rest where the database can compose the undo row. Everywhere
//! else the local transaction runs as any other, and has its row already.
//!
//! LAST-BRANCH: nothing joins a global behind a registration that decides it. So the order of
//! registrations, by which branches are rolled back, is that of their changes also here, where the
//! change comes after the registration. A branch that does not decide must not do this: one that
//! registers after it may have changed the row before it.

use std::sync::Arc;

use either::Either;
use handfast_rm_core::plan::{Plan, Statement, Update, row_key};
use sqlx::{Database, SqlStr};
use tracing::Instrument;

use super::ahead::whole_numbers;
use super::attempts::Attempts;
use super::branch::{Branch, Role};
use super::commit::{Committing, report_commit_error, undo_row_exists};
use super::compound;
use super::local_transaction::LocalTransaction;
use super::registration::{report_decided, report_failed};
use super::row_locks::{RowLockMode, RowLocks};
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Planned;
use crate::at::database::{AtDatabase, Backend, Steps, affected};
use crate::at::database_wait::reported;
use crate::at::resource_state::ResourceState;
use crate::at::undo::composed::log_of;
use crate::at::undo::table as undo_table;
use crate::trace;

impl<DB: AtDatabase> Attempts<DB> {
    /// Takes the lock of the only row that the statement can change, if numbers name it. The branch
    /// may decide its global.
    pub(super) async fn take_named(
        &mut self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Result<(), sqlx::Error> {
        let Some(planned) = self.known_plan(query, statement) else { return Ok(()) };
        let Some(rows) = only_row(&planned, query) else { return Ok(()) };
        crash_point("before-register");
        let decides = self.wait_and_take_last(&rows).await?;
        crash_point("after-register");
        if !decides {
            self.abandon().await;
            self.restart_branch();
            return Ok(());
        }
        if let Role::Branch(branch) = &mut self.role {
            (branch.granted, branch.decides) = (rows, true);
        }
        self.named = Some(planned);
        Ok(())
    }

    /// Carries out a statement whose row is granted, with its undo row and its COMMIT, in one call.
    /// `None`: it is to run as any other; nothing of it is left.
    pub(crate) async fn run_whole(
        &mut self,
        query: &BoundQuery<DB>,
    ) -> Result<Option<Steps<DB>>, sqlx::Error> {
        let Role::Branch(branch) = &self.role else { return Ok(None) };
        let (branch, shared) = (branch.clone(), Arc::clone(&self.shared));
        let Some(planned) = self.named.clone() else { return Ok(None) };
        let Some(call) = whole_call(&shared, &planned, query, &branch) else { return Ok(None) };
        let answers = &shared.joint_queues.answers;
        let Some(answer) = answers.draw(&shared.pool, 1).await?.pop() else { return Ok(None) };
        let mut local = LocalTransaction::merged(shared.pool.acquire().await?);
        shared.note_prepared(local.connection());
        let changes = [("UPDATE", &*planned.loaded.table.name)].into_iter();
        trace::record_changes(&branch.span, changes, branch.granted.len());
        // From here on the branch reports itself.
        self.hand_over();
        let ended = commit_whole(&shared, &branch, local, call).instrument(branch.span.clone());
        match ended.await {
            Ok(Outcome::Changed) => Ok(Some(vec![Either::Left(answer)])),
            Ok(Outcome::Unmet) => {
                answers.keep(vec![answer]);
                Ok(Some(vec![Either::Left(<DB as Database>::QueryResult::default())]))
            }
            Err(error) if error.as_database_error().is_some() => {
                tracing::debug!(%error, "branch not committed in one call; it runs as others do");
                if DB::is_schema_mismatch(&error) {
                    shared.catalogue.forget_tables();
                }
                answers.keep(vec![answer]);
                self.named = None;
                self.restart_branch();
                Ok(None)
            }
            Err(unknown) => Err(unknown),
        }
    }
}

/// The effect of a statement on the row that it names.
enum Outcome {
    /// It is changed, and the global is committed.
    Changed,
    /// There is no such row, or its condition does not hold. The branch is gone.
    Unmet,
}

/// The only row that a statement can change, if numbers name it.
fn only_row<DB: Backend>(planned: &Planned<DB>, query: &BoundQuery<DB>) -> Option<RowLocks> {
    let Plan::Update(Update { numbered_key: Some(key), deltas, .. }) = &planned.plan else {
        return None;
    };
    if !deltas.is_empty() || planned.is_misjudged() {
        return None;
    }
    let cells: Vec<String> =
        key.cells(&whole_numbers(query)?)?.iter().map(i128::to_string).collect();
    let mut rows = RowLocks::default();
    rows.add(&planned.loaded.lock_name, RowLockMode::Exclusive, [row_key(&cells)]);
    Some(rows)
}

/// The call that does all of the branch's work.
fn whole_call<DB: Backend>(
    shared: &ResourceState<DB>,
    planned: &Planned<DB>,
    query: &BoundQuery<DB>,
    branch: &Branch,
) -> Option<BoundQuery<DB>> {
    let Plan::Update(Update { numbered_key: Some(key), noted: Some(update), .. }) = &planned.plan
    else {
        return None;
    };
    let takes_compound = shared.merges && compound::takes(query.sql().as_str());
    // The mark for the triggers of a guarded table would take a call of its own.
    if (update.is_compound() && !takes_compound) || planned.fires_guard() {
        return None;
    }
    let cells = if update.is_compound() { key.cells(&whole_numbers(query)?)? } else { Vec::new() };
    let first = query.argument_count() + cells.len();
    let text: &SqlStr = planned.noted(|| whole_text(planned, first))?;
    let mut call = query.with_sql(text.clone());
    let arguments = call.arguments.get_or_insert_default();
    for cell in cells {
        DB::bind_number(arguments, i64::try_from(cell).ok()?);
    }
    undo_table::bind_composed::<DB>(arguments, &branch.xid, branch.id);
    Some(call)
}

/// Its text. The arguments of the undo row stand behind so many others.
fn whole_text<DB: Backend>(planned: &Planned<DB>, first: usize) -> Option<String> {
    let Plan::Update(Update { noted: Some(update), columns, .. }) = &planned.plan else {
        return None;
    };
    let log = log_of(&planned.loaded, columns, update)?;
    let (insert, values) = undo_table::insert_composed::<DB>(&log, first);
    Some(update.text(&insert, &values))
}

async fn commit_whole<DB: AtDatabase>(
    shared: &ResourceState<DB>,
    branch: &Branch,
    mut local: LocalTransaction<'static, DB>,
    call: BoundQuery<DB>,
) -> Result<Outcome, sqlx::Error> {
    crash_point("before-local-commit");
    let committing = Committing::new(shared, branch);
    let ended = reported(shared, branch.xid.as_str(), send_whole(&mut local, branch, call)).await;
    // From here on a dropped future does not withdraw the report of this outcome.
    committing.settled();
    crash_point("after-local-commit");
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(error) => return Err(report_commit_error(shared, branch, error).await),
    };
    match outcome {
        Outcome::Changed => report_decided(shared, branch),
        Outcome::Unmet => report_failed(shared, branch).await,
    }
    Ok(outcome)
}

async fn send_whole<DB: AtDatabase>(
    local: &mut LocalTransaction<'static, DB>,
    branch: &Branch,
    call: BoundQuery<DB>,
) -> Result<Outcome, sqlx::Error> {
    let error = match local.run_whole(call).await {
        Ok(steps) if affected::<DB>(&steps) > 0 => return Ok(Outcome::Changed),
        Ok(_) => return Ok(Outcome::Unmet),
        Err(error) => error,
    };
    if error.as_database_error().is_none() {
        return Err(error);
    }
    // A call that was interrupted after its COMMIT fails although it has committed: its undo row is
    // there.
    match undo_row_exists(local, branch).await {
        Ok(true) => Ok(Outcome::Changed),
        Ok(false) => Err(error),
        // Whether it has committed is unknown: the error is not the database's any more.
        Err(unknown) => Err(sqlx::Error::Protocol(format!("{error}; then {unknown}"))),
    }
}
