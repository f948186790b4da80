//! A local transaction as a client holds it: statements that travel, and a connection that breaks.
//!
//! Dropped without an end, as when its process dies, it is rolled back when the database notices;
//! a COMMIT that is on its way arrives all the same.

use std::sync::Arc;

use futures::channel::oneshot;
use handfast_rm_core::fence::{Operation, Pass, Refusal, decide};

use crate::database::{
    Cell, Database, DatabaseError, Event, EventId, EventStatus, Flavour, Held, LocalId, LockKey,
    RowId, Undo, UndoKey,
};

/// An open local transaction.
#[derive(Debug)]
pub(crate) struct Local {
    database: Arc<Database>,
    session: LocalId,
    ended: bool,
}

impl Local {
    pub(crate) fn new(database: Arc<Database>, session: LocalId) -> Self {
        Self { database, session, ended: false }
    }

    /// The database's name for it.
    pub(crate) fn session(&self) -> LocalId {
        self.session
    }

    /// `SELECT … FOR UPDATE` of one row.
    pub(crate) async fn lock_row(&self, row: RowId) -> Result<Cell, DatabaseError> {
        self.database.travel().await?;
        self.take(LockKey::Row(row)).await?;
        let cell = self.database.cell(self.session, row)?;
        self.database.answer(cell).await
    }

    /// `UPDATE` of one row that is locked.
    pub(crate) async fn update(&self, row: RowId, cell: Cell) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.database.write(self.session, row, cell)?;
        self.database.answer(()).await
    }

    /// `INSERT INTO undo_log`.
    pub(crate) async fn insert_undo(&self, key: UndoKey, undo: Undo) -> Result<(), DatabaseError> {
        if self.insert_unless_there(key, undo).await? {
            Ok(())
        } else {
            Err(DatabaseError::UniqueViolation)
        }
    }

    /// `INSERT INTO undo_log … ON CONFLICT DO NOTHING`: whether it did something. Waits for another
    /// local transaction that has put in the same key and is not at its end.
    pub(crate) async fn insert_unless_there(
        &self,
        key: UndoKey,
        undo: Undo,
    ) -> Result<bool, DatabaseError> {
        self.database.travel().await?;
        self.take(LockKey::Undo(key)).await?;
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
        // PostgreSQL does not see, and so does not wait for, what is not committed.
        if seen.is_some() || self.database.flavour == Flavour::MariaDb {
            self.take(LockKey::Undo(key)).await?;
        }
        let found = match seen {
            None if self.database.flavour != Flavour::MariaDb => None,
            _ => self.database.undo(self.session, key)?,
        };
        if found.is_none() {
            // Read committed locks no gaps: what is not there can be put in by others.
            self.database.release(self.session, LockKey::Undo(key));
        }
        self.database.answer(found).await
    }

    /// `DELETE FROM undo_log`.
    pub(crate) async fn delete_undo(&self, key: UndoKey) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        if self.database.undo(self.session, key)?.is_some() {
            self.take(LockKey::Undo(key)).await?;
            self.database.put_undo(self.session, key, None)?;
        }
        self.database.answer(()).await
    }

    /// The fence's step for an operation, as `fence/table.rs` takes it: waits for another local
    /// transaction that has taken one of the same branch and is not at its end.
    pub(crate) async fn advance(
        &self,
        key: UndoKey,
        operation: Operation,
    ) -> Result<Result<Pass, Refusal>, DatabaseError> {
        self.database.travel().await?;
        self.take(LockKey::Fence(key)).await?;
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

    /// `DELETE FROM event_outbox` of what a branch holds.
    pub(crate) async fn remove_held(&self, branch: UndoKey) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.database.remove_held(self.session, branch)?;
        self.database.answer(()).await
    }

    /// `INSERT INTO event_inbox`: whether it is the first. Waits for another delivery that has put
    /// in the same event and is not at its end.
    pub(crate) async fn enter_inbox(&self, id: EventId) -> Result<bool, DatabaseError> {
        self.database.travel().await?;
        self.take(LockKey::Inbox(id)).await?;
        let first = self.database.enter_inbox(self.session, id)?;
        self.database.answer(first).await
    }

    /// `PREPARE TRANSACTION`, or `XA END` and `XA PREPARE`. Sent, it is the database's business.
    /// Gives back its session where that has to stay.
    pub(crate) async fn prepare(mut self) -> Result<Option<Held>, DatabaseError> {
        self.ended = true;
        let (told, outcome) = oneshot::channel();
        let (database, session) = (Arc::clone(&self.database), self.session);
        self.database.world.spawn(self.database.owner(), async move {
            let prepared = match database.travel().await {
                Ok(()) => database.prepare(session),
                Err(error) => Err(error),
            };
            // With nobody there the session ends.
            let _gone = told.send(prepared);
        });
        let held = outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.database.answer(held).await
    }

    /// `COMMIT`. Sent, it is the database's business, whatever becomes of the client.
    pub(crate) async fn commit(mut self) -> Result<(), DatabaseError> {
        self.ended = true;
        let (told, outcome) = oneshot::channel();
        let (database, session) = (Arc::clone(&self.database), self.session);
        self.database.world.spawn(self.database.owner(), async move {
            let committed = match database.travel().await {
                Ok(()) => database.commit(session),
                Err(error) => Err(error),
            };
            // The connection ends with its client.
            let _gone = told.send(committed);
        });
        // A database that dies takes the answer with it.
        outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.database.answer(()).await
    }

    /// `ROLLBACK`.
    pub(crate) async fn roll_back(mut self) -> Result<(), DatabaseError> {
        self.database.travel().await?;
        self.ended = true;
        self.database.roll_back(self.session);
        self.database.answer(()).await
    }

    async fn take(&self, key: LockKey) -> Result<(), DatabaseError> {
        match (self.database.flavour, key) {
            // It has the whole database.
            (
                Flavour::Sqlite,
                LockKey::Row(_) | LockKey::Undo(_) | LockKey::Fence(_) | LockKey::Inbox(_),
            ) => self.database.take(self.session, LockKey::Writer).await,
            _ => self.database.take(self.session, key).await,
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if !self.ended {
            self.database.part(self.session);
        }
    }
}
