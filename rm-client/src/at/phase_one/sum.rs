//! The statements of a joint local transaction carried out as one: the sum of what they add to the
//! counters of a row, or take from them.
//!
//! ```text
//! BEGIN, read the row │ work each statement out │ change by the sum, INSERT undo rows, COMMIT
//! ```
//!
//! The database keeps the row locked from the read on, so that its values are those which the first
//! statement would meet, and each further one meets what the one before has left. Guards, bounds
//! and the range of the column are judged for each by itself. Where anything needs the database's
//! own judgement (a value that is no number, a sum beyond the column, a bound that is passed, a
//! constraint), all statements run one after the other instead; the read has changed nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use either::Either;
use handfast_rm_core::plan::undo_sql::{self, RowLocking};
use handfast_rm_core::plan::{Direction, Plan, RowDelta, RowEffect, Update};

use super::ahead::kind;
use super::branch_log::BranchLog;
use super::compound;
use super::joint_queue::{JointWork, Member};
use super::joint_transaction::{Changes, UndoLogs};
use super::transaction::AtTransaction;
use crate::at::database::bind::{bind, bind_key};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Planned;
use crate::at::database::value::Value;
use crate::at::database::{AtDatabase, Backend, LoadedTable, Steps};
use crate::at::database_wait::reported;
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::at::undo::image::{ImageRow, Layout};

/// A statement in numbers.
struct Numbered<'m, DB: Backend> {
    plan: &'m Update,
    delta: &'m RowDelta,
    planned: &'m Planned<DB>,
    arguments: &'m [i128],
}

impl<'m, DB: AtDatabase> Numbered<'m, DB> {
    fn of(member: &'m Member<DB>) -> Option<Self> {
        let JointWork::Counter(statement) = &member.work else { return None };
        let (planned, arguments) = statement.in_numbers()?;
        let Plan::Update(plan) = &planned.plan else { return None };
        Some(Self { plan, delta: plan.row_delta.as_deref()?, planned, arguments })
    }

    /// Whether both change the same counters of the same row.
    fn meets(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.planned.loaded, &other.planned.loaded)
            && self.plan.columns == other.plan.columns
            && self.key_cells() == other.key_cells()
    }

    fn key_cells(&self) -> Option<Vec<i128>> {
        self.plan.numbered_key.as_ref()?.cells(self.arguments)
    }

    /// Values by which the row is read: those of the key, and nothing else.
    fn key_values(&self) -> Option<Vec<Value>> {
        let mut values = vec![Value::Null; self.plan.columns.len()];
        let cells = self.key_cells()?;
        for (column, cell) in self.planned.loaded.table.key.columns.iter().zip(cells) {
            values[place_of(self.plan, *column)] = Value::Integer(cell);
        }
        Some(values)
    }
}

/// The statements of all members in numbers, if their changes may be carried out as one.
fn in_numbers<DB: AtDatabase>(members: &[Member<DB>]) -> Option<Vec<Numbered<'_, DB>>> {
    let numbered: Vec<_> = members.iter().map(Numbered::of).collect::<Option<_>>()?;
    let first = numbered.first()?;
    let fits = first.planned.loaded.takes_sums && numbered.iter().all(|it| it.meets(first));
    fits.then_some(numbered)
}

/// Draws the answers of statements that may be carried out as one. Returns none for other
/// statements.
pub(super) async fn draw_answers<DB: AtDatabase>(
    shared: &ResourceState<DB>,
    members: &[Member<DB>],
) -> Result<Vec<DB::QueryResult>, sqlx::Error> {
    if in_numbers(members).is_none() {
        return Ok(Vec::new());
    }
    shared.answers.draw(&shared.connections, members.len()).await
}

/// Carries out the statements of all members as one. `None`: they are to run one after the other;
/// nothing is changed.
pub(super) async fn change_by_sum<DB: AtDatabase>(
    local: &mut AtTransaction<'static, DB>,
    members: &[Member<DB>],
    answers: Vec<DB::QueryResult>,
) -> Result<Option<Changes<DB>>, sqlx::Error> {
    let Some(numbered) = in_numbers(members) else { return Ok(None) };
    let first = &numbered[0];
    let Some(key) = first.key_values() else { return Ok(None) };
    let Some(read) = row_read(first, &key) else { return Ok(None) };
    let (shared, xid) = (Arc::clone(&local.shared), &members[0].branch.xid);
    let row = reported(&shared, xid.as_str(), read_row(local, first, read)).await?;
    let mut sum = Sum::new(first, row, answers);
    for (member, numbered) in members.iter().zip(&numbered) {
        if sum.add(member, numbered)?.is_none() {
            shared.answers.keep(sum.counted);
            return Ok(None);
        }
    }
    let Ok(change) = sum.change(&key) else { return Ok(None) };
    for (member, is_met) in members.iter().zip(&sum.met) {
        if let JointWork::Counter(statement) = &member.work {
            statement.note_found(*is_met);
        }
    }
    shared.answers.keep(sum.counted);
    Ok(Some(Changes { answers: sum.answers, logs: sum.logs, are_composed: false, change }))
}

/// The read that locks the row. `None` if the column has no such value.
fn row_read<DB: AtDatabase>(
    numbered: &Numbered<'_, DB>,
    key: &[Value],
) -> Option<(String, DB::Arguments)> {
    let (loaded, columns) = (&*numbered.planned.loaded, &numbered.plan.columns);
    let lock = RowLocking::ForNoKeyUpdate;
    let text = undo_sql::select_by_keys(DB::DIALECT, &loaded.table, columns, 1, lock);
    let mut arguments = DB::Arguments::default();
    bind_key(&mut arguments, loaded, key, columns).ok()?;
    Some((text, arguments))
}

async fn read_row<DB: AtDatabase>(
    local: &mut AtTransaction<'static, DB>,
    numbered: &Numbered<'_, DB>,
    (text, arguments): (String, DB::Arguments),
) -> Result<Option<ImageRow>, sqlx::Error> {
    let begins = local.local.begins_with_next_call();
    let steps = if begins {
        let call = BoundQuery::ours(compound::begin_and::<DB>(&text), arguments);
        DB::steps(local.local.connection(), call).await?
    } else {
        DB::steps(local.local.begun().await?, BoundQuery::ours(text, arguments)).await?
    };
    if begins {
        local.local.has_begun();
    }
    let found = steps.iter().filter_map(|step| step.as_ref().right());
    let rows = Layout::of(&numbered.plan.columns).rows(&numbered.planned.loaded, found)?;
    Ok(rows.into_iter().next())
}

/// The row as the statements so far leave it.
struct Sum<'m, DB: AtDatabase> {
    plan: &'m Update,
    loaded: &'m LoadedTable<DB>,
    /// `None`: there is no such row.
    row: Option<ImageRow>,
    /// The sum of the statements' changes of each counter, by column.
    totals: BTreeMap<usize, i128>,
    /// Answers that count one row.
    counted: Vec<DB::QueryResult>,
    /// Whether each statement has found its row to change.
    met: Vec<bool>,
    answers: Vec<Steps<DB>>,
    logs: UndoLogs,
}

impl<'m, DB: AtDatabase> Sum<'m, DB> {
    fn new(
        numbered: &Numbered<'m, DB>,
        row: Option<ImageRow>,
        counted: Vec<DB::QueryResult>,
    ) -> Self {
        Self {
            plan: numbered.plan,
            loaded: &numbered.planned.loaded,
            row,
            totals: BTreeMap::new(),
            counted,
            met: Vec::new(),
            answers: Vec::new(),
            logs: UndoLogs::default(),
        }
    }

    /// Works the next statement out. `None` if that takes the database.
    fn add(
        &mut self,
        member: &Member<DB>,
        numbered: &Numbered<'_, DB>,
    ) -> Result<Option<()>, sqlx::Error> {
        let Some(before) = &self.row else {
            self.answer(DB::QueryResult::default(), false);
            return Ok(Some(()));
        };
        let Some(old) = self.counters(before) else { return Ok(None) };
        let mut new = old.clone();
        match numbered.delta.apply(&mut new, numbered.arguments) {
            Some(RowEffect::Changed) => {}
            Some(RowEffect::Unmet) => {
                self.answer(DB::QueryResult::default(), false);
                return Ok(Some(()));
            }
            None => return Ok(None),
        }
        let mut after = before.clone();
        for (column, value) in &new {
            let amount = value - old[column];
            if !(self.fits(*column, *value) && self.fits(*column, amount.abs())) {
                return Ok(None);
            }
            after.values[place_of(self.plan, *column)] = Value::Integer(*value);
            *self.totals.entry(*column).or_default() += amount;
        }
        let Some(counted) = self.counted.pop() else { return Ok(None) };
        let mut log = BranchLog::default();
        let (kind, before) = (kind(numbered.plan, self.loaded), before.clone());
        log.counted(self.loaded, &self.plan.columns, kind, before, after.clone());
        self.logs.add(&log, &member.branch)?;
        self.row = Some(after);
        self.answer(counted, true);
        Ok(Some(()))
    }

    fn answer(&mut self, answer: DB::QueryResult, is_met: bool) {
        self.answers.push(vec![Either::Left(answer)]);
        self.met.push(is_met);
    }

    /// The counters that the statements change, by column. `None` if one holds no number.
    fn counters(&self, row: &ImageRow) -> Option<BTreeMap<usize, i128>> {
        let counter = |column: usize| {
            let Value::Integer(value) = row.values[place_of(self.plan, column)] else {
                return None;
            };
            Some((column, value))
        };
        self.plan.deltas.iter().map(|delta| counter(delta.counter.column)).collect()
    }

    /// Whether the column holds such a value, as its undo has to bind it.
    fn fits(&self, column: usize, value: i128) -> bool {
        let column = &self.loaded.types[column];
        DB::bind(&mut DB::Arguments::default(), &Value::Integer(value), column).is_ok()
    }

    /// The statement that changes the row by the sum; `None` if there is nothing to change.
    ///
    /// # Errors
    /// If the column does not hold the sum.
    fn change(&self, key: &[Value]) -> Result<Option<(String, DB::Arguments)>, AtError> {
        if self.logs.is_empty() {
            return Ok(None);
        }
        let (mut counters, mut arguments) = (Vec::new(), DB::Arguments::default());
        for (&column, &amount) in &self.totals {
            counters.push((column, Direction::of(amount).unwrap_or(Direction::Up)));
            bind(&mut arguments, self.loaded, column, &Value::Integer(amount.abs()))?;
        }
        bind_key(&mut arguments, self.loaded, key, &self.plan.columns)?;
        let text = undo_sql::restore_counters(DB::DIALECT, &self.loaded.table, &counters);
        Ok(Some((text, arguments)))
    }
}

fn place_of(plan: &Update, column: usize) -> usize {
    let place = plan.columns.iter().position(|known| *known == column);
    place.expect("an image holds the key and every column that is assigned")
}
