//! A model of a service's database: rows, row locks, the undo log, local transactions, crashes.
//! What two-phase commit and the outbox need of it is in the files below this one.
//!
//! Modelled, not run: one table of numbers, read and written under row locks as `SELECT … FOR
//! UPDATE` and `UPDATE` do, at read committed. What a local transaction has written is seen by
//! others when it commits, all at once, and survives a crash from then on; an uncommitted one is
//! gone with its connection or with the server. The flavours differ where AT mode has to know.

mod outbox;
mod prepared;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use handfast_core::{BranchId, Xid};
use handfast_rm_core::fence;

use crate::fault::Fault;
use crate::local::Local;
use crate::oracle::{Observation, Written};
use crate::world::{MS, Owner, SECOND, World};
use outbox::Outbox;
use prepared::Prepared;

pub(crate) use outbox::{Claim, Event, EventId, EventRow, EventStatus, Seq};
pub(crate) use prepared::Held;

/// How long a statement waits for a row of another local transaction.
const LOCK_WAIT: u64 = 3 * SECOND;

/// Whose rules a database follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// A row that is inserted and not committed is waited for when looked for.
    MariaDb,
    /// A row that is inserted and not committed is not there when looked for.
    Postgres,
    /// One local transaction at a time writes.
    Sqlite,
}

/// A row of the one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(pub(crate) u32);

/// What a row holds, and which branch wrote it last; nobody is who set up the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) value: i64,
    pub(crate) writer: Option<(Xid, BranchId)>,
}

/// One change of a row, as the undo log keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoItem {
    pub(crate) row: RowId,
    pub(crate) before: Cell,
    pub(crate) after: Cell,
}

/// A row of the undo log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The branch committed locally.
    Log(Vec<UndoItem>),
    /// The branch was rolled back before it committed locally.
    Guard,
}

/// The primary key of the undo log.
pub(crate) type UndoKey = (Xid, BranchId);

/// What a statement can fail with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseError {
    /// The connection is gone: what was asked may have been done.
    Broken,
    /// Another local transaction kept a row for too long.
    LockTimeout,
    /// There is a row of this key.
    UniqueViolation,
}

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockKey {
    /// A row of the table.
    Row(RowId),
    /// A row of the undo log, there or to be.
    Undo(UndoKey),
    /// A row of the fence, there or to be.
    Fence(UndoKey),
    /// A row of the inbox, there or to be.
    Inbox(EventId),
    /// The right to write at all.
    Writer,
}

/// A local transaction, while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalId(u64);

/// A database.
pub(crate) struct Database {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
    pub(crate) flavour: Flavour,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<RowId, Cell>,
    undo: BTreeMap<UndoKey, Undo>,
    fences: BTreeMap<UndoKey, fence::State>,
    locks: BTreeMap<LockKey, Lock>,
    open: BTreeMap<LocalId, Open>,
    prepared: BTreeMap<String, Prepared>,
    /// Branches that were prepared and committed: PostgreSQL remembers.
    committed: BTreeSet<LocalId>,
    outbox: Outbox,
    session_last: u64,
    down: bool,
    slow_until: u64,
}

/// What a local transaction has done so far.
#[derive(Debug, Default)]
struct Open {
    rows: BTreeMap<RowId, Cell>,
    undo: BTreeMap<UndoKey, Option<Undo>>,
    fences: BTreeMap<UndoKey, fence::State>,
    /// Events put in and, with `None`, taken out.
    events: BTreeMap<Seq, Option<EventRow>>,
    inbox: BTreeSet<EventId>,
    /// Its number among those that write events, drawn before that of its first event.
    number: Option<i64>,
    /// The branch that it may be prepared as, and what the database calls it.
    branch: Option<(UndoKey, String)>,
    locks: BTreeSet<LockKey>,
}

#[derive(Debug)]
struct Lock {
    holder: LocalId,
    waiting: VecDeque<(LocalId, oneshot::Sender<()>)>,
}

impl Database {
    pub(crate) fn new(
        world: &Arc<World>,
        index: usize,
        flavour: Flavour,
        rows: impl IntoIterator<Item = (RowId, i64)>,
    ) -> Arc<Self> {
        let cell = |(row, value)| (row, Cell { value, writer: None });
        let state = State { rows: rows.into_iter().map(cell).collect(), ..State::default() };
        Arc::new(Self { world: Arc::clone(world), index, flavour, state: Mutex::new(state) })
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Database(self.index)
    }

    /// As the coordinator knows it.
    pub(crate) fn resource_id(&self) -> String {
        format!("database-{}", self.index)
    }

    /// Whether a local transaction may wait for a global lock with its own locks held.
    pub(crate) fn waits_with_locks(&self) -> bool {
        self.flavour != Flavour::Sqlite
    }

    /// Begins a local transaction, which ends with what is given back.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<Local, DatabaseError> {
        self.travel().await?;
        let session = {
            let mut state = self.lock();
            state.session_last += 1;
            let session = LocalId(state.session_last);
            state.open.insert(session, Open::default());
            session
        };
        let local = Local::new(Arc::clone(self), session);
        if self.flavour == Flavour::Sqlite {
            self.take(session, LockKey::Writer).await?;
        }
        Ok(local)
    }

    /// A statement's way to the database or an answer's way back.
    pub(crate) async fn travel(&self) -> Result<(), DatabaseError> {
        let slow = self.lock().slow_until > self.world.now();
        let longest = if slow { 500 * MS } else { MS };
        self.world.sleep(self.world.between(50, longest)).await;
        if self.lock().down { Err(DatabaseError::Broken) } else { Ok(()) }
    }

    /// An answer's way back, on which the connection can break.
    pub(crate) async fn answer<T>(&self, answer: T) -> Result<T, DatabaseError> {
        self.travel().await?;
        if self.world.strikes(Fault::DatabaseAnswerLost) {
            self.world.log(self.owner(), || "an answer is lost".to_owned());
            return Err(DatabaseError::Broken);
        }
        Ok(answer)
    }

    /// Takes a lock for a local transaction, waiting for it.
    pub(crate) async fn take(&self, session: LocalId, key: LockKey) -> Result<(), DatabaseError> {
        let Some(granted) = self.lock().take(session, key)? else { return Ok(()) };
        let timeout = self.world.sleep(LOCK_WAIT);
        match futures::future::select(granted, timeout).await {
            futures::future::Either::Left((Ok(()), _)) => Ok(()),
            futures::future::Either::Left((Err(_), _)) => Err(DatabaseError::Broken),
            futures::future::Either::Right(((), _)) => {
                self.lock().give_up(session, key);
                Err(DatabaseError::LockTimeout)
            }
        }
    }

    /// Gives a lock back before the end.
    pub(crate) fn release(&self, session: LocalId, key: LockKey) {
        let mut state = self.lock();
        let held = state.open.get_mut(&session).is_some_and(|open| open.locks.remove(&key));
        if held {
            state.hand_over(session, key);
        }
    }

    /// A row as the local transaction sees it.
    pub(crate) fn cell(&self, session: LocalId, row: RowId) -> Result<Cell, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        let cell = open.rows.get(&row).or_else(|| state.rows.get(&row));
        Ok(*cell.expect("every row of the model is set up at the start"))
    }

    pub(crate) fn write(
        &self,
        session: LocalId,
        row: RowId,
        cell: Cell,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        assert!(open.holds_row(row), "a row is written under its lock");
        open.rows.insert(row, cell);
        Ok(())
    }

    /// A row of the undo log as others have committed it, or as this local transaction left it.
    pub(crate) fn undo(
        &self,
        session: LocalId,
        key: UndoKey,
    ) -> Result<Option<Undo>, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.undo.get(&key).cloned().unwrap_or_else(|| state.undo.get(&key).cloned()))
    }

    /// Puts a row of the undo log in or, with `None`, takes it out.
    pub(crate) fn put_undo(
        &self,
        session: LocalId,
        key: UndoKey,
        undo: Option<Undo>,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.undo.insert(key, undo);
        Ok(())
    }

    /// How a branch stands in the fence, as others have committed it or this local transaction left
    /// it.
    pub(crate) fn fence(
        &self,
        session: LocalId,
        key: UndoKey,
    ) -> Result<Option<fence::State>, DatabaseError> {
        let state = self.lock();
        let open = state.open.get(&session).ok_or(DatabaseError::Broken)?;
        Ok(open.fences.get(&key).or_else(|| state.fences.get(&key)).copied())
    }

    pub(crate) fn put_fence(
        &self,
        session: LocalId,
        key: UndoKey,
        fence: fence::State,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.fences.insert(key, fence);
        Ok(())
    }

    /// Commits: everything at once, seen by all, and for good.
    pub(crate) fn commit(&self, session: LocalId) -> Result<(), DatabaseError> {
        let written = {
            let mut state = self.lock();
            let open = state.open.remove(&session).ok_or(DatabaseError::Broken)?;
            let written = state.apply(&open);
            state.release(session, &open);
            written
        };
        if written != Written::default() {
            self.world.log(self.owner(), || format!("commits {written}"));
        }
        self.world.observe(&Observation::LocalCommit { database: self.index, written: &written });
        Ok(())
    }

    /// Ends a local transaction without a trace. None is left where it was ended before.
    pub(crate) fn roll_back(&self, session: LocalId) {
        let mut state = self.lock();
        if let Some(open) = state.open.remove(&session) {
            state.release(session, &open);
        }
    }

    /// Dies with everything that is not committed, and is back after a while.
    pub(crate) fn crash(self: &Arc<Self>, down_for: u64) {
        self.world.log(self.owner(), || "crashes".to_owned());
        self.world.kill(self.owner());
        let mut state = self.lock();
        state.down = true;
        state.open.clear();
        // Whoever waits for a lock is told by the end of its channel.
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

    pub(crate) fn heal(&self) {
        self.lock().slow_until = 0;
    }

    /// Everything that is committed.
    pub(crate) fn committed(&self) -> (BTreeMap<RowId, Cell>, BTreeMap<UndoKey, Undo>) {
        let state = self.lock();
        (state.rows.clone(), state.undo.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `None` where the lock is the caller's at once.
    fn take(
        &mut self,
        session: LocalId,
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

    fn give_up(&mut self, session: LocalId, key: LockKey) {
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.waiting.retain(|(waiting, _)| *waiting != session);
        }
    }

    fn release(&mut self, session: LocalId, open: &Open) {
        for key in &open.locks {
            self.hand_over(session, *key);
        }
        for lock in self.locks.values_mut() {
            lock.waiting.retain(|(waiting, _)| *waiting != session);
        }
    }

    /// Gives a lock to the next who still waits, or frees it.
    fn hand_over(&mut self, from: LocalId, key: LockKey) {
        let Some(mut lock) = self.locks.remove(&key) else { return };
        assert!(lock.holder == from, "a lock is released by its holder");
        while let Some((next, grant)) = lock.waiting.pop_front() {
            let Some(open) = self.open.get_mut(&next) else { continue };
            if grant.send(()).is_ok() {
                open.locks.insert(key);
                lock.holder = next;
                self.locks.insert(key, lock);
                return;
            }
        }
    }

    fn apply(&mut self, open: &Open) -> Written {
        let mut written = Written::default();
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
        written
    }
}

impl Open {
    fn holds_row(&self, row: RowId) -> bool {
        self.locks.contains(&LockKey::Row(row)) || self.locks.contains(&LockKey::Writer)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("index", &self.index).finish_non_exhaustive()
    }
}
