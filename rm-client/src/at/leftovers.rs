//! Deletes rows that ended branches leave behind in the database.
//!
//! A bounded queue has the branches, and nothing waits for the deletion. Guarded rows without an
//! undo row hold off no write. The undo row of a branch that the coordinator has lost in a crash
//! belongs to a global that is committed, and nothing will ask for it any more.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::Pool;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::database::{AtDatabase, Backend};
use super::guarded;
use super::undo::table::{self as undo_table, DELETE_MAX};
use crate::fence::is_conflict;
use crate::xid::Xid;

/// How many branches may wait for their rows to be deleted (BOUNDED). Those of further ones stay.
const WAITING_MAX: usize = 10_000;

/// How many times the deletion of a branch's rows is tried (BOUNDED).
const ATTEMPTS_MAX: u32 = 10;
/// The pause before another attempt, but after a deadlock. Shorter: a database that is away for a
/// moment is away for all attempts. Longer: rows stay longer.
const PAUSE: Duration = Duration::from_secs(1);

/// The kinds of rows that ended branches leave behind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeftRows {
    /// Keys and notes that triggers have kept for a guard. The sweep deletes those that stay.
    Guarded,
    /// The undo rows of lost branches. Those that stay are for an operator to delete.
    Undo,
}

/// A branch by XID and id.
type BranchName = (Arc<str>, u64);

/// The branches that have ended, whose rows of one kind can go.
#[derive(Debug)]
pub(crate) struct Leftovers(mpsc::Sender<BranchName>);

impl Leftovers {
    /// Makes a queue, and deletes what is put into it until the queue is dropped.
    pub(crate) fn deleted_from<DB: AtDatabase>(pool: &Pool<DB>, rows: LeftRows) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(delete_all(pool.clone(), rows, receiver));
        Self(sender)
    }

    /// Has the rows of a branch deleted.
    pub(crate) fn delete(&self, xid: &str, branch: u64) {
        if self.0.try_send((Arc::from(xid), branch)).is_err() {
            tracing::debug!(xid, branch, "rows of an ended branch are left");
        }
    }

    /// Has the undo row of a branch deleted that was all of its global, and has committed.
    pub(crate) fn delete_lost(&self, xid: &Xid, branch: u64) {
        tracing::info!(%xid, branch, "committed; the coordinator has lost it in a crash");
        self.delete(xid.as_str(), branch);
    }
}

async fn delete_all<DB: AtDatabase>(
    pool: Pool<DB>,
    rows: LeftRows,
    mut ended: mpsc::Receiver<BranchName>,
) {
    let mut branches = Vec::new();
    while ended.recv_many(&mut branches, DELETE_MAX).await > 0 {
        let names: Vec<(&str, u64)> = branches.iter().map(|(xid, id)| (&**xid, *id)).collect();
        // A writer that was refused, and stays in its transaction, keeps a guarded row locked on
        // MySQL.
        if let Err(error) = delete::<DB>(&pool, rows, &names).await {
            let branches = names.len();
            tracing::warn!(%error, branches, ?rows, "rows of ended branches are left");
        }
        branches.clear();
    }
}

/// Deletes rows of branches. Tries again at once after a deadlock: on MySQL the triggers of guarded
/// tables lock the rows that a writer meets, in the writer's order. After any other failure, such
/// as a pool without a free connection, it tries again a little later.
async fn delete<DB: AtDatabase>(
    pool: &Pool<DB>,
    rows: LeftRows,
    branches: &[(&str, u64)],
) -> Result<(), sqlx::Error> {
    let mut attempts = 1;
    loop {
        let deleted = async {
            let mut connection = pool.acquire().await?;
            rows.delete::<DB>(&mut connection, branches).await
        };
        match deleted.await {
            Err(error) if attempts < ATTEMPTS_MAX && !pool.is_closed() => {
                attempts += 1;
                if !is_conflict(&error) {
                    sleep(PAUSE).await;
                }
            }
            end => return end,
        }
    }
}

impl LeftRows {
    fn delete<'c, DB: Backend>(
        self,
        connection: &'c mut DB::Connection,
        branches: &'c [(&'c str, u64)],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        match self {
            Self::Guarded => Box::pin(guarded::remove::<DB>(connection, branches)),
            Self::Undo => Box::pin(undo_table::delete_many::<DB>(connection, branches)),
        }
    }
}
