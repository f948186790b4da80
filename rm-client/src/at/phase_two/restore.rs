//! Undoes one undo item: decides of each row whether it still is as the branch left it, and has the
//! rows written that are (`put_back`).
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

use super::dirty_row;
use super::obstacle::Obstacle;
use super::referring::{Referred, RowsToDelete};
use crate::at::database::bind::{bind_key, rows_max};
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable, rows};
use crate::at::undo::image::Layout;
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
    pub(super) fn same(&self, found: Option<&Vec<Value>>, image: Option<&Vec<Value>>) -> bool {
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
