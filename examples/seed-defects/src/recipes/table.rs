//! A lock table as it is often written, and two of its defects: it compares the clocks of two
//! machines, and unlock deletes the row.
//!
//! The other recipes use this table too, each with its own mistake on top.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use handfast_locks::fencing::claim;
use handfast_locks::{FencingToken, LockError, LockName};
use sqlx::SqlitePool;

use super::RecipeResult;
use crate::ground::{LEASE, Sqlite};

/// The table. All its times are by the database's clock.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) pool: SqlitePool,
}

impl Table {
    /// Takes a lock that is free or whose lease has ended, and returns its fencing token.
    pub(super) async fn take(
        &self,
        name: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<i64>, sqlx::Error> {
        const TAKE: &str = "INSERT INTO naive_lock (name, owner, holds, fence, expires_at) \
            VALUES (?1, ?2, 1, 1, unixepoch('subsec') + ?3) ON CONFLICT (name) DO UPDATE \
            SET owner = ?2, holds = 1, fence = fence + 1, expires_at = excluded.expires_at \
            WHERE expires_at <= unixepoch('subsec') RETURNING fence";
        let take = sqlx::query_scalar(TAKE).bind(name).bind(owner).bind(lease.as_secs_f64());
        take.fetch_optional(&self.pool).await
    }

    /// Renews, and returns the number of rows found.
    pub(super) async fn renew(
        &self,
        name: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<u64, sqlx::Error> {
        const RENEW: &str = "UPDATE naive_lock SET expires_at = unixepoch('subsec') + ? \
            WHERE name = ? AND owner = ?";
        let renew = sqlx::query(RENEW).bind(lease.as_secs_f64()).bind(name).bind(owner);
        Ok(renew.execute(&self.pool).await?.rows_affected())
    }

    /// Unlocks as the recipe does.
    pub(super) async fn delete(&self, name: &str, owner: &str) -> Result<(), sqlx::Error> {
        let delete = sqlx::query("DELETE FROM naive_lock WHERE name = ? AND owner = ?");
        delete.bind(name).bind(owner).execute(&self.pool).await.map(drop)
    }

    pub(super) async fn owner(&self, name: &str) -> Result<Option<String>, sqlx::Error> {
        let owner = sqlx::query_scalar("SELECT owner FROM naive_lock WHERE name = ?");
        owner.bind(name).fetch_optional(&self.pool).await
    }
}

/// A client compares the row's expiry with its own clock, which is half a minute ahead.
pub(super) async fn clock_as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.pool.clone() };
    table.take("cron", "A", LEASE).await?.context("A takes a free lock")?;
    let expires_at: f64 =
        sqlx::query_scalar("SELECT expires_at FROM naive_lock").fetch_one(&table.pool).await?;
    let clock_of_b = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(31);
    if expires_at > clock_of_b.as_secs_f64() {
        return RecipeResult::new(true, "B, 31 s ahead, waits");
    }
    let steal = "UPDATE naive_lock SET owner = 'B' WHERE owner = 'A' AND expires_at = ?";
    let stolen = sqlx::query(steal).bind(expires_at).execute(&table.pool).await?.rows_affected();
    let what = "A has 30 s left; B, whose clock is 31 s ahead, takes its lock";
    RecipeResult::new(stolen == 0, what)
}

/// No request carries a time, so there is nothing to be ahead of.
pub(super) async fn clock_ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (a, _) = ground.locks(LEASE).await?;
    let (b, _) = ground.locks(LEASE).await?;
    let guard = a.lock("cron").await?;
    let refused = matches!(b.try_lock("cron").await, Err(LockError::Busy { .. }));
    let what = "B is refused: the database alone compares times, and they are its own";
    RecipeResult::new(refused && guard.is_held(), what)
}

/// A is paused before its write; meanwhile the lock is unlocked and taken again.
pub(super) async fn deleted_as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let table = Table { pool: ground.pool.clone() };
    let of_a = table.take("row", "A", LEASE).await?.context("A takes a free lock")?;
    table.delete("row", "A").await?;
    let of_b = table.take("row", "B", LEASE).await?.context("B takes a free lock")?;
    is_passed(&ground.pool, of_b).await?;
    let is_passed = is_passed(&ground.pool, of_a).await?;
    let what = format!("A had token {of_a}, B has {of_b}: A's late write is admitted after B's");
    RecipeResult::new(!is_passed, what)
}

pub(super) async fn deleted_ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (locks, _) = ground.locks(LEASE).await?;
    let guard = locks.lock("row").await?;
    let of_a = guard.fencing_token().number();
    drop(guard);
    let of_b = locks.lock("row").await?.fencing_token().number();
    is_passed(&ground.pool, of_b).await?;
    let is_passed = is_passed(&ground.pool, of_a).await?;
    let what = format!("A had token {of_a}, B has {of_b}: A's late write is refused");
    RecipeResult::new(!is_passed, what)
}

/// Returns whether the resource admits a holder: the same check for both.
async fn is_passed(pool: &SqlitePool, fencing_token: i64) -> Result<bool> {
    let mut local = pool.begin().await?;
    let claimed = claim(&mut local, &LockName::new("row")?, FencingToken::new(fencing_token)).await;
    local.commit().await?;
    match claimed {
        Ok(()) => Ok(true),
        Err(LockError::Stale { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
