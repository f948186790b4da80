//! A connection for work that may be cut off in the middle.
//!
//! A connection that still waits for an answer is of no use to the pool. The pool would ping it
//! before it gives it away, and keep a slot for it until the ping is answered, which may be never.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::at::database::begin::acquire;

/// A connection from a pool. It is closed if it is dropped before [`Lent::end`].
pub(crate) struct Lent<DB: Database> {
    connection: PoolConnection<DB>,
    is_over: bool,
}

impl<DB: Database> Lent<DB> {
    pub(crate) async fn of(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: acquire(pool).await?, is_over: false })
    }

    /// Gives the connection back, after every call on it was answered.
    pub(crate) fn end(mut self) {
        self.is_over = true;
    }
}

impl<DB: Database> Deref for Lent<DB> {
    type Target = PoolConnection<DB>;

    fn deref(&self) -> &PoolConnection<DB> {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Lent<DB> {
    fn deref_mut(&mut self) -> &mut PoolConnection<DB> {
        &mut self.connection
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}
