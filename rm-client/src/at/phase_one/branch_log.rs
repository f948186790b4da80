//! The log of a local transaction: its undo items so far, and the rows it needs locked globally.

use handfast_rm_core::plan::DeltaKind;

use super::branch::Role;
use super::row_locks::{RowLockMode, RowLocks};
use crate::at::database::{Backend, LoadedTable};
use crate::at::undo::image::{Image, ImageRow};
use crate::at::undo::log::{UndoItem, UndoKind};
use crate::at::undo::table::BranchEvents;
use crate::fence::is_conflict;

/// The log of one local transaction.
#[derive(Debug, Default)]
pub(crate) struct BranchLog {
    items: Vec<UndoItem>,
    locks: RowLocks,
    /// Rows that a globally committed read has read and the coordinator has not been asked about:
    /// no other global may hold them, and this branch never locks them.
    pub(crate) awaited: RowLocks,
    /// The rows of the last such read that was refused, or of a statement that was refused its row.
    pub(crate) unseen: RowLocks,
    /// Set while a change has no undo item yet; commit refuses while it is set.
    pub(crate) half_recorded: bool,
    /// Whether the undo row is in the database already.
    pub(crate) is_composed: bool,
    /// Whether the database has refused to compose the undo row.
    pub(crate) is_composition_refused: bool,
    /// The database has ended the transaction by itself.
    pub(crate) ended: bool,
    /// A statement failed in a way that repeating the local transaction may cure.
    pub(crate) repeatable: bool,
    /// A statement and its table did not agree about columns; the table is forgotten meanwhile.
    pub(crate) stale_tables: bool,
    /// Set once the isolation level was found to lock gaps.
    pub(crate) gaps_locked: bool,
    /// Whether the local transaction is marked for the triggers of guarded tables.
    pub(crate) marked: bool,
    /// Whether nothing of it is ever undone, so that rows are noted alone.
    pub(crate) is_checked: bool,
    /// Whether an event was emitted, even if a savepoint has taken it back since.
    pub(crate) events: BranchEvents,
    savepoints: Vec<Savepoint>,
    /// How many savepoints there ever were.
    savepoints_set: u64,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    number: u64,
    items: usize,
    locks: RowLocks,
    half_recorded: bool,
    marked: bool,
}

impl BranchLog {
    /// The log of a local transaction in this role.
    pub(super) fn of(role: &Role) -> Self {
        Self { is_checked: matches!(role, Role::Checked(_)), ..Self::default() }
    }

    pub(crate) fn items(&self) -> &[UndoItem] {
        &self.items
    }

    pub(crate) fn locks(&self) -> &RowLocks {
        &self.locks
    }

    /// Notes that the database refused a statement.
    pub(crate) fn failed<DB: Backend>(&mut self, error: &sqlx::Error) {
        self.ended |= DB::ends_transaction(error);
        self.repeatable |= is_conflict(error);
    }

    /// Notes rows to be locked without a change.
    pub(crate) fn lock<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        mode: RowLockMode,
        keys: impl IntoIterator<Item = Box<[u8]>>,
    ) {
        self.locks.add(&loaded.lock_name, mode, keys);
    }

    /// Notes rows that may not be read before their holders are finished.
    pub(crate) fn wait_for<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        keys: impl IntoIterator<Item = Box<[u8]>>,
    ) {
        self.awaited.add(&loaded.lock_name, RowLockMode::Shared, keys);
    }

    /// Records a change of existing rows. Rows that did not change need no undo, but stay locked:
    /// the application may have decided on their values.
    pub(crate) fn updated<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        maintained: &[usize],
        before: Image,
        after: Image,
    ) {
        self.lock_rows(loaded, before.iter().chain(&after));
        let changed = before.into_iter().zip(after).filter(|(old, new)| old.values != new.values);
        let (before, after): (Image, Image) = changed.unzip();
        if !after.is_empty() {
            let kind = UndoKind::Update;
            self.items.push(UndoItem::new(kind, loaded, columns, maintained, before, after));
        }
    }

    /// Records a change of a row that adds to its counters or takes from them.
    pub(crate) fn counted<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        kind: DeltaKind,
        before: ImageRow,
        after: ImageRow,
    ) {
        // Outside of a global, changes of counters wait for those within one.
        let of_global = RowLockMode::Delta(kind);
        let mode = if self.is_checked { RowLockMode::Exclusive } else { of_global };
        self.lock(loaded, mode, [after.key.clone()]);
        if before.values != after.values {
            self.items.push(UndoItem::counted(loaded, columns, vec![before], vec![after]));
        }
    }

    /// Records the change of a row whose undo row is in the database.
    pub(crate) fn composed(&mut self, row: RowLocks) {
        self.locks = row;
        self.is_composed = true;
    }

    /// Records rows that were not there before.
    pub(crate) fn inserted<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        after: Image,
    ) {
        self.lock_rows(loaded, after.iter());
        if !after.is_empty() {
            let maintained = maintained::<DB>(loaded, columns);
            let (kind, before) = (UndoKind::Insert, Vec::new());
            self.items.push(UndoItem::new(kind, loaded, columns, &maintained, before, after));
        }
    }

    /// Records rows that are gone.
    pub(crate) fn deleted<DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        before: Image,
    ) {
        self.lock_rows(loaded, before.iter());
        if !before.is_empty() {
            let (kind, after) = (UndoKind::Delete, Vec::new());
            self.items.push(UndoItem::new(kind, loaded, columns, &[], before, after));
        }
    }

    fn lock_rows<'r, DB: Backend>(
        &mut self,
        loaded: &LoadedTable<DB>,
        rows: impl Iterator<Item = &'r ImageRow>,
    ) {
        self.lock(loaded, RowLockMode::Exclusive, rows.map(|row| row.key.clone()));
    }

    /// Returns the name by which the database will know the next savepoint. Databases differ in
    /// whether `A` is `a` and whether an older savepoint of the same name lives on, so each gets a
    /// name of its own.
    pub(crate) fn next_savepoint(&self) -> String {
        database_name(self.savepoints_set + 1)
    }

    /// Remembers how things stand under a name, which the database calls
    /// [`next_savepoint`](Self::next_savepoint).
    pub(crate) fn set_savepoint(&mut self, name: &str) {
        self.savepoints_set += 1;
        self.savepoints.push(Savepoint {
            name: name.to_owned(),
            number: self.savepoints_set,
            items: self.items.len(),
            locks: self.locks.clone(),
            half_recorded: self.half_recorded,
            marked: self.marked,
        });
    }

    /// Returns the name by which the database knows the newest savepoint of a name.
    pub(crate) fn savepoint(&self, name: &str) -> Option<String> {
        self.newest(name).map(|index| database_name(self.savepoints[index].number))
    }

    /// Forgets everything since the newest savepoint of the name, which stays set.
    pub(crate) fn roll_back_to(&mut self, name: &str) {
        let Some(index) = self.newest(name) else { return };
        self.savepoints.truncate(index + 1);
        let savepoint = &self.savepoints[index];
        self.items.truncate(savepoint.items);
        // No lock is taken before the commit, so that none has to be given back.
        self.locks = savepoint.locks.clone();
        // A change from before the savepoint is still there, with its undo item still missing.
        self.half_recorded = savepoint.half_recorded;
        // The database takes back the mark, too.
        self.marked = savepoint.marked;
    }

    /// Gives up the newest savepoint of the name and those set after it; the work stays.
    pub(crate) fn release_savepoint(&mut self, name: &str) {
        if let Some(index) = self.newest(name) {
            self.savepoints.truncate(index);
        }
    }

    fn newest(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name)
    }
}

fn database_name(number: u64) -> String {
    format!("hf_{number}")
}

/// Returns the columns that the database changes by itself: another value there does not prove
/// that another transaction has written the row.
pub(crate) fn maintained<DB: Backend>(loaded: &LoadedTable<DB>, columns: &[usize]) -> Vec<usize> {
    columns.iter().copied().filter(|index| loaded.table.columns[*index].on_update).collect()
}
