//! A local transaction as a client holds it: statements that travel, and a connection that breaks.
//!
//! Dropped without an end, as when its process dies, it is rolled back when the database notices;
//! a COMMIT that is on its way arrives all the same.

use std::sync::Arc;

use futures::channel::oneshot;
use handfast::fence::{Operation, Pass, Refusal, decide};

use crate::database::{
    Cell, Database, DatabaseError, Flavour, LocalId, LockKey, RowId, Undo, UndoKey,
};
use crate::world::{MS, Owner, SECOND};

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
            (Flavour::Sqlite, LockKey::Row(_) | LockKey::Undo(_) | LockKey::Fence(_)) => {
                self.database.take(self.session, LockKey::Writer).await
            }
            _ => self.database.take(self.session, key).await,
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (database, session) = (Arc::clone(&self.database), self.session);
        let world = Arc::clone(&database.world);
        let notice = world.draw(|random| match random.happens(800) {
            true => random.between(100, 10 * MS),
            false => random.between(100 * MS, 6 * SECOND),
        });
        let sleep = world.sleep(notice);
        world.spawn(Owner::World, async move {
            sleep.await;
            database.roll_back(session);
        });
    }
}
