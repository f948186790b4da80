//! Running a planned statement: images around the change, and the record of both.
//!
//! One file a kind. All of them write through [`StatementRun`], which holds the open local
//! transaction's connection and its record; nothing here decides what can be undone (the plan does)
//! or talks to the coordinator, but for reads that must be globally committed.

mod along;
mod counted;
mod delete;
mod delta;
mod insert;
mod key_change;
mod parents;
mod read;
mod selected;
mod several;
mod update;
mod upsert;
mod with_writes;

use std::sync::Arc;

use either::Either;
use handfast_rm_core::plan::{
    Arguments, Change, Dialect, ForeignKey, GeneratedKeys, KeyedQuery, Plan, Query,
    ReferentialAction, StatementRefusal,
    undo_sql::{self, RowLocking},
};
use sqlx::Database;

use super::branch_log::BranchLog;
use super::compound;
use crate::at::database::bind::{bind_key, bind_keys, rows_max};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Catalogue;
use crate::at::database::{Backend, LoadedTable, Steps, affected, rows};
use crate::at::error::AtError;
use crate::at::guarded::Mark;
use crate::at::undo::image::{Image, ImageRow, Layout, values_of};

/// A statement about to run.
pub(crate) struct StatementRun<'r, DB: Backend> {
    pub(crate) connection: &'r mut DB::Connection,
    /// Whether the first call has to begin the local transaction.
    pub(crate) begins: bool,
    /// The mark for guarded tables, if the call that begins the local transaction has to carry it.
    pub(crate) mark: Option<Mark>,
    /// Whether several statements may go out in one call.
    pub(crate) merges: bool,
    pub(crate) log: &'r mut BranchLog,
    /// The table that the plan is about.
    pub(crate) loaded: &'r Arc<LoadedTable<DB>>,
    /// All tables of the statement that were described to the planner.
    pub(crate) tables: &'r [Arc<LoadedTable<DB>>],
    pub(crate) catalogue: &'r Catalogue<DB>,
    /// The application's query.
    pub(crate) query: BoundQuery<DB>,
}

/// The savepoint around a statement that may fail half-way.
const SAVEPOINT: &str = "hf_statement";

/// How much a change does before it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// One row at most, which the database writes when nothing can fail any more.
    OneRow,
    /// Any number of rows, or something beside them.
    Any,
}

impl<DB: Backend> StatementRun<'_, DB> {
    /// Runs the statement by its plan and records what is to be undone and locked.
    pub(crate) async fn execute(mut self, plan: &Plan) -> Result<Steps<DB>, sqlx::Error> {
        match plan {
            Plan::Pass => DB::steps(self.connection, self.query).await,
            Plan::LockingRead(plan) => self.locking_read(plan).await,
            Plan::JoinedRead(plan) => self.joined_read(plan).await,
            Plan::Update(plan) => self.update(plan).await,
            Plan::Delete(plan) => self.delete(plan).await,
            Plan::Insert(plan) => self.insert(plan).await,
            Plan::Upsert(plan) => self.upsert(plan).await,
            Plan::Selected(plan) => self.selected(plan).await,
            Plan::Several(plan) => self.several(plan).await,
            Plan::With(plan) => self.with_writes(plan).await,
        }
    }

    /// Runs a change. From here until [`StatementRun::recorded`] the local transaction cannot be
    /// committed, also if the future is dropped in between.
    async fn change(&mut self, query: &Query) -> Result<Steps<DB>, sqlx::Error> {
        let captured = self.bound(query);
        self.change_by(captured).await
    }

    async fn change_by(&mut self, captured: BoundQuery<DB>) -> Result<Steps<DB>, sqlx::Error> {
        self.change_within(Extent::Any, captured).await
    }

    async fn change_within(
        &mut self,
        extent: Extent,
        captured: BoundQuery<DB>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let was_half_recorded = self.log.half_recorded;
        self.log.half_recorded = true;
        let result = if DB::FAILS_HALF_WAY && extent == Extent::Any {
            self.all_or_nothing(captured).await
        } else {
            DB::steps(self.connection, captured).await
        };
        if let Err(error) = &result
            && error.as_database_error().is_some()
        {
            // The database has undone the whole statement.
            self.log.half_recorded = was_half_recorded;
        }
        result
    }

    async fn all_or_nothing(&mut self, captured: BoundQuery<DB>) -> Result<Steps<DB>, sqlx::Error> {
        let merges = self.merges && compound::takes(captured.sql().as_str());
        let result = if merges {
            let text = compound::within_savepoint::<DB>(SAVEPOINT, captured.sql().as_str());
            let call = captured.with_text(&text);
            DB::steps(self.connection, call).await.map(compound::inner_answers::<DB>)
        } else {
            self.control("SAVEPOINT").await?;
            DB::steps(self.connection, captured).await
        };
        match &result {
            Ok(_) if merges => return result,
            Ok(_) => {}
            // The savepoint has gone with the transaction.
            Err(error) if DB::ends_transaction(error) => return result,
            Err(_) => {
                if self.control("ROLLBACK TO SAVEPOINT").await.is_err() {
                    // The statement has ended the whole transaction and with it the savepoint, as
                    // SQLite's RAISE(ROLLBACK) does. In any case nothing more may be added to it.
                    self.log.ended = true;
                    return result;
                }
            }
        }
        if let Err(error) = self.control("RELEASE SAVEPOINT").await {
            // A change that succeeded is still there, without an undo item, and the caller would
            // take the error for that of a change which the database has undone.
            self.log.ended = true;
            return result.and(Err(error));
        }
        result
    }

    async fn control(&mut self, verb: &str) -> Result<(), sqlx::Error> {
        let text = format!("{verb} {SAVEPOINT}");
        DB::steps(self.connection, BoundQuery::plain(text)).await?;
        Ok(())
    }

    /// Runs a change by its plan, for the rows imaged.
    async fn change_rows(
        &mut self,
        change: &Change,
        extent: Extent,
        before: &[ImageRow],
        columns: &[usize],
    ) -> Result<Steps<DB>, sqlx::Error> {
        match change {
            Change::ByPredicate(query) => {
                let captured = self.bound(query);
                self.change_within(extent, captured).await
            }
            Change::ByKey(keyed) => self.change_by_key(keyed, before, columns).await,
        }
    }

    async fn change_by_key(
        &mut self,
        keyed: &KeyedQuery,
        before: &[ImageRow],
        columns: &[usize],
    ) -> Result<Steps<DB>, sqlx::Error> {
        if before.is_empty() {
            return Ok(vec![Either::Left(<DB as Database>::QueryResult::default())]);
        }
        // In several statements, the assigned query would see in a later one what an earlier one
        // has changed.
        if keyed.is_at_once() && before.len() > keyed.rows_max() {
            let (rows, rows_max) = (before.len(), keyed.rows_max());
            return Err(AtError::TooManyRows { rows, rows_max }.into());
        }
        let mut steps = Steps::<DB>::new();
        let mut total = <DB as Database>::QueryResult::default();
        for chunk in before.chunks(keyed.rows_max()) {
            let query = keyed.for_rows(chunk.len());
            let mut captured = self.query.with_text(&query.text);
            let arguments = captured.arguments.get_or_insert_default();
            bind_keys(arguments, self.loaded, values_of(chunk), columns)?;
            // After the first chunk the mark is set already and stays, whatever the error: what
            // that chunk changed has no undo item yet.
            for step in self.change_by(captured).await? {
                match step {
                    Either::Left(result) => total.extend([result]),
                    Either::Right(row) => steps.push(Either::Right(row)),
                }
            }
        }
        steps.push(Either::Left(total));
        Ok(steps)
    }

    /// Refuses rows that refer to themselves where the database would not delete them, which is the
    /// undo of their INSERT. What they refer to is known only now that they are there.
    fn require_deletable<'i>(
        &self,
        columns: &[usize],
        mut inserted: impl Iterator<Item = &'i ImageRow>,
    ) -> Result<(), AtError> {
        let table = &self.loaded.table;
        let value = |row: &'i ImageRow, column: &usize| {
            let at = columns.iter().position(|known| known == column)?;
            Some(&row.values[at]).filter(|value| !value.is_null())
        };
        let refers = |row: &'i ImageRow, key: &ForeignKey| {
            let mut pairs = key.own_columns.iter().zip(&key.referenced);
            pairs.all(|(own, referenced)| {
                let own = value(row, own);
                own.is_some() && own == value(row, referenced)
            })
        };
        let keys: Vec<&ForeignKey> =
            table.referenced_by.iter().filter(|key| keeps_itself::<DB>(key)).collect();
        if inserted.any(|row| keys.iter().any(|key| refers(row, key))) {
            let refusal = StatementRefusal::RowRefersToItself { table: table.full_name() };
            return Err(AtError::Refused(refusal));
        }
        Ok(())
    }

    /// The change has its undo item.
    fn recorded(&mut self) {
        self.log.half_recorded = false;
    }

    /// Reads rows by a query of the plan.
    async fn read(&mut self, query: &Query, columns: &[usize]) -> Result<Image, sqlx::Error> {
        let steps = self.answer(query).await?;
        Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))
    }

    /// Reads rows that are about to be changed. If they are judged, one that breaks a constraint,
    /// and so could not be put back, ends the statement before it has changed anything.
    async fn read_before(
        &mut self,
        query: &Query,
        columns: &[usize],
        judged: bool,
    ) -> Result<Image, sqlx::Error> {
        let steps = self.answer(query).await?;
        self.judge(self.loaded, rows_of::<DB>(&steps), columns, judged).await
    }

    /// As [`StatementRun::read_before`], of rows that were read.
    async fn judge<'a>(
        &mut self,
        loaded: &LoadedTable<DB>,
        rows: impl IntoIterator<Item = &'a DB::Row>,
        columns: &[usize],
        judged: bool,
    ) -> Result<Image, sqlx::Error> {
        if !judged {
            return Layout::of(columns).rows(loaded, rows);
        }
        let mut image = Image::new();
        for row in rows {
            let imaged = Layout { columns, behind: 1 }.row(loaded, row)?;
            if let Some(constraint) = DB::text(row, DB::width(row) - 1)?
                && self.is_broken(loaded, &constraint, &imaged, columns).await?
            {
                let table = loaded.table.full_name();
                let refusal = StatementRefusal::RowBreaksConstraint { table, constraint };
                return Err(AtError::Refused(refusal).into());
            }
            image.push(imaged);
        }
        Ok(image)
    }

    /// Whether a row that has read as breaking a constraint does so.
    async fn is_broken(
        &mut self,
        loaded: &LoadedTable<DB>,
        constraint: &str,
        row: &ImageRow,
        columns: &[usize],
    ) -> Result<bool, sqlx::Error> {
        let text = undo_sql::broken_again(DB::DIALECT, &loaded.table, constraint);
        // A row without a key cannot be asked for again.
        let Some(text) = text.filter(|_| !loaded.table.whole_rows) else {
            // Only a foreign key on MySQL is asked again, where the snapshot of the first read may
            // be older than the parent.
            return Ok(true);
        };
        let mut arguments = DB::Arguments::default();
        bind_key(&mut arguments, loaded, &row.values, columns)?;
        Ok(!rows::<DB>(self.connection, text, arguments).await?.is_empty())
    }

    /// Runs a read of the plan.
    async fn answer(&mut self, query: &Query) -> Result<Steps<DB>, sqlx::Error> {
        let captured = if std::mem::take(&mut self.begins) {
            match self.mark.take() {
                None => self.query.with_text(&compound::begin_and::<DB>(&query.text)),
                Some(mark) => {
                    let text = compound::begin_read_and_mark::<DB>(&query.text, Mark::text::<DB>());
                    let mut call = self.query.with_text(&text);
                    mark.bind::<DB>(call.arguments.get_or_insert_default());
                    call
                }
            }
        } else {
            self.bound(query)
        };
        DB::steps(self.connection, captured).await
    }

    /// Reads rows again by the keys of an image.
    async fn read_again(&mut self, image: &Image, columns: &[usize]) -> Result<Image, sqlx::Error> {
        self.read_by_keys(image, columns, RowLocking::None).await
    }

    async fn read_by_keys(
        &mut self,
        image: &Image,
        columns: &[usize],
        locking: RowLocking,
    ) -> Result<Image, sqlx::Error> {
        self.read_rows(self.loaded, image, columns, locking).await
    }

    /// The same of any table.
    async fn read_rows(
        &mut self,
        loaded: &LoadedTable<DB>,
        image: &Image,
        columns: &[usize],
        locking: RowLocking,
    ) -> Result<Image, sqlx::Error> {
        let table = &loaded.table;
        let mut found = Image::with_capacity(image.len());
        for chunk in image.chunks(rows_max::<DB>(table.key.columns.len())) {
            let text = undo_sql::select_by_keys(DB::DIALECT, table, columns, chunk.len(), locking);
            let mut arguments = DB::Arguments::default();
            bind_keys(&mut arguments, loaded, values_of(chunk), columns)?;
            let again = rows::<DB>(self.connection, text, arguments).await?;
            found.extend(Layout::of(columns).rows(loaded, &again)?);
        }
        Ok(found)
    }

    /// Rows that a change has returned, as they stand after it: what an AFTER trigger then wrote to
    /// its own row is not in them.
    async fn settled(&mut self, returned: Image, columns: &[usize]) -> Result<Image, sqlx::Error> {
        let triggered = self.loaded.table.is_filled_by_triggers();
        if triggered { self.read_again(&returned, columns).await } else { Ok(returned) }
    }

    /// Reads rows by the keys that the database generated for this statement.
    async fn read_generated(
        &mut self,
        keys: &GeneratedKeys,
        steps: &Steps<DB>,
        columns: &[usize],
    ) -> Result<Image, sqlx::Error> {
        let results = steps.iter().filter_map(|step| step.as_ref().left());
        // MySQL reports 0 where it has generated no number.
        let first = results.filter_map(DB::last_insert_id).find(|id| *id != 0);
        let Some(first) = first else { return Ok(Image::new()) };
        let step = if keys.rows > 1 { DB::key_step(self.connection).await? } else { 1 };
        let query = keys.query(first, step);
        let captured = self.query.with_text(&query.text);
        let captured = if keys.is_sure { captured } else { captured.uncached() };
        let steps = DB::steps(self.connection, captured).await?;
        Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))
    }

    /// The application's arguments under a text of the plan.
    fn bound(&self, query: &Query) -> BoundQuery<DB> {
        match query.arguments {
            Arguments::AsBound | Arguments::AsBoundThenKeys => self.query.with_text(&query.text),
        }
    }

    /// Refuses a change that met other rows than were imaged.
    fn expect_rows(
        &self,
        statement: &'static str,
        imaged: usize,
        changed: u64,
    ) -> Result<(), AtError> {
        let imaged = imaged as u64;
        if imaged == changed {
            return Ok(());
        }
        Err(self.rows_differ(statement, imaged, changed))
    }

    fn rows_differ(&self, statement: &'static str, imaged: u64, changed: u64) -> AtError {
        AtError::RowsDiffer { statement, table: self.loaded.table.full_name(), imaged, changed }
    }
}

/// Whether a row that refers to itself by the key cannot be deleted. The other databases look at
/// foreign keys when the statement is done.
fn keeps_itself<DB: Backend>(key: &ForeignKey) -> bool {
    let refuses = key.on_delete == ReferentialAction::Refuse && !key.own_columns.is_empty();
    refuses && DB::DIALECT == Dialect::MySql
}

/// How many rows a statement changed. Where MariaDB returns rows, its answer has no count, and each
/// row is one that was changed.
fn changed<DB: Backend>(steps: &Steps<DB>, returning: bool) -> u64 {
    match DB::DIALECT {
        Dialect::MySql if returning => rows_of::<DB>(steps).count() as u64,
        Dialect::MySql | Dialect::Postgres | Dialect::Sqlite => affected::<DB>(steps),
    }
}

/// The rows among what a statement answered.
fn rows_of<DB: Backend>(steps: &Steps<DB>) -> impl Iterator<Item = &DB::Row> {
    steps.iter().filter_map(|step| step.as_ref().right())
}

/// Returns the part that the application sees: its own rows, or the counts alone if all rows are
/// ours.
fn for_application<DB: Backend>(steps: Steps<DB>, user_returning: bool) -> Steps<DB> {
    if user_returning { steps } else { steps.into_iter().filter(Either::is_left).collect() }
}
