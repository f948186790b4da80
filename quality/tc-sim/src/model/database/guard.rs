//! Guarded tables on a model database: the trigger of `plan/guarded_sql.rs`, the keys that it
//! keeps, the marks by which it knows branches, and how a guard is put on and taken away.
//!
//! One table of a database can be guarded, that of the rows which branches in AT mode change, on
//! MariaDB and PostgreSQL. The trigger keeps the key of each row that a marked local transaction
//! changes, within that transaction. It refuses the write of an unmarked one to a row whose key is
//! kept for a branch with an undo row. On MariaDB the mark is a row under the connection's number,
//! and the trigger looks into the snapshot of its statement first; on PostgreSQL the mark is a
//! setting of the transaction, and each look sees what is committed by then.
//!
//! Not modelled: watching, TRUNCATE, keys that change, rows that go along by a foreign key, and
//! others waiting behind a change of the trigger that waits itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Database, DatabaseError, Flavour, LocalTransaction, LocalTransactionId, LockKey, State,
};
use crate::model::observation::{GuardedWrite, Observation};
use crate::model::values::{
    KeptRow, RowChanges, RowId, RowVersion, TableGuard, Undo, UndoKey, WriterMark,
};
use crate::world::{MS, SECOND};

/// How long a guard that is put on lets every write pass, as `GRACE_SECONDS` of the product.
const GRACE: i64 = 120 * SECOND.cast_signed();
/// How long a change of the trigger waits for transactions that use the table.
const BUSY_MAX: u64 = 5 * SECOND;
/// The number of branches whose keys are deleted in one transaction, at most.
const DELETE_MAX: usize = 100;

/// A connection, over all its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(pub(super) u64);

/// The connections of one process that no transaction uses.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool(Mutex<Vec<ConnectionId>>);

/// The state of the guard of a database's table, as it is committed.
#[derive(Debug)]
pub(super) struct GuardedTable {
    rows: Range<RowId>,
    /// Whether a mark is a row of a table, and not a setting that ends with its transaction.
    marks_are_rows: bool,
    guard: Option<TableGuard>,
    has_trigger: bool,
    kept: BTreeSet<KeptRow>,
    marks: BTreeMap<ConnectionId, WriterMark>,
}

/// The part of the guard that belongs to an open transaction.
#[derive(Debug, Default)]
pub(super) struct GuardedWork {
    connection: ConnectionId,
    /// A change of the connection's mark.
    mark: Option<Option<WriterMark>>,
    kept: BTreeSet<KeptRow>,
    deleted: BTreeSet<KeptRow>,
    from_outside: bool,
}

/// The branches that hold rows, as a statement of MariaDB sees them from its first look on.
#[derive(Debug)]
pub(super) struct Snapshot(BTreeMap<RowId, UndoKey>);

impl ConnectionPool {
    pub(super) fn take(&self) -> Option<ConnectionId> {
        self.lock().pop()
    }

    pub(super) fn put_back(&self, connection: ConnectionId) {
        self.lock().push(connection);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ConnectionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for GuardedTable {
    fn default() -> Self {
        Self::new(RowId(0)..RowId(0), Flavour::Sqlite)
    }
}

impl GuardedTable {
    pub(super) fn new(rows: Range<RowId>, flavour: Flavour) -> Self {
        Self {
            rows,
            marks_are_rows: flavour == Flavour::MariaDb,
            guard: None,
            has_trigger: false,
            kept: BTreeSet::new(),
            marks: BTreeMap::new(),
        }
    }

    /// Applies what a transaction has changed.
    pub(super) fn apply(&mut self, work: &GuardedWork, written: &mut RowChanges) {
        if let (Some(mark), true) = (work.mark, self.marks_are_rows) {
            match mark {
                Some(mark) => drop(self.marks.insert(work.connection, mark)),
                None => drop(self.marks.remove(&work.connection)),
            }
        }
        for kept in &work.deleted {
            self.kept.remove(kept);
        }
        written.kept.extend(work.kept.iter().filter(|kept| self.kept.insert(**kept)));
        written.from_outside = work.from_outside;
    }

    fn fires_for(&self, row: RowId) -> bool {
        self.has_trigger && self.rows.contains(&row)
    }

    fn kept_of(&self, row: RowId) -> impl Iterator<Item = UndoKey> {
        let of_row = self.kept.iter().filter(move |(kept, _)| *kept == row);
        of_row.map(|(_, branch)| *branch)
    }
}

impl GuardedWork {
    pub(super) fn on(connection: ConnectionId) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Returns its mark, or the one that is left on its connection.
    fn mark(&self, table: &GuardedTable) -> Option<WriterMark> {
        self.mark.unwrap_or_else(|| table.marks.get(&self.connection).copied())
    }
}

/// Returns the guard that is put on at a time. By when it takes effect all processes know of it.
fn put_on(enabled_at: i64) -> TableGuard {
    TableGuard { enabled_at, effective_from: enabled_at + GRACE }
}

impl State {
    /// A kept row counts only while its branch has an undo row.
    fn holds(&self, branch: UndoKey) -> bool {
        matches!(self.undo.get(&branch), Some(Undo::Log(_)))
    }

    fn holder(&self, row: RowId) -> Option<UndoKey> {
        self.guarded.kept_of(row).find(|branch| self.holds(*branch))
    }

    fn snapshot(&self) -> Snapshot {
        let held = self.guarded.kept.iter().filter(|(_, branch)| self.holds(*branch));
        Snapshot(held.copied().collect())
    }

    /// Returns the keys that are kept of branches without an undo row.
    fn left_over(&self) -> impl Iterator<Item = KeptRow> {
        self.guarded.kept.iter().filter(|(_, branch)| !self.holds(*branch)).copied()
    }

    /// Changes the trigger, unless an open transaction has changed rows of the table.
    fn change_unused(&mut self, change: &impl Fn(&mut GuardedTable)) -> bool {
        let of_table = |row: &RowId| self.guarded.rows.contains(row);
        let is_used = self.uncommitted().any(|open| open.rows.keys().any(of_table));
        if !is_used {
            change(&mut self.guarded);
        }
        !is_used
    }
}

impl Database {
    /// Returns whether the product can guard tables of this database.
    pub(crate) fn can_guard(&self) -> bool {
        self.flavour != Flavour::Sqlite
    }

    /// Has a guard there that was put on before the start, that many microseconds ago.
    pub(crate) fn was_guarded_before_start(&self, ago: u64) {
        let enabled_at = -ago.cast_signed();
        let mut state = self.lock();
        state.guarded.has_trigger = true;
        state.guarded.guard = Some(put_on(enabled_at));
    }

    /// Returns the guard that is written down.
    pub(crate) fn guard(&self) -> Option<TableGuard> {
        self.lock().guarded.guard
    }

    /// Returns every key that is kept.
    pub(crate) fn kept_rows(&self) -> Vec<KeptRow> {
        self.lock().guarded.kept.iter().copied().collect()
    }

    /// `handfast guard enable`. The trigger first: it lets every write pass until the guard is
    /// written down, and in effect.
    pub(crate) async fn put_guard_on(&self) -> Result<(), DatabaseError> {
        self.change_trigger(|table| table.has_trigger = true).await?;
        if self.flavour == Flavour::MariaDb {
            // Each statement commits by itself there.
            self.travel().await?;
        }
        let enabled_at = self.world.now().cast_signed();
        self.lock().guarded.guard.get_or_insert(put_on(enabled_at));
        self.world.log(self.owner(), || "a guard is put on".to_owned());
        Ok(())
    }

    /// `handfast guard disable`.
    pub(crate) async fn take_guard_away(&self) -> Result<(), DatabaseError> {
        if self.flavour == Flavour::MariaDb {
            self.travel().await?;
            self.lock().guarded.guard = None;
        }
        self.change_trigger(|table| {
            table.guard = None;
            table.has_trigger = false;
        })
        .await?;
        self.world.log(self.owner(), || "the guard is taken away".to_owned());
        Ok(())
    }

    /// Changes the trigger when no transaction uses the table.
    async fn change_trigger(
        &self,
        change: impl Fn(&mut GuardedTable),
    ) -> Result<(), DatabaseError> {
        self.travel().await?;
        let until = self.world.now() + BUSY_MAX;
        while !self.lock().change_unused(&change) {
            if self.world.now() >= until {
                return Err(DatabaseError::Busy);
            }
            self.world.sleep(50 * MS).await;
        }
        Ok(())
    }

    fn is_from_outside(&self, session: LocalTransactionId) -> Result<bool, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.guarded.from_outside)
    }

    /// Returns the mark that the trigger sees.
    fn mark(&self, session: LocalTransactionId) -> Result<Option<WriterMark>, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.guarded.mark(&state.guarded))
    }

    /// Lets a transaction change what it has to do with the guard.
    fn work<T>(
        &self,
        session: LocalTransactionId,
        change: impl FnOnce(&mut GuardedWork) -> T,
    ) -> Result<T, DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        Ok(change(&mut open.guarded))
    }
}

impl LocalTransaction {
    /// Reads in the catalogue whether the table is guarded.
    pub(crate) async fn is_table_guarded(&self) -> Result<bool, DatabaseError> {
        self.database.travel().await?;
        let is_guarded = self.database.lock().guarded.has_trigger;
        self.database.answer(is_guarded).await
    }

    /// Marks the transaction for the trigger.
    pub(crate) async fn mark(&self, mark: WriterMark) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.database.work(self.session, |work| work.mark = Some(Some(mark)))?;
        self.database.answer(()).await
    }

    /// Takes the mark away before COMMIT, where it would stay with the connection.
    pub(crate) async fn unmark(&self) -> Result<(), DatabaseError> {
        if self.database.flavour != Flavour::MariaDb {
            return Ok(());
        }
        self.database.travel().await?;
        self.database.work(self.session, |work| work.mark = Some(None))?;
        self.database.answer(()).await
    }

    /// Runs `UPDATE … SET value = value + …` of several rows, one statement, for a program that
    /// knows of no global.
    pub(crate) async fn update_from_outside(
        &self,
        changes: &[(RowId, i64)],
    ) -> Result<(), DatabaseError> {
        let database = &self.database;
        database.travel().await?;
        database.work(self.session, |work| work.from_outside = true)?;
        let mut seen = None;
        for (row, delta) in changes {
            self.acquire(LockKey::Row(*row)).await?;
            self.fire_guard(*row, &mut seen).await?;
            // The branch that wrote the row stays its writer: who reads it needs that one decided.
            let before = database.cell(self.session, *row)?;
            let after = RowVersion { value: before.value + delta, ..before };
            database.write(self.session, *row, after)?;
        }
        database.answer(()).await
    }

    /// Deletes what is kept of branches that have ended.
    pub(crate) async fn delete_kept(&self, branches: &[UndoKey]) -> Result<(), DatabaseError> {
        let database = &self.database;
        database.travel().await?;
        let is_theirs = |(_, branch): &KeptRow| branches.contains(branch);
        let kept = database.kept_rows().into_iter().filter(is_theirs);
        for (row, branch) in kept {
            self.acquire(LockKey::Kept(row)).await?;
            database.work(self.session, |work| work.deleted.insert((row, branch)))?;
        }
        database.answer(()).await
    }

    /// Returns branches of which keys are kept and that have no undo row.
    pub(crate) async fn find_left_over(&self) -> Result<Vec<UndoKey>, DatabaseError> {
        self.database.travel().await?;
        let branches: BTreeSet<UndoKey> =
            self.database.lock().left_over().map(|(_, branch)| branch).collect();
        let branches = branches.into_iter().take(DELETE_MAX).collect();
        self.database.answer(branches).await
    }

    /// Fires the trigger for a row that a statement has locked. The statement's snapshot is taken
    /// when it first looks.
    pub(super) async fn fire_guard(
        &self,
        row: RowId,
        seen: &mut Option<(u64, Snapshot)>,
    ) -> Result<(), DatabaseError> {
        let database = &self.database;
        let from_outside = database.is_from_outside(self.session)?;
        let began = database.world.now();
        let result = self.judge_write(row, seen).await;
        let refused_for = match result {
            Ok(()) => None,
            Err(DatabaseError::Guarded(branch)) => Some(branch),
            Err(_) => return result,
        };
        if from_outside || refused_for.is_some() {
            let since = seen.as_ref().map_or(began, |(since, _)| *since);
            let (guard, index) = (database.guard(), database.index);
            let write =
                GuardedWrite { database: index, row, from_outside, since, guard, refused_for };
            database.observer.observe(&Observation::GuardedWrite(write));
        }
        result
    }

    async fn judge_write(
        &self,
        row: RowId,
        seen: &mut Option<(u64, Snapshot)>,
    ) -> Result<(), DatabaseError> {
        let database = &self.database;
        if !database.lock().guarded.fires_for(row) {
            return Ok(());
        }
        match database.mark(self.session)? {
            Some(WriterMark::Pass) => return Ok(()),
            Some(WriterMark::Branch(branch)) => {
                database.work(self.session, |work| work.kept.insert((row, branch)))?;
                return Ok(());
            }
            None => {}
        }
        let holder = match database.flavour {
            Flavour::MariaDb => self.holder_for_update(row, seen).await?,
            Flavour::Postgres | Flavour::Sqlite => database.lock().holder(row),
        };
        let Some(holder) = holder else { return Ok(()) };
        let now = database.world.now().cast_signed();
        match database.guard() {
            Some(guard) if guard.effective_from <= now => Err(DatabaseError::Guarded(holder)),
            Some(_) | None => Ok(()),
        }
    }

    /// Looks as the routine of MariaDB does: a locking read for what is kept, the snapshot of the
    /// statement for who holds it, and a locking read again if the snapshot knows none.
    async fn holder_for_update(
        &self,
        row: RowId,
        seen: &mut Option<(u64, Snapshot)>,
    ) -> Result<Option<UndoKey>, DatabaseError> {
        let database = &self.database;
        let now = database.world.now();
        let (_, Snapshot(held)) = seen.get_or_insert_with(|| (now, database.lock().snapshot()));
        if database.lock().guarded.kept_of(row).next().is_none() {
            return Ok(None);
        }
        self.acquire(LockKey::Kept(row)).await?;
        if let Some(holder) = held.get(&row) {
            return Ok(Some(*holder));
        }
        let kept: Vec<UndoKey> = database.lock().guarded.kept_of(row).collect();
        for branch in kept {
            self.acquire(LockKey::Undo(branch)).await?;
            if database.lock().holds(branch) {
                return Ok(Some(branch));
            }
            // Read committed locks no row that is not there.
            database.release(self.session, LockKey::Undo(branch));
        }
        Ok(None)
    }
}
