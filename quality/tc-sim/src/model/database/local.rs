//! A local transaction as a client holds it: statements that take time to travel, over a connection
//! that may break.
//!
//! One that is dropped before its end, as when its process dies, is rolled back when the database
//! notices. A COMMIT that is on its way arrives all the same.

use std::sync::Arc;

use futures::channel::oneshot;
use handfast_rm_core::fence::{FenceRefusal, Operation, Pass, decide};

use super::guard::{ConnectionId, ConnectionPool};
use super::{Database, DatabaseError, Flavour, HeldConnection, LocalTransactionId, LockKey};
use crate::model::values::{Event, EventId, EventStatus, RowId, RowVersion, Undo, UndoKey};

/// An open local transaction.
#[derive(Debug)]
pub(crate) struct LocalTransaction {
    pub(super) database: Arc<Database>,
    pub(super) session: LocalTransactionId,
    /// The pool that its connection goes back to when it has ended.
    pool: (Arc<ConnectionPool>, ConnectionId),
    ended: bool,
}

impl LocalTransaction {
    pub(super) fn new(
        database: Arc<Database>,
        session: LocalTransactionId,
        pool: (Arc<ConnectionPool>, ConnectionId),
    ) -> Self {
        Self { database, session, pool, ended: false }
    }

    /// Returns its session.
    pub(super) fn session(&self) -> LocalTransactionId {
        self.session
    }

    /// `SELECT … FOR UPDATE` of one row.
    pub(crate) async fn lock_row(&self, row: RowId) -> Result<RowVersion, DatabaseError> {
        self.database.travel().await?;
        self.acquire(LockKey::Row(row)).await?;
        let cell = self.database.cell(self.session, row)?;
        self.database.answer(cell).await
    }

    /// `UPDATE` of one row that the transaction has locked.
    pub(crate) async fn update(&self, row: RowId, cell: RowVersion) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.fire_guard(row, &mut None).await?;
        self.database.write(self.session, row, cell)?;
        self.database.answer(()).await
    }

    /// `INSERT INTO undo_log`.
    pub(crate) async fn insert_undo(&self, key: UndoKey, undo: Undo) -> Result<(), DatabaseError> {
        if self.insert_undo_if_absent(key, undo).await? {
            Ok(())
        } else {
            Err(DatabaseError::UniqueViolation)
        }
    }

    /// `INSERT INTO undo_log … ON CONFLICT DO NOTHING`. Returns whether a row was inserted. Waits
    /// for another open transaction that has inserted the same key.
    pub(crate) async fn insert_undo_if_absent(
        &self,
        key: UndoKey,
        undo: Undo,
    ) -> Result<bool, DatabaseError> {
        self.database.travel().await?;
        self.acquire(LockKey::Undo(key)).await?;
        let free = self.database.undo(self.session, key)?.is_none();
        if free {
            self.database.put_undo(self.session, key, Some(undo))?;
        }
        self.database.answer(free).await
    }

    /// `SELECT … FROM undo_log … FOR UPDATE`.
    pub(crate) async fn find_undo(&self, key: UndoKey) -> Result<Option<Undo>, DatabaseError> {
        self.database.travel().await?;
        let seen = self.database.undo(self.session, key)?;
        // PostgreSQL and SQLite do not see an uncommitted row, and so do not wait for it.
        if seen.is_some() || self.database.flavour == Flavour::MariaDb {
            self.acquire(LockKey::Undo(key)).await?;
        }
        let found = match seen {
            None if self.database.flavour != Flavour::MariaDb => None,
            _ => self.database.undo(self.session, key)?,
        };
        if found.is_none() {
            // Read committed locks no gaps: another transaction may insert the missing row.
            self.database.release(self.session, LockKey::Undo(key));
        }
        self.database.answer(found).await
    }

    /// `DELETE FROM undo_log`.
    pub(crate) async fn delete_undo(&self, key: UndoKey) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        if self.database.undo(self.session, key)?.is_some() {
            self.acquire(LockKey::Undo(key)).await?;
            self.database.put_undo(self.session, key, None)?;
        }
        self.database.answer(()).await
    }

    /// Moves a branch's fence for an operation, as `fence/table.rs` does. Waits for another open
    /// transaction that has moved the same fence.
    pub(crate) async fn advance_fence(
        &self,
        key: UndoKey,
        operation: Operation,
    ) -> Result<Result<Pass, FenceRefusal>, DatabaseError> {
        self.database.travel().await?;
        self.acquire(LockKey::Fence(key)).await?;
        let decision = decide(self.database.fence(self.session, key)?, operation);
        if let Some(next) = decision.next {
            self.database.put_fence(self.session, key, next)?;
        }
        self.database.answer(decision.verdict).await
    }

    /// `INSERT INTO event_outbox`.
    pub(crate) async fn emit(
        &self,
        event: Event,
        branch: UndoKey,
        status: EventStatus,
    ) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.database.insert_event(self.session, event, branch, status)?;
        self.database.answer(()).await
    }

    /// `DELETE FROM event_outbox` of the events that a branch holds.
    pub(crate) async fn delete_held_events(&self, branch: UndoKey) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.database.delete_held_events(self.session, branch)?;
        self.database.answer(()).await
    }

    /// `INSERT INTO event_inbox`. Returns whether the event is there for the first time. Waits for
    /// another open transaction that has inserted the same event.
    pub(crate) async fn insert_inbox(&self, id: EventId) -> Result<bool, DatabaseError> {
        self.database.travel().await?;
        self.acquire(LockKey::Inbox(id)).await?;
        let first = self.database.insert_inbox(self.session, id)?;
        self.database.answer(first).await
    }

    /// `PREPARE TRANSACTION`, or `XA END` and `XA PREPARE`. Once it is sent the database executes
    /// it even if the client dies. Returns the session if the branch stays bound to it.
    pub(crate) async fn prepare(mut self) -> Result<Option<HeldConnection>, DatabaseError> {
        self.ended = true;
        let (sender, outcome) = oneshot::channel();
        let (database, session) = (Arc::clone(&self.database), self.session);
        self.database.world.spawn(self.database.owner(), async move {
            let prepared = match database.travel().await {
                Ok(()) => database.prepare(session),
                Err(error) => Err(error),
            };
            // A client that has died drops the session, and so ends it.
            let _gone = sender.send(prepared);
        });
        let held = outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.database.answer(held).await
    }

    /// `COMMIT`. Once it is sent the database executes it even if the client dies.
    pub(crate) async fn commit(mut self) -> Result<(), DatabaseError> {
        self.ended = true;
        let (sender, outcome) = oneshot::channel();
        let (database, session) = (Arc::clone(&self.database), self.session);
        self.database.world.spawn(self.database.owner(), async move {
            let committed = match database.travel().await {
                Ok(()) => database.commit(session),
                Err(error) => Err(error),
            };
            // A client that has died hears no answer.
            let _gone = sender.send(committed);
        });
        // A database that dies sends no answer.
        outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.database.answer(()).await?;
        self.give_back();
        Ok(())
    }

    /// `ROLLBACK`.
    pub(crate) async fn roll_back(mut self) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.ended = true;
        self.database.roll_back(self.session);
        self.database.answer(()).await?;
        self.give_back();
        Ok(())
    }

    /// Gives a connection back whose transaction has ended.
    fn give_back(&self) {
        let (pool, connection) = &self.pool;
        pool.put_back(*connection);
    }

    pub(super) async fn acquire(&self, key: LockKey) -> Result<(), DatabaseError> {
        match (self.database.flavour, key) {
            // The writer has locked the whole database.
            (
                Flavour::Sqlite,
                LockKey::Row(_)
                | LockKey::Undo(_)
                | LockKey::Fence(_)
                | LockKey::Inbox(_)
                | LockKey::Kept(_),
            ) => self.database.acquire(self.session, LockKey::Writer).await,
            _ => self.database.acquire(self.session, key).await,
        }
    }
}

impl Drop for LocalTransaction {
    fn drop(&mut self) {
        if !self.ended {
            self.database.disconnect(self.session);
        }
    }
}
