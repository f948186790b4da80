//! A scheduler for each lock object, and a wait that spins once it was interrupted.
//!
//! Each side runs on a runtime of its own, so that what is alive in it can be counted.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_locks::Locks;
use tokio::runtime::{Builder, Handle};
use tokio::time::sleep;

use super::RecipeResult;
use super::table::Table;
use super::watched::Watched;
use crate::ground::{LEASE, Sqlite};

/// Locks that are used one after the other.
const LOCKS: usize = 50;
/// The number of polls without a pause after which a wait is a spin.
const SPIN: u32 = 200;
/// How often, and at which interval, the tasks still alive are counted (BOUNDED).
const LOOKS_FOR_TASKS: u32 = 5_000;
const LOOK_EVERY: Duration = Duration::from_millis(2);

struct Naive {
    table: Table,
    pauses: AtomicU32,
    looks: AtomicU32,
    is_interrupted: AtomicBool,
}

impl Naive {
    /// A lock object makes its scheduler. Nothing ends it.
    fn new(table: Table) -> Self {
        tokio::spawn(async {
            loop {
                sleep(LEASE / 3).await;
            }
        });
        let (pauses, looks) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { table, pauses, looks, is_interrupted: AtomicBool::new(false) }
    }

    /// An interrupted sleep sets the flag again, so every later one is interrupted too.
    async fn lock(&self, name: &str) -> Result<()> {
        while self.table.take(name, "B", LEASE).await?.is_none() {
            if self.looks.fetch_add(1, Ordering::SeqCst) > SPIN {
                return Ok(());
            }
            if !self.is_interrupted.load(Ordering::SeqCst) {
                self.pauses.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

pub(super) async fn as_written() -> Result<RecipeResult> {
    on_its_own(async {
        let ground = Sqlite::new().await?;
        let table = Table { pool: ground.pool.clone() };
        let before = alive();
        for number in 0..LOCKS {
            let name = format!("order/{number}");
            let naive = Naive::new(table.clone());
            naive.lock(&name).await?;
            table.delete(&name, "B").await?;
        }
        let left = left_above(before).await;
        let spun = spin(&table).await?;
        let what = format!(
            "{left} schedulers are left of {LOCKS} locks that are no more; the interrupted wait \
             looks {spun} times without a pause"
        );
        RecipeResult::new(left == 0 && spun == 0, what)
    })
    .await
}

/// Counts polls between an interruption and the time limit, if no pause came between.
async fn spin(table: &Table) -> Result<u32> {
    table.take("cron", "A", LEASE).await?.context("A takes a free lock")?;
    let waiting = Naive::new(table.clone());
    waiting.is_interrupted.store(true, Ordering::SeqCst);
    waiting.lock("cron").await?;
    let looks = waiting.looks.load(Ordering::SeqCst);
    Ok(if waiting.pauses.load(Ordering::SeqCst) == 0 { looks } else { 0 })
}

pub(super) async fn ours() -> Result<RecipeResult> {
    on_its_own(async {
        let ground = Sqlite::new().await?;
        let (locks, passed) = ground.locks(LEASE).await?;
        drop(locks.lock("order").await?);
        locks.settle().await?;
        let before = alive();
        for number in 0..LOCKS {
            drop(locks.lock(&format!("order/{number}")).await?);
        }
        locks.settle().await?;
        let left = left_above(before).await;
        let asks = waited_in_vain(&ground, &locks, &passed).await?;
        let what = format!(
            "{left} tasks more after {LOCKS} locks; the interrupted wait looks {asks} time and is \
             gone"
        );
        RecipeResult::new(left == 0 && asks <= 2, what)
    })
    .await
}

/// An interrupted wait is a future that is dropped. Returns how often it has polled.
async fn waited_in_vain(ground: &Sqlite, locks: &Locks, passed: &Watched) -> Result<u32> {
    let (other, _) = ground.locks(LEASE).await?;
    let _held = other.lock("cron").await?;
    let before = passed.passed().asks;
    tokio::select! {
        biased;
        taken = locks.lock("cron") => drop(taken?),
        () = passed.until(|passed| passed.asks > before) => {}
    }
    locks.settle().await?;
    Ok(passed.passed().asks - before)
}

/// Counts the tasks that stay: a connection on its way back to its pool is a task for a moment.
async fn left_above(before: usize) -> usize {
    for _ in 0..LOOKS_FOR_TASKS {
        if alive() <= before {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    alive().saturating_sub(before)
}

/// Counts the tasks that are alive in this runtime.
fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn on_its_own(
    steps: impl Future<Output = Result<RecipeResult>> + Send + 'static,
) -> Result<RecipeResult> {
    let played = tokio::task::spawn_blocking(|| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(steps)
    });
    played.await?
}
