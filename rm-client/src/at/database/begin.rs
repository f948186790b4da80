//! Begins a local transaction that is never left open unseen.
//!
//! sqlx counts a transaction when its BEGIN is answered. A future that is dropped before that would
//! give the connection back to its pool inside a transaction that sqlx knows nothing of, and the
//! next user of the connection would work in that transaction.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database, Pool, SqlStr, Transaction};
use tokio::runtime::Handle;

type Begun<DB> = Result<Transaction<'static, DB>, sqlx::Error>;

/// Begins on a connection of the pool. When this future is dropped, a task brings the BEGIN to its
/// end and rolls back.
pub(crate) async fn begin<DB: Database>(pool: &Pool<DB>) -> Begun<DB> {
    begin_by(pool, None).await
}

/// As [`begin`], by a text of ours.
pub(crate) async fn begin_by<DB: Database>(pool: &Pool<DB>, text: Option<SqlStr>) -> Begun<DB> {
    let connection = acquire(pool).await?;
    // `Pool::begin` does the same, but its wait for a connection would have to run to its end too.
    ToItsEnd(Some(Transaction::begin(connection, text))).await
}

/// Takes a connection of the pool on which no transaction is counted.
///
/// A database may end a transaction by itself, as SQLite does when the disk is full. sqlx goes on
/// counting it on that connection, where no later begin works, so that connection is closed.
pub(crate) async fn acquire<DB: Database>(
    pool: &Pool<DB>,
) -> Result<PoolConnection<DB>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if !connection.is_in_transaction() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

/// A future that a task completes if it is dropped.
struct ToItsEnd<DB: Database>(Option<BoxFuture<'static, Begun<DB>>>);

impl<DB: Database> Future for ToItsEnd<DB> {
    type Output = Begun<DB>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Begun<DB>> {
        let Some(begins) = &mut self.0 else { return Poll::Pending };
        let begun = ready!(begins.poll_unpin(context));
        self.0 = None;
        Poll::Ready(begun)
    }
}

impl<DB: Database> Drop for ToItsEnd<DB> {
    fn drop(&mut self) {
        // Without a runtime there is no pool left to give the connection back to.
        if let (Some(begins), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(begins.map(drop));
        }
    }
}
