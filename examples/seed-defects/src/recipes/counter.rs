//! A counter that is read, checked, and decremented by a statement that does not check.

use anyhow::Result;
use handfast_locks::Locks;
use sqlx::SqlitePool;

use super::RecipeResult;
use crate::ground::{LEASE, Sqlite};

const READ: &str = "SELECT units FROM stock WHERE id = 1";

pub(super) async fn as_written() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let read_by_a: i64 = sqlx::query_scalar(READ).fetch_one(&ground.pool).await?;
    let read_by_b: i64 = sqlx::query_scalar(READ).fetch_one(&ground.pool).await?;
    for read in [read_by_a, read_by_b] {
        if read > 0 {
            let sell = "UPDATE stock SET units = units - 1 WHERE id = 1";
            sqlx::query(sell).execute(&ground.pool).await?;
        }
    }
    let left: i64 = sqlx::query_scalar(READ).fetch_one(&ground.pool).await?;
    RecipeResult::new(left >= 0, format!("A and B have both bought the last unit: {left} left"))
}

/// Both come at once.
pub(super) async fn ours() -> Result<RecipeResult> {
    let ground = Sqlite::new().await?;
    let (of_a, _) = ground.locks(LEASE).await?;
    let (of_b, _) = ground.locks(LEASE).await?;
    let (a, b) = tokio::try_join!(buy(&of_a, &ground.pool), buy(&of_b, &ground.pool))?;
    let left: i64 = sqlx::query_scalar(READ).fetch_one(&ground.pool).await?;
    let what = format!("one of them has bought it, the other is told sold out: {left} left");
    RecipeResult::new(left == 0 && a != b, what)
}

/// Buys a unit, and returns whether there was one.
async fn buy(locks: &Locks, shop: &SqlitePool) -> Result<bool> {
    let guard = locks.lock("stock/1").await?;
    let mut local = shop.begin().await?;
    guard.claim(&mut local).await?;
    let units: i64 = sqlx::query_scalar(READ).fetch_one(&mut *local).await?;
    if units == 0 {
        return Ok(false);
    }
    let sell = sqlx::query("UPDATE stock SET units = ? WHERE id = 1").bind(units - 1);
    sell.execute(&mut *local).await?;
    local.commit().await?;
    Ok(true)
}
