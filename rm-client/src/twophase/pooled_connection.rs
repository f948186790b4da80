//! A connection that goes back to its pool only when it is known to be clean.
//!
//! A connection that is dropped while something is open on it is closed: the server rolls an
//! unprepared branch back, and frees a prepared one for other sessions. So no open transaction
//! comes back to the pool, whichever future was dropped.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// A connection on lease from its pool: a session of the database.
pub(super) struct PooledConnection<DB: Database> {
    connection: PoolConnection<DB>,
    clean: bool,
}

impl<DB: Database> PooledConnection<DB> {
    /// Takes one from the pool.
    pub(super) async fn acquire(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, clean: false })
    }

    /// Marks that nothing is open any more: when dropped, the connection goes back to its pool.
    pub(super) fn mark_clean(&mut self) {
        self.clean = true;
    }

    /// Returns the connection, on which the local transaction is open.
    pub(super) async fn begun(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        Ok(&mut self.connection)
    }

    /// Marks that something is about to be opened: when dropped, the connection is closed.
    pub(super) fn mark_used(&mut self) {
        self.clean = false;
    }
}

impl<DB: Database> Deref for PooledConnection<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl<DB: Database> DerefMut for PooledConnection<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
}

impl<DB: Database> Drop for PooledConnection<DB> {
    fn drop(&mut self) {
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}

impl<DB: Database> std::fmt::Debug for PooledConnection<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledConnection").field("clean", &self.clean).finish_non_exhaustive()
    }
}
