//! A model of a service's database: rows, row locks, the undo log, local transactions, crashes.
//! Two-phase commit, the outbox and guarded tables are in `prepared`, `outbox` and `guard`.
//!
//! It is one table of numbers, read and written under row locks as `SELECT … FOR UPDATE` and
//! `UPDATE` do, at read committed. Others see what a local transaction has written when it commits,
//! all at once, and it survives a crash from then on. An uncommitted transaction is lost with its
//! connection or with the server. The flavours differ where AT mode depends on the difference.

mod guard;
mod local;
mod outbox;
mod prepared;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use handfast_rm_core::fence;

use super::observation::{Observation, Observer};
use super::values::{EventId, EventRow, RowChanges, RowId, RowVersion, Seq, Undo, UndoKey};
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};
use guard::{ConnectionId, GuardedTable, GuardedWork};
use outbox::Outbox;
use prepared::PreparedTransaction;

pub(crate) use guard::ConnectionPool;
pub(crate) use local::LocalTransaction;
pub(crate) use outbox::ClaimRequest;
pub(crate) use prepared::HeldConnection;

/// How long a statement waits for a lock of another local transaction.
const LOCK_WAIT: u64 = 3 * SECOND;

/// The database product whose rules a database follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// A locking read waits for a row that is inserted and not committed.
    MariaDb,
    /// A locking read does not find a row that is inserted and not committed.
    Postgres,
    /// One local transaction at a time writes.
    Sqlite,
}

/// Why a statement failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseError {
    /// The connection is lost: the statement may have been executed.
    Broken,
    /// Another local transaction held a lock for too long.
    LockTimeout,
    /// There is a row with this key.
    UniqueViolation,
    /// The table is guarded, and a branch of an undecided global holds the row.
    Guarded(UndoKey),
    /// Transactions used the table for too long to change its trigger.
    Busy,
}

/// The object of a database lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockKey {
    /// A row of the table.
    Row(RowId),
    /// A row of the undo log, whether it exists or not.
    Undo(UndoKey),
    /// A row of the fence, whether it exists or not.
    Fence(UndoKey),
    /// A row of the inbox, whether it exists or not.
    Inbox(EventId),
    /// The part of a row that a guard keeps.
    Kept(RowId),
    /// The whole database, for writing (SQLite).
    Writer,
}

/// Identifies a local transaction, and the connection that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalTransactionId(u64);

/// A database server.
pub(crate) struct Database {
    world: Arc<World>,
    observer: Arc<dyn Observer>,
    pub(crate) index: usize,
    pub(crate) flavour: Flavour,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<RowId, RowVersion>,
    undo: BTreeMap<UndoKey, Undo>,
    fences: BTreeMap<UndoKey, fence::FenceState>,
    locks: BTreeMap<LockKey, Lock>,
    open: BTreeMap<LocalTransactionId, OpenTransaction>,
    prepared: BTreeMap<String, PreparedTransaction>,
    /// Sessions whose prepared branch was committed. PostgreSQL keeps a transaction's outcome.
    committed: BTreeSet<LocalTransactionId>,
    outbox: Outbox,
    guarded: GuardedTable,
    session_last: u64,
    connection_last: u64,
    down: bool,
    slow_until: u64,
}

/// The uncommitted changes of a local transaction, and the locks it holds.
#[derive(Debug, Default)]
struct OpenTransaction {
    rows: BTreeMap<RowId, RowVersion>,
    undo: BTreeMap<UndoKey, Option<Undo>>,
    fences: BTreeMap<UndoKey, fence::FenceState>,
    /// Events inserted and, with `None`, deleted.
    events: BTreeMap<Seq, Option<EventRow>>,
    inbox: BTreeSet<EventId>,
    guarded: GuardedWork,
    /// Its number among the transactions that write events, drawn before its first event's.
    number: Option<i64>,
    /// The branch that it may be prepared as, and its name in the database.
    branch: Option<(UndoKey, String)>,
    locks: BTreeSet<LockKey>,
}

#[derive(Debug)]
struct Lock {
    holder: LocalTransactionId,
    waiting: VecDeque<(LocalTransactionId, oneshot::Sender<()>)>,
}

impl Database {
    pub(crate) fn new(
        world: &Arc<World>,
        observer: Arc<dyn Observer>,
        index: usize,
        flavour: Flavour,
        rows: impl IntoIterator<Item = (RowId, i64)>,
        guardable: Range<RowId>,
    ) -> Arc<Self> {
        let cell = |(row, value)| (row, RowVersion { value, writer: None });
        let rows = rows.into_iter().map(cell).collect();
        let guarded = GuardedTable::new(guardable, flavour);
        let state = State { rows, guarded, ..State::default() };
        let (world, state) = (Arc::clone(world), Mutex::new(state));
        Arc::new(Self { world, observer, index, flavour, state })
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Database(self.index)
    }

    /// Returns the id of its AT resource.
    pub(crate) fn resource_id(&self) -> String {
        format!("database-{}", self.index)
    }

    /// Returns whether a local transaction may wait for a global lock while it holds its own locks.
    /// On SQLite it would keep every other writer out.
    pub(crate) fn waits_with_locks(&self) -> bool {
        self.flavour != Flavour::Sqlite
    }

    /// Begins a local transaction on a connection of its own. On SQLite it waits for the writer
    /// before it.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<LocalTransaction, DatabaseError> {
        self.begin_in(&Arc::default()).await
    }

    /// Begins a local transaction on a connection of a pool.
    pub(crate) async fn begin_in(
        self: &Arc<Self>,
        pool: &Arc<ConnectionPool>,
    ) -> Result<LocalTransaction, DatabaseError> {
        self.travel().await?;
        let (session, connection) = {
            let mut state = self.lock();
            let connection = pool.take().unwrap_or_else(|| state.connect());
            state.session_last += 1;
            let session = LocalTransactionId(state.session_last);
            let guarded = GuardedWork::on(connection);
            state.open.insert(session, OpenTransaction { guarded, ..OpenTransaction::default() });
            (session, connection)
        };
        // Made before the wait for the writer: if that fails, its drop ends the session.
        let pool = (Arc::clone(pool), connection);
        let local = LocalTransaction::new(Arc::clone(self), session, pool);
        if self.flavour == Flavour::Sqlite {
            self.acquire(session, LockKey::Writer).await?;
        }
        Ok(local)
    }

    /// Takes the time of a message to the database or back.
    async fn travel(&self) -> Result<(), DatabaseError> {
        let slow = self.lock().slow_until > self.world.now();
        let longest = if slow { 500 * MS } else { MS };
        self.world.sleep(self.world.between(50, longest)).await;
        if self.lock().down { Err(DatabaseError::Broken) } else { Ok(()) }
    }

    /// Sends an answer back, on a connection that may break.
    async fn answer<T>(&self, answer: T) -> Result<T, DatabaseError> {
        self.travel().await?;
        if self.world.strikes(Fault::DatabaseAnswerLost) {
            self.world.log(self.owner(), || "an answer is lost".to_owned());
            return Err(DatabaseError::Broken);
        }
        Ok(answer)
    }

    /// Acquires a lock for a local transaction, and waits for it.
    async fn acquire(
        &self,
        session: LocalTransactionId,
        key: LockKey,
    ) -> Result<(), DatabaseError> {
        let Some(granted) = self.lock().acquire(session, key)? else { return Ok(()) };
        let timeout = self.world.sleep(LOCK_WAIT);
        match futures::future::select(granted, timeout).await {
            futures::future::Either::Left((Ok(()), _)) => Ok(()),
            futures::future::Either::Left((Err(_), _)) => Err(DatabaseError::Broken),
            futures::future::Either::Right(((), _)) => {
                self.lock().cancel_wait(session, key);
                Err(DatabaseError::LockTimeout)
            }
        }
    }

    /// Releases a lock before the transaction ends.
    fn release(&self, session: LocalTransactionId, key: LockKey) {
        let mut state = self.lock();
        let held = state.open.get_mut(&session).is_some_and(|open| open.locks.remove(&key));
        if held {
            state.pass_lock(session, key);
        }
    }

    /// Returns a row as the local transaction sees it.
    fn cell(&self, session: LocalTransactionId, row: RowId) -> Result<RowVersion, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        let cell = open.rows.get(&row).or_else(|| state.rows.get(&row));
        Ok(*cell.expect("every row of the model is set up at the start"))
    }

    fn write(
        &self,
        session: LocalTransactionId,
        row: RowId,
        cell: RowVersion,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        assert!(open.holds_row(row), "a row is written under its lock");
        open.rows.insert(row, cell);
        Ok(())
    }

    /// Returns a row of the undo log: as this local transaction left it, or else as committed.
    fn undo(
        &self,
        session: LocalTransactionId,
        key: UndoKey,
    ) -> Result<Option<Undo>, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.undo.get(&key).cloned().unwrap_or_else(|| state.undo.get(&key).cloned()))
    }

    /// Inserts a row of the undo log or, with `None`, deletes it.
    fn put_undo(
        &self,
        session: LocalTransactionId,
        key: UndoKey,
        undo: Option<Undo>,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.undo.insert(key, undo);
        Ok(())
    }

    /// Returns a row of the fence: as this local transaction left it, or else as committed.
    fn fence(
        &self,
        session: LocalTransactionId,
        key: UndoKey,
    ) -> Result<Option<fence::FenceState>, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.fences.get(&key).or_else(|| state.fences.get(&key)).copied())
    }

    fn put_fence(
        &self,
        session: LocalTransactionId,
        key: UndoKey,
        fence: fence::FenceState,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.fences.insert(key, fence);
        Ok(())
    }

    /// Commits a local transaction: all its changes become visible and durable at once.
    fn commit(&self, session: LocalTransactionId) -> Result<(), DatabaseError> {
        let written = {
            let mut state = self.lock();
            let open = state.open.remove(&session).ok_or(DatabaseError::Broken)?;
            let written = state.apply(&open);
            state.release(session, &open);
            written
        };
        if written != RowChanges::default() {
            self.world.log(self.owner(), || format!("commits {written}"));
        }
        let database = self.index;
        self.observer.observe(&Observation::LocalCommit { database, written: &written });
        Ok(())
    }

    /// Rolls a local transaction back. Does nothing if it has ended before.
    fn roll_back(&self, session: LocalTransactionId) {
        let mut state = self.lock();
        if let Some(open) = state.open.remove(&session) {
            state.release(session, &open);
        }
    }

    /// Kills the server. What is not committed is lost; the server is back after `down_for`.
    pub(crate) fn crash(self: &Arc<Self>, down_for: u64) {
        self.world.log(self.owner(), || "crashes".to_owned());
        // With its tasks goes each COMMIT and PREPARE that has not arrived.
        self.world.kill(self.owner());
        let mut state = self.lock();
        state.down = true;
        state.open.clear();
        // A waiting statement fails: dropping its lock's queue closes its channel.
        state.locks.clear();
        state.recover_prepared();
        drop(state);
        let database = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            database.world.sleep(down_for).await;
            database.lock().down = false;
            database.world.log(database.owner(), || "is back".to_owned());
        });
    }

    pub(crate) fn slow_down(&self, until: u64) {
        self.lock().slow_until = until;
    }

    /// Ends a slow phase.
    pub(crate) fn heal(&self) {
        self.lock().slow_until = 0;
    }

    /// Returns the committed rows and undo log.
    pub(crate) fn committed(&self) -> (BTreeMap<RowId, RowVersion>, BTreeMap<UndoKey, Undo>) {
        let state = self.lock();
        (state.rows.clone(), state.undo.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn connect(&mut self) -> ConnectionId {
        self.connection_last += 1;
        ConnectionId(self.connection_last)
    }

    /// Acquires a lock, or queues for it. Returns `None` if the session has the lock at once.
    fn acquire(
        &mut self,
        session: LocalTransactionId,
        key: LockKey,
    ) -> Result<Option<oneshot::Receiver<()>>, DatabaseError> {
        let open = self.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        match self.locks.get_mut(&key) {
            Some(lock) if lock.holder == session => Ok(None),
            Some(lock) => {
                let (grant, granted) = oneshot::channel();
                lock.waiting.push_back((session, grant));
                Ok(Some(granted))
            }
            None => {
                self.locks.insert(key, Lock { holder: session, waiting: VecDeque::new() });
                open.locks.insert(key);
                Ok(None)
            }
        }
    }

    fn cancel_wait(&mut self, session: LocalTransactionId, key: LockKey) {
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.waiting.retain(|(waiting, _)| *waiting != session);
        }
    }

    /// Releases every lock of a transaction that has ended.
    fn release(&mut self, session: LocalTransactionId, open: &OpenTransaction) {
        for key in &open.locks {
            self.pass_lock(session, *key);
        }
        for lock in self.locks.values_mut() {
            lock.waiting.retain(|(waiting, _)| *waiting != session);
        }
    }

    /// Passes a lock to the first session that still waits for it, or frees it.
    fn pass_lock(&mut self, from: LocalTransactionId, key: LockKey) {
        let Some(mut lock) = self.locks.remove(&key) else { return };
        assert!(lock.holder == from, "a lock is released by its holder");
        while let Some((next, grant)) = lock.waiting.pop_front() {
            // A session that has ended, or whose statement is given up, is passed over.
            let Some(open) = self.open.get_mut(&next) else { continue };
            if grant.send(()).is_ok() {
                open.locks.insert(key);
                lock.holder = next;
                self.locks.insert(key, lock);
                return;
            }
        }
    }

    /// Applies a transaction's changes, and returns them with the values before.
    fn apply(&mut self, open: &OpenTransaction) -> RowChanges {
        let mut written = RowChanges::default();
        for (row, cell) in &open.rows {
            if let Some(before) = self.rows.insert(*row, *cell) {
                written.rows.push((*row, before, *cell));
            }
        }
        for (key, undo) in &open.undo {
            let before = match undo {
                Some(undo) => self.undo.insert(*key, undo.clone()),
                None => self.undo.remove(key),
            };
            written.undo.push((*key, before, undo.clone()));
        }
        for (key, fence) in &open.fences {
            written.fences.push((*key, self.fences.insert(*key, *fence), *fence));
        }
        self.outbox.apply(open, &mut written);
        self.guarded.apply(&open.guarded, &mut written);
        written
    }
}

impl OpenTransaction {
    fn holds_row(&self, row: RowId) -> bool {
        self.locks.contains(&LockKey::Row(row)) || self.locks.contains(&LockKey::Writer)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("index", &self.index).finish_non_exhaustive()
    }
}
