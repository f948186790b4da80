//! A try that is a wait: `tryLock()` calls the waiting one with no limit, which means no end.

use std::time::Duration;

use anyhow::{Context, Result};
use handfast_locks::LockError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::RecipeResult;
use super::table::Table;
use crate::ground::{LEASE, Sqlite};

/// A caller that has polled this often is waiting.
const LOOKS: u32 = 20;

struct Naive {
    table: Table,
    looks: watch::Sender<u32>,
}

impl Naive {
    async fn try_lock(&self, name: &str, owner: &str) -> Result<bool> {
        self.lock_within(name, owner, None).await
    }

    async fn lock_within(&self, name: &str, owner: &str, limit: Option<Duration>) -> Result<bool> {
        let began = Instant::now();
        while limit.is_none_or(|limit| began.elapsed() < limit) {
            self.looks.send_modify(|looks| *looks += 1);
            if self.table.take(name, owner, LEASE).await?.is_some() {
                return Ok(true);
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(false)
    }
}

pub(super) async fn as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.pool.clone() };
    table.take("cron", "A", LEASE).await?.context("A takes a free lock")?;
    let naive = Naive { table, looks: watch::Sender::default() };
    let mut looks = naive.looks.subscribe();
    tokio::select! {
        told = naive.try_lock("cron", "B") => {
            RecipeResult::new(true, format!("B is told: {}", told?))
        }
        _ = looks.wait_for(|looks| *looks >= LOOKS) => {
            RecipeResult::new(false, format!("after {LOOKS} looks B's try still waits for A"))
        }
    }
}

pub(super) async fn ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (a, _) = ground.locks(LEASE).await?;
    let (b, passed) = ground.locks(LEASE).await?;
    let _guard = a.lock("cron").await?;
    let refused = matches!(b.try_lock("cron").await, Err(LockError::Busy { .. }));
    let asks = passed.passed().asks;
    RecipeResult::new(refused && asks == 1, format!("B is refused after {asks} look"))
}
