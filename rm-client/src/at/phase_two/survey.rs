//! All rows that a branch has written: how each stands beside what the branch found and left, and
//! what each resolution would make of it. Reads only.
//!
//! A row may be in several items. Here it is one row: it is dirty if any of its items is, as it
//! would be met on the way back from the newest item to the oldest.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, btree_map};

use handfast_proto::v1::{RowChange, RowStanding};
use handfast_rm_core::plan::TableName;

use super::counters::difference;
use super::load_table::load_table;
use super::obstacle::Obstacle;
use super::restore::{Criterion, Restore, Row, RowAction, RowName, rows_of};
use crate::at::database::value::Value;
use crate::at::database::{AtDatabase, Backend, LoadedTable};
use crate::at::resource_state::ResourceState;
use crate::at::undo::log::{ColumnRole, UndoKind, UndoLog};

/// The rows of a branch.
pub(crate) struct Survey<'l, DB: Backend> {
    pub(crate) tables: HashMap<TableName, LoadedTable<DB>>,
    /// Each once; those of the newest item come first.
    pub(crate) rows: Vec<SurveyedRow<'l>>,
}

/// A row of a branch.
pub(crate) struct SurveyedRow<'l> {
    pub(crate) name: RowName,
    /// The newest item that it is in.
    pub(crate) item: usize,
    /// By place in the table.
    pub(crate) key: BTreeMap<usize, &'l Value>,
    pub(crate) cells: BTreeMap<usize, SurveyedColumn<'l>>,
    is_there: bool,
    is_dirty: bool,
    clean: ResolvedRow,
    forced: ResolvedRow,
}

/// A column of a row; `None` where there is no row.
pub(crate) struct SurveyedColumn<'l> {
    pub(crate) before: Option<&'l Value>,
    pub(crate) after: Option<&'l Value>,
    pub(crate) current: Option<Value>,
}

/// A row as a resolution would have made it of what is there, down to an item.
struct ResolvedRow {
    is_there: bool,
    is_touched: bool,
    written: BTreeMap<usize, Value>,
}

impl<'l, DB: AtDatabase> Survey<'l, DB> {
    /// Reads the rows of all items, and locks them until the local transaction ends.
    pub(crate) async fn take(
        connection: &mut DB::Connection,
        shared: &ResourceState<DB>,
        log: &'l UndoLog,
    ) -> Result<Self, Obstacle> {
        let (mut tables, mut rows) = (HashMap::new(), Vec::new());
        let (mut places, mut equals) = (HashMap::new(), HashMap::new());
        for (number, item) in log.items.iter().enumerate().rev() {
            let loaded: &LoadedTable<DB> = match tables.entry(item.table_name()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let loaded = load_table::<DB>(connection, shared, place.key()).await?;
                    place.insert(loaded)
                }
            };
            let columns = item.columns_in(loaded)?;
            let connection = &mut *connection;
            let mut restore = Restore::<DB> { connection, loaded, item, columns, is_forced: false };
            let of_item = rows_of(item);
            if loaded.table.whole_rows {
                for equal in restore.count_equal(&of_item).await? {
                    let name = restore.name_of(&equal.values);
                    equals.entry(name).or_insert(equal.there);
                }
                for row in &of_item {
                    let name = restore.row_name(row);
                    let there = equals.entry(name.clone()).or_default();
                    let at = *places.entry(name).or_insert_with_key(|name| {
                        rows.push(SurveyedRow::new(name.clone(), number, *there > 0));
                        rows.len() - 1
                    });
                    rows[at].meet_equal(&restore, row, there);
                }
                continue;
            }
            let current = restore.current(&of_item).await?;
            for row in &of_item {
                let name = restore.row_name(row);
                let found = current.get(&name.key);
                let at = *places.entry(name).or_insert_with_key(|name| {
                    rows.push(SurveyedRow::new(name.clone(), number, found.is_some()));
                    rows.len() - 1
                });
                rows[at].meet(&restore, row, found);
            }
        }
        Ok(Self { tables, rows })
    }

    pub(crate) fn dirty(&self) -> HashSet<RowName> {
        self.rows.iter().filter(|row| row.is_dirty).map(|row| row.name.clone()).collect()
    }
}

impl<'l> SurveyedRow<'l> {
    fn new(name: RowName, item: usize, is_there: bool) -> Self {
        let course = || ResolvedRow { is_there, is_touched: false, written: BTreeMap::new() };
        let (clean, forced) = (course(), course());
        let (key, cells) = (BTreeMap::new(), BTreeMap::new());
        Self { name, item, key, cells, is_there, is_dirty: false, clean, forced }
    }

    /// Goes back by one item.
    fn meet<DB: Backend>(
        &mut self,
        restore: &Restore<'_, DB>,
        row: &Row<'l>,
        found: Option<&Vec<Value>>,
    ) {
        for (at, place) in restore.columns.iter().enumerate() {
            if restore.item.columns[at].role == ColumnRole::Key {
                self.key.insert(*place, &row.named()[at]);
                continue;
            }
            let value = |image: Option<&'l Vec<Value>>| image.map(|values| &values[at]);
            let before = value(row.before);
            match self.cells.entry(*place) {
                // Items come newest first: the after image of the first stays, and the before image
                // of the last.
                btree_map::Entry::Occupied(newer) => newer.into_mut().before = before,
                btree_map::Entry::Vacant(cell) => {
                    let current = found.map(|values| values[at].clone());
                    cell.insert(SurveyedColumn { before, after: value(row.after), current });
                }
            }
        }
        // A row that is dirty for one item is left with all its changes, so no other item counts.
        if !self.is_dirty {
            let reached = self.clean.reached(&restore.columns, found);
            match restore.judge(row, reached.as_ref(), Criterion::Images) {
                RowAction::PutBack => self.clean.put_back(restore, row, reached),
                RowAction::LeaveAlone => {}
                RowAction::Dirty => self.is_dirty = true,
            }
        }
        let reached = self.forced.reached(&restore.columns, found);
        if matches!(restore.judge(row, reached.as_ref(), Criterion::Force), RowAction::PutBack) {
            self.forced.put_back(restore, row, reached);
        }
    }

    /// The same for a row that is named by all its values, of which there are so many once later
    /// items are undone.
    fn meet_equal<DB: Backend>(
        &mut self,
        restore: &Restore<'_, DB>,
        row: &Row<'l>,
        there: &mut usize,
    ) {
        for (at, place) in restore.columns.iter().enumerate() {
            let value = |image: Option<&'l Vec<Value>>| image.map(|values| &values[at]);
            let (before, after) = (value(row.before), value(row.after));
            let current = (*there > 0).then(|| row.named()[at].clone());
            self.cells.entry(*place).or_insert(SurveyedColumn { before, after, current });
        }
        match (restore.item.kind, *there) {
            (UndoKind::Insert | UndoKind::Update, 0) => self.is_dirty = true,
            (UndoKind::Insert | UndoKind::Update, _) => {
                *there -= 1;
                self.undo_equal(false);
            }
            (UndoKind::Delete, _) => {
                *there += 1;
                self.undo_equal(true);
            }
        }
    }

    fn undo_equal(&mut self, puts_back: bool) {
        for course in [&mut self.clean, &mut self.forced] {
            if !course.is_touched {
                self.is_there = !puts_back;
            }
            course.is_touched = true;
            course.is_there = puts_back;
        }
    }

    pub(crate) fn table_name(&self) -> TableName {
        TableName { schema: Some(self.name.schema.clone()), name: self.name.table.clone() }
    }

    pub(crate) fn standing(&self) -> RowStanding {
        if self.is_dirty {
            RowStanding::Dirty
        } else if self.clean.is_touched {
            RowStanding::Clean
        } else {
            RowStanding::Restored
        }
    }

    pub(crate) fn on_restore_clean(&self) -> RowChange {
        if self.is_dirty { RowChange::Left } else { self.clean.change(self.is_there) }
    }

    pub(crate) fn on_force_before(&self) -> RowChange {
        self.forced.change(self.is_there)
    }
}

impl ResolvedRow {
    /// The row as an item would find it.
    fn reached(&self, columns: &[usize], found: Option<&Vec<Value>>) -> Option<Vec<Value>> {
        let value = |(at, place): (usize, &usize)| {
            let written = self.written.get(place);
            written.or_else(|| Some(&found?[at])).cloned().unwrap_or(Value::Null)
        };
        self.is_there.then(|| columns.iter().enumerate().map(value).collect())
    }

    /// Computed columns follow from the columns that are written back.
    fn put_back<DB: Backend>(
        &mut self,
        restore: &Restore<'_, DB>,
        row: &Row<'_>,
        reached: Option<Vec<Value>>,
    ) {
        self.is_touched = true;
        self.is_there = restore.item.kind != UndoKind::Insert;
        let Some(before) = row.before else { return };
        let mut restored = before.clone();
        for at in restore.counters() {
            let given_back = row.after.and_then(|after| difference(&before[at], &after[at]));
            let reached = reached.as_ref().map(|values| &values[at]);
            if let (Some(amount), Some(Value::Integer(value))) = (given_back, reached) {
                restored[at] = Value::Integer(value + amount);
            }
        }
        self.written.extend(restore.columns.iter().copied().zip(restored));
    }

    fn change(&self, was_there: bool) -> RowChange {
        match (was_there, self.is_there) {
            (true, true) if self.is_touched => RowChange::WrittenBack,
            (true, false) => RowChange::Removed,
            (false, true) => RowChange::Inserted,
            (true, true) | (false, false) => RowChange::Left,
        }
    }
}
