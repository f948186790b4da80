//! The owner of a reentrant lock is the thread, and two jobs run on it.

use anyhow::{Context, Result};
use handfast_locks::LockError;
use sqlx::SqlitePool;
use tokio::runtime::Builder;

use super::RecipeResult;
use crate::ground::{LEASE, Sqlite};

/// Acquires again if the row has the same owner.
async fn lock(pool: &SqlitePool) -> Result<Option<i64>> {
    const LOCK: &str = "INSERT INTO naive_lock (name, owner, holds, fence, expires_at) \
        VALUES ('cron', ?1, 1, 1, unixepoch('subsec') + 30) ON CONFLICT (name) DO UPDATE \
        SET holds = holds + 1 WHERE owner = ?1 RETURNING holds";
    let owner = format!("{:?}", std::thread::current().id());
    Ok(sqlx::query_scalar(LOCK).bind(owner).fetch_optional(pool).await?)
}

pub(super) async fn as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let pool = ground.pool.clone();
    let second = on_one_thread(async move {
        let first = pool.clone();
        tokio::spawn(async move { lock(&first).await }).await??.context("a free lock")?;
        tokio::spawn(async move { lock(&pool).await }).await?
    });
    let is_refused = second.await?.is_none();
    let what = "the first job holds the lock; the second, on the same thread, is let in beside it";
    RecipeResult::new(is_refused, what)
}

pub(super) async fn ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let is_refused = on_one_thread(async move {
        let (locks, _) = ground.locks(LEASE).await?;
        let first = locks.clone();
        let _held = tokio::spawn(async move { first.lock("cron").await }).await??;
        let second = tokio::spawn(async move { locks.try_lock("cron").await }).await?;
        Ok(matches!(second, Err(LockError::Busy { .. })))
    });
    let what = "the second job is refused: each acquisition is its own owner, whatever the thread";
    RecipeResult::new(is_refused.await?, what)
}

/// One thread, as a small pool has under load, for two jobs that know nothing of each other.
async fn on_one_thread<T: Send + 'static>(
    jobs: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let played = tokio::task::spawn_blocking(|| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(jobs)
    });
    played.await?
}
