//! Puts the rows of one undo item back, if they still are as the branch left them.
//!
//! | current row | outcome |
//! | --- | --- |
//! | as the branch left it | put back |
//! | as it was before | left alone: it is back already |
//! | anything else | refused: another transaction has written it |
//!
//! The columns that the branch wrote are compared. Columns that the database changes by itself are
//! put back, but not compared, and counters are given back by `counters`. Where an operator has the
//! clean rows put back, a row that would be refused is left as it is.

use std::collections::{HashMap, HashSet};

use handfast_proto::v1::DirtyRow;
use handfast_rm_core::plan::undo_sql::{self, RowLocking};
use handfast_rm_core::plan::{Dialect, Generation};

use super::dirty_row;
use super::obstacle::Obstacle;
use super::referring::{Referred, RowsToDelete};
use crate::at::database::bind::{bind, bind_key, rows_max};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::error_class;
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable, execute, rows};
use crate::at::undo::image::{Layout, part};
use crate::at::undo::log::{ColumnRole, UndoItem, UndoKind};

/// How the items of a branch are undone.
#[derive(Debug)]
pub(crate) enum RestoreMode {
    /// Every row, or none where one is dirty.
    Whole,
    /// Every row, whatever is there.
    Force,
    /// The rows that are not dirty: those named are left, in every item.
    Clean(HashSet<RowName>),
}

impl RestoreMode {
    fn criterion(&self) -> Criterion {
        match self {
            Self::Whole | Self::Clean(_) => Criterion::Images,
            Self::Force => Criterion::Force,
        }
    }

    /// Returns how many rows are left as they are.
    pub(crate) fn left(&self) -> usize {
        match self {
            Self::Clean(left) => left.len(),
            Self::Whole | Self::Force => 0,
        }
    }
}

/// A row of a branch, whichever items it is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowName {
    pub(crate) schema: String,
    pub(crate) table: String,
    /// The key values as one text.
    pub(crate) key: String,
}

/// An undo item and the table that it goes back to.
pub(crate) struct Restore<'r, DB: Backend> {
    pub(crate) connection: &'r mut DB::Connection,
    pub(crate) loaded: &'r LoadedTable<DB>,
    pub(crate) item: &'r UndoItem,
    /// For each column of the item, its place in the table.
    pub(crate) columns: Vec<usize>,
    /// Whether rows are put back over whatever is there.
    pub(crate) is_forced: bool,
}

/// A row of the item: as it was and as the branch left it; `None` is no row.
pub(super) struct Row<'r> {
    pub(super) before: Option<&'r Vec<Value>>,
    pub(super) after: Option<&'r Vec<Value>>,
}

impl<'r> Row<'r> {
    /// The values that name the row: its key is the same before and after.
    pub(super) fn named(&self) -> &'r Vec<Value> {
        self.after.or(self.before).expect("a row of an undo item is there before or after")
    }
}

/// A row of the item, and what is there.
pub(super) type Found<'r, 'f> = (Row<'r>, Option<&'f Vec<Value>>);

/// The test by which a row is put back or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Criterion {
    /// By its images: a row that is neither as it was nor as the branch left it is dirty.
    Images,
    /// By nothing: the row is put back over whatever is there.
    Force,
}

/// The action for a row.
pub(super) enum RowAction {
    PutBack,
    LeaveAlone,
    Dirty,
}

impl<DB: Backend> Restore<'_, DB> {
    /// Undoes the item.
    pub(crate) async fn execute(mut self, mode: &mut RestoreMode) -> Result<(), Obstacle> {
        let item = self.item;
        let all = rows_of(item);
        // Locked from here to COMMIT, so that what is judged is what is written over.
        let current = self.current(&all).await?;
        let mut put_back = Vec::new();
        let mut dirty = Vec::new();
        for row in all {
            let found = current.get(&self.name(row.named()));
            match self.judge(&row, found, mode.criterion()) {
                RowAction::PutBack => put_back.push((row, found)),
                RowAction::LeaveAlone => {}
                RowAction::Dirty => dirty.push((row, found)),
            }
        }
        if item.kind == UndoKind::Insert && !matches!(mode, RestoreMode::Force) {
            let referred = self.keep_referred(&mut put_back, &mut dirty).await?;
            if !referred.is_empty() && matches!(mode, RestoreMode::Whole) {
                return Err(self.refuse_referred(&dirty, referred).await);
            }
        }
        if let RestoreMode::Clean(left) = mode {
            left.extend(dirty.iter().map(|(row, _)| self.row_name(row)));
            // A row that an item met before has left keeps all its changes: with some of them
            // undone it would be a row that never was.
            put_back.retain(|(row, _)| !left.contains(&self.row_name(row)));
        } else if !dirty.is_empty() {
            return Err(self.refuse(&dirty).await);
        }
        match item.kind {
            UndoKind::Update => {
                let rows = put_back.iter().map(|(row, _)| row).collect();
                let rows = self.leavers_first(rows);
                self.write_back(rows.into_iter().map(|row| (row.before, row.after))).await?;
                self.settle(&put_back).await
            }
            UndoKind::Insert => self.remove(put_back.iter().map(|(row, _)| row.named())).await,
            UndoKind::Delete => {
                // Forced over a row that has taken the key meanwhile: that row is written over.
                let (there, gone): (Vec<_>, Vec<_>) =
                    put_back.iter().partition(|(_, found)| found.is_some());
                self.write_back(there.iter().map(|(row, _)| (row.before, row.after))).await?;
                self.insert_again(gone.iter().filter_map(|(row, _)| row.before)).await?;
                self.settle(&put_back).await
            }
        }
    }

    /// Decides what to do with a row, by what is there.
    pub(super) fn judge(
        &self,
        row: &Row<'_>,
        found: Option<&Vec<Value>>,
        criterion: Criterion,
    ) -> RowAction {
        if self.loaded.table.whole_rows {
            return self.judge_whole(found, criterion);
        }
        if criterion == Criterion::Force {
            return match (self.item.kind, found) {
                // Nothing to remove; nothing to write over, for the image has not all columns.
                (UndoKind::Insert | UndoKind::Update, None) => RowAction::LeaveAlone,
                (UndoKind::Insert | UndoKind::Update | UndoKind::Delete, _) => RowAction::PutBack,
            };
        }
        if found.is_some_and(|found| !self.takes_amounts(row, found)) {
            RowAction::Dirty
        } else if self.same(found, row.after) {
            RowAction::PutBack
        } else if self.same(found, row.before) {
            RowAction::LeaveAlone
        } else {
            RowAction::Dirty
        }
    }

    /// Whether two rows are equal in what the branch wrote, or both not there.
    fn same(&self, found: Option<&Vec<Value>>, image: Option<&Vec<Value>>) -> bool {
        match (found, image) {
            (None, None) => true,
            (Some(found), Some(image)) => {
                let columns = self.item.columns.iter();
                let pairs = columns.zip(found.iter().zip(image));
                pairs
                    .filter(|(column, _)| column.role == ColumnRole::Written)
                    .all(|(_, (a, b))| a == b)
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// The rows as they are, locked, by name.
    pub(super) async fn current(
        &mut self,
        all: &[Row<'_>],
    ) -> Result<HashMap<String, Vec<Value>>, Obstacle> {
        let table = &self.loaded.table;
        if table.whole_rows {
            return self.current_equal(all).await;
        }
        let mut found = HashMap::new();
        for chunk in all.chunks(rows_max::<DB>(table.key.columns.len())) {
            let columns = &self.columns;
            let text = undo_sql::select_by_keys(
                DB::DIALECT,
                table,
                columns,
                chunk.len(),
                RowLocking::ForUpdate,
            );
            let mut arguments = DB::Arguments::default();
            for row in chunk {
                bind_key(&mut arguments, self.loaded, row.named(), columns)?;
            }
            let current = rows::<DB>(self.connection, text, arguments).await?;
            for row in Layout::of(columns).rows(self.loaded, &current)? {
                found.insert(self.name(&row.values), row.values);
            }
        }
        Ok(found)
    }

    pub(super) fn row_name(&self, row: &Row<'_>) -> RowName {
        self.name_of(row.named())
    }

    pub(super) fn name_of(&self, values: &[Value]) -> RowName {
        let (schema, table) = (self.item.schema.clone(), self.item.table.clone());
        RowName { schema, table, key: self.name(values) }
    }

    /// The key values of a row as one text.
    pub(super) fn name(&self, values: &[Value]) -> String {
        let keyed = self.item.columns.iter().zip(values);
        let whole = self.loaded.table.whole_rows;
        let key: Vec<&Value> = keyed
            .filter(|(column, _)| whole || column.role == ColumnRole::Key)
            .map(|(_, value)| value)
            .collect();
        serde_json::to_string(&key).expect("key values have a JSON form: they came from one")
    }

    async fn refuse(&mut self, dirty: &[(Row<'_>, Option<&Vec<Value>>)]) -> Obstacle {
        let (loaded, item, columns) = (self.loaded, self.item, &self.columns);
        let mut shown = Vec::new();
        for (row, found) in dirty.iter().take(dirty_row::ROWS_MAX) {
            let images = [row.before, row.after, *found].map(|image| image.map(Vec::as_slice));
            shown.push(dirty_row::describe(self.connection, loaded, item, columns, images).await);
        }
        let table = loaded.table.full_name();
        let error = format!(
            "dirty write: {} of {} rows of {table} were changed by others since",
            dirty.len(),
            item.before.len().max(item.after.len()),
        );
        Obstacle::Refused { error, rows: shown }
    }

    /// Moves the rows that rows of others refer to from those to be deleted to the dirty ones. A
    /// row that then stays keeps those that it refers to itself.
    async fn keep_referred<'i, 'f>(
        &mut self,
        put_back: &mut Vec<Found<'i, 'f>>,
        dirty: &mut Vec<Found<'i, 'f>>,
    ) -> Result<Vec<Referred>, Obstacle> {
        let mut all = Vec::new();
        loop {
            let rows = put_back.iter().map(|(row, _)| row.named()).collect();
            let (loaded, columns) = (self.loaded, self.columns.as_slice());
            let doomed = RowsToDelete::<DB> { connection: self.connection, loaded, columns, rows };
            let Some(referred) = doomed.referred().await? else { return Ok(all) };
            // From the back, so that the indexes that are still to come stay valid.
            for index in referred.rows.iter().rev() {
                dirty.push(put_back.remove(*index));
            }
            all.push(referred);
        }
    }

    async fn refuse_referred(&mut self, dirty: &[Found<'_, '_>], all: Vec<Referred>) -> Obstacle {
        let table = self.loaded.table.full_name();
        let of = self.item.after.len();
        let mut reasons: Vec<String> =
            all.iter().map(|referred| referred.reason(&table, of)).collect();
        let kept: usize = all.iter().map(|referred| referred.rows.len()).sum();
        if dirty.len() > kept {
            reasons.push(format!("{} were changed by others since", dirty.len() - kept));
        }
        let mut shown: Vec<DirtyRow> = all.into_iter().flat_map(|referred| referred.by).collect();
        if let Obstacle::Refused { rows, .. } = self.refuse(dirty).await {
            shown.extend(rows);
        }
        shown.truncate(dirty_row::ROWS_MAX);
        Obstacle::Refused { error: format!("dirty write: {}", reasons.join("; ")), rows: shown }
    }

    /// Writes over rows what they were, given with what the branch left of them.
    async fn write_back<'i>(
        &mut self,
        rows: impl Iterator<Item = (Option<&'i Vec<Value>>, Option<&'i Vec<Value>>)>,
    ) -> Result<(), Obstacle> {
        for (row, after) in rows {
            let Some(row) = row else { continue };
            let written = |at: &usize| self.is_written(*at) && !self.is_left(*at, row, after);
            let places: Vec<usize> = (0..self.columns.len()).filter(written).collect();
            if !places.is_empty() {
                self.write_places(&places, row).await?;
            }
            self.give_back(row, after.map(Vec::as_slice)).await?;
        }
        Ok(())
    }

    /// Returns whether a trigger of the table could have changed a column and has not: what another
    /// program has written there meanwhile is not compared, and must stay for the item that has
    /// written the column, unless nothing is compared. `ON UPDATE` columns are written all the
    /// same, or the database sets them.
    pub(super) fn is_left(&self, at: usize, before: &[Value], after: Option<&Vec<Value>>) -> bool {
        let follows = self.loaded.table.columns[self.columns[at]].on_update;
        let maintained = self.item.columns[at].role == ColumnRole::Maintained && !follows;
        let stays = maintained && !self.is_forced;
        stays && after.is_some_and(|after| before[at] == after[at])
    }

    /// Writes some columns of a row back, by their places in the image.
    pub(super) async fn write_places(
        &mut self,
        places: &[usize],
        row: &Vec<Value>,
    ) -> Result<(), Obstacle> {
        let columns: Vec<usize> = places.iter().map(|at| self.columns[*at]).collect();
        let text = undo_sql::restore_updated(DB::DIALECT, &self.loaded.table, &columns);
        let mut arguments = DB::Arguments::default();
        for at in places {
            bind(&mut arguments, self.loaded, self.columns[*at], &row[*at])?;
        }
        bind_key(&mut arguments, self.loaded, row, &self.columns)?;
        self.write(text, arguments, &[row]).await?;
        Ok(())
    }

    /// Runs a restoring statement, and returns how many rows it wrote. Where strict rules refuse a
    /// value that was there, it goes back without them, and the rows are read again: rules that are
    /// not strict cut off what does not fit, and say nothing.
    async fn write(
        &mut self,
        text: String,
        arguments: DB::Arguments,
        rows: &[&Vec<Value>],
    ) -> Result<u64, Obstacle> {
        let Some([lenient, strict]) = DB::UNDO_LENIENT else {
            return Ok(execute::<DB>(self.connection, text, arguments).await?);
        };
        let again = BoundQuery::ours(text.clone(), arguments.clone());
        let error = match execute::<DB>(self.connection, text, arguments).await {
            Ok(written) => return Ok(written),
            Err(error) => error,
        };
        if !error_class::needs_lenient_mode(&error) {
            return Err(error.into());
        }
        // Strict again at once: no other value of this undo may be cut off in silence.
        for statement in
            [BoundQuery::plain(lenient.to_owned()), again, BoundQuery::plain(strict.to_owned())]
        {
            DB::steps(self.connection, statement).await?;
        }
        if self.are_back(rows).await? { Ok(rows.len() as u64) } else { Err(error.into()) }
    }

    async fn are_back(&mut self, rows: &[&Vec<Value>]) -> Result<bool, Obstacle> {
        let row = |row| Row { before: Some(row), after: None };
        let rows: Vec<Row<'_>> = rows.iter().copied().map(row).collect();
        let current = self.current(&rows).await?;
        let is_back = |row: &Row<'_>| self.same(current.get(&self.name(row.named())), row.before);
        Ok(rows.iter().all(is_back))
    }

    pub(super) fn is_written(&self, at: usize) -> bool {
        let generation = self.loaded.table.columns[self.columns[at]].generation;
        // PostgreSQL takes no value for such a column in an UPDATE, and no UPDATE that is run
        // assigns it.
        let fixed = matches!(generation, Generation::Computed | Generation::IdentityAlways);
        let role = self.item.columns[at].role;
        !matches!(role, ColumnRole::Key | ColumnRole::Counter) && !fixed
    }

    async fn remove<'i>(
        &mut self,
        rows: impl Iterator<Item = &'i Vec<Value>>,
    ) -> Result<(), Obstacle> {
        if self.loaded.table.whole_rows {
            return self.remove_equal(rows.collect()).await;
        }
        // Children before their parents: MySQL checks each row as it goes.
        let mut rows = self.parents_first(rows.collect());
        rows.reverse();
        let table = &self.loaded.table;
        for chunk in rows.chunks(self.chunk(table.key.columns.len())) {
            let text = undo_sql::remove_inserted(DB::DIALECT, table, chunk.len());
            let mut arguments = DB::Arguments::default();
            for row in chunk {
                bind_key(&mut arguments, self.loaded, row, &self.columns)?;
            }
            execute::<DB>(self.connection, text, arguments).await?;
        }
        Ok(())
    }

    async fn insert_again<'i>(
        &mut self,
        rows: impl Iterator<Item = &'i Vec<Value>>,
    ) -> Result<(), Obstacle> {
        let table = &self.loaded.table;
        let stored = table.stored();
        let places = self.places_of_all()?;
        let rows = self.parents_first(rows.collect());
        for chunk in rows.chunks(rows_max::<DB>(stored.len())) {
            let text = undo_sql::restore_deleted(DB::DIALECT, table, chunk.len());
            let mut arguments = DB::Arguments::default();
            for row in chunk {
                for (column, at) in stored.iter().zip(&places) {
                    bind(&mut arguments, self.loaded, *column, &row[*at])?;
                }
            }
            let inserted = self.write(text, arguments, chunk).await?;
            if inserted < chunk.len() as u64 {
                let error =
                    format!("a trigger keeps rows of {} from being put back", table.full_name());
                return Err(Obstacle::refused(error));
            }
        }
        Ok(())
    }

    /// Orders rows that refer to each other. PostgreSQL and SQLite check a statement as a whole,
    /// MySQL row by row.
    fn parents_first<'i>(&self, rows: Vec<&'i Vec<Value>>) -> Vec<&'i Vec<Value>> {
        let mut ahead = vec![Vec::new(); rows.len()];
        let keys = self.loaded.table.referenced_by.iter();
        for key in keys.filter(|key| !key.own_columns.is_empty()) {
            let link = |row: &&'i Vec<Value>| {
                (
                    part(&self.columns, row, &key.referenced),
                    part(&self.columns, row, &key.own_columns),
                )
            };
            let links: Vec<_> = rows.iter().map(link).collect();
            for (ahead, more) in ahead.iter_mut().zip(undo_sql::referred_rows(&links)) {
                ahead.extend(more);
            }
        }
        undo_sql::after_their_own(&ahead).into_iter().map(|index| rows[index]).collect()
    }

    /// Orders rows by their unique values: a row that holds a value which another row had before
    /// comes ahead of that row, since the value is free only then. A cycle can only have arisen
    /// under a deferred constraint, which the undo defers too.
    fn leavers_first<'a, 'i>(&self, rows: Vec<&'a Row<'i>>) -> Vec<&'a Row<'i>> {
        let mut ahead = vec![Vec::new(); rows.len()];
        for index in &self.loaded.table.unique {
            let part = |values: Option<&Vec<Value>>| part(&self.columns, values?, &index.columns);
            let leaving: HashMap<String, usize> = (0..rows.len())
                .filter_map(|at| part(rows[at].after).map(|value| (value, at)))
                .collect();
            for (at, row) in rows.iter().enumerate() {
                let leaver = part(row.before).and_then(|value| leaving.get(&value));
                ahead[at].extend(leaver.copied().filter(|leaver| *leaver != at));
            }
        }
        undo_sql::after_their_own(&ahead).into_iter().map(|index| rows[index]).collect()
    }

    /// How many rows one DELETE may name: one where rows refer to each other and are checked one by
    /// one.
    fn chunk(&self, key_columns: usize) -> usize {
        let refers = self.loaded.table.referenced_by.iter().any(|key| !key.own_columns.is_empty());
        if refers && DB::DIALECT == Dialect::MySql { 1 } else { rows_max::<DB>(key_columns) }
    }
}

pub(super) fn rows_of(item: &UndoItem) -> Vec<Row<'_>> {
    let (before, after) = (item.before.iter().map(Some), item.after.iter().map(Some));
    match item.kind {
        UndoKind::Insert => after.map(|after| Row { before: None, after }).collect(),
        UndoKind::Delete => before.map(|before| Row { before, after: None }).collect(),
        UndoKind::Update => {
            before.zip(after).map(|(before, after)| Row { before, after }).collect()
        }
    }
}
