//! Three watchdogs that watch the wrong thing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use handfast_locks::{LockError, LockRef, Locks};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::RecipeResult;
use super::table::Table;
use crate::ground::{LEASE, Sqlite};

/// The lease of recipes in which a lease ends.
const SHORT: Duration = Duration::from_millis(600);
/// The lease of this project's locks, which have to outlive a hiccup on a busy machine.
const OURS: Duration = Duration::from_secs(6);

/// A lock of the recipe, held and renewed, as its own object sees it.
struct Naive {
    table: Table,
    name: &'static str,
    owner: &'static str,
    lease: Duration,
}

impl Naive {
    /// Renews at a third of the lease, by a scheduler whose result is not read.
    async fn take(self) -> Result<(Arc<Self>, JoinHandle<Result<()>>)> {
        let taken = self.table.take(self.name, self.owner, self.lease).await?;
        taken.context("a free lock is taken")?;
        let this = Arc::new(self);
        let renewing = Arc::clone(&this);
        Ok((this, tokio::spawn(async move { renewing.renew_while(|| true).await })))
    }

    async fn renew_while(&self, is_alive: impl Fn() -> bool) -> Result<()> {
        while is_alive() {
            sleep(self.lease / 3).await;
            if self.table.renew(self.name, self.owner, self.lease).await? == 0 {
                // Another holder has the lock by now, and no code reads how this ended.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns what the holder believes: nothing has reported otherwise.
    fn is_held(&self) -> bool {
        true
    }
}

/// The database is busy for a moment, which is an error to the renewal.
pub(super) async fn error_as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.impatient().await? };
    let naive = Naive { table: table.clone(), name: "cron", owner: "A", lease: SHORT };
    let (a, renewing) = naive.take().await?;
    let hiccup = ground.pool.begin_with("BEGIN IMMEDIATE").await?;
    let ended = renewing.await?;
    hiccup.rollback().await?;
    let b = Table { pool: ground.pool.clone() };
    while b.take("cron", "B", SHORT).await?.is_none() {
        sleep(SHORT / 10).await;
    }
    let what = match ended {
        Ok(()) => bail!("the renewal met no error"),
        Err(error) => format!("after `{error}` A renews no more: B takes the lock, and A works on"),
    };
    RecipeResult::new(!a.is_held(), what)
}

pub(super) async fn error_ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (locks, passed) = ground.impatient_locks(OURS).await?;
    let guard = locks.lock("cron").await?;
    let hiccup = ground.pool.begin_with("BEGIN IMMEDIATE").await?;
    passed.until(|passed| passed.failures > 0).await;
    hiccup.rollback().await?;
    let before = passed.passed();
    passed.until(|passed| passed.renewals >= before.renewals + 2).await;
    let (b, _) = ground.locks(LEASE).await?;
    let refused = matches!(b.try_lock("cron").await, Err(LockError::Busy { .. }));
    let what = "the failed renewal is repeated: A holds the lock, B is refused";
    RecipeResult::new(guard.is_held() && refused, what)
}

/// An operator gives the row to another holder.
pub(super) async fn nothing_as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.pool.clone() };
    let naive = Naive { table: table.clone(), name: "cron", owner: "A", lease: SHORT };
    let (a, renewing) = naive.take().await?;
    table.delete("cron", "A").await?;
    table.take("cron", "B", LEASE).await?.context("B takes the lock that was freed")?;
    renewing.await??;
    let what = "A's renewal finds no row and ends; A has never heard of it, and B holds the lock";
    RecipeResult::new(!a.is_held(), what)
}

pub(super) async fn nothing_ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (locks, passed) = ground.locks(OURS).await?;
    let guard = locks.lock("cron").await?;
    let lock_ref = LockRef { name: guard.name().clone(), id: guard.id() };
    passed.give_away(lock_ref).await?;
    let (b, _) = ground.locks(LEASE).await?;
    let _taken = b.try_lock("cron").await?;
    let why = guard.lost().await;
    RecipeResult::new(!guard.is_held(), format!("A is told at the next renewal: {why}"))
}

/// A job fails between lock and unlock, on a thread of a pool, which lives on.
pub(super) async fn thread_as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.pool.clone() };
    let naive = Arc::new(Naive { table, name: "cron", owner: "A", lease: SHORT });
    let renewals = watch::Sender::<u32>::default();
    // The pool's thread lives as long as this does.
    let thread = Arc::new(());
    let alive = Arc::downgrade(&thread);
    let (renewing, counted) = (Arc::clone(&naive), renewals.clone());
    let failed = async {
        naive.table.take("cron", "A", SHORT).await?.context("A takes a free lock")?;
        tokio::spawn(async move {
            let count = || counted.send_modify(|renewals| *renewals += 1);
            renewing.renew_while(|| alive.upgrade().map(|_| count()).is_some()).await
        });
        fail()?;
        naive.table.delete("cron", "A").await?;
        anyhow::Ok(())
    };
    let failed = failed.await.is_err();
    // Three leases and more. A sender lives in this function.
    let _ = renewals.subscribe().wait_for(|renewals| *renewals > 10).await;
    let holder = naive.table.owner("cron").await?;
    let b = naive.table.take("cron", "B", SHORT).await?;
    drop(thread);
    let what = "A's job has failed; three leases later its lock is still renewed, B is refused";
    RecipeResult::new(!(failed && holder.as_deref() == Some("A") && b.is_none()), what)
}

pub(super) async fn thread_ours() -> Result<RecipeResult> {
    async fn job(locks: &Locks) -> Result<()> {
        let guard = locks.lock("cron").await?;
        fail()?;
        drop(guard);
        Ok(())
    }
    let ground = Sqlite::new().await?;
    let (locks, _) = ground.locks(LEASE).await?;
    let failed = job(&locks).await.is_err();
    locks.settle().await?;
    let (b, _) = ground.locks(LEASE).await?;
    let taken = b.try_lock("cron").await.is_ok();
    RecipeResult::new(
        failed && taken,
        "the guard goes with A's failed job: B takes the lock at once",
    )
}

fn fail() -> Result<()> {
    bail!("the job has failed")
}
