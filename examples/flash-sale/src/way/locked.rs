//! Under a lock: the value that is read decides what is written, and no other buyer comes between.

use anyhow::Result;
use handfast_locks::{Guard, Locks, SegmentedLock};

use handfast_example_shop::dialect::Argument;

use crate::stock::{INSERT_SALE, Product, SET_UNITS, UNITS};

use super::BuyerAnswer;

pub(super) async fn under_one<DB: Product>(
    pool: &sqlx::Pool<DB>,
    locks: &Locks,
    name: &str,
    buyer: i64,
) -> Result<BuyerAnswer> {
    let guard = locks.lock(name).await?;
    let is_sold = sell_from(pool, &guard, 0, buyer).await?;
    Ok(if is_sold { BuyerAnswer::Bought } else { BuyerAnswer::SoldOut })
}

/// A buyer that finds a segment exhausted goes on to those that it has not visited. It is sold out
/// only after all of them.
pub(super) async fn under_any<DB: Product>(
    pool: &sqlx::Pool<DB>,
    segmented: &SegmentedLock,
    buyer: i64,
) -> Result<BuyerAnswer> {
    let mut segments = segmented.visit_segments();
    while let Some(segment) = segments.next_segment().await? {
        let row = i64::try_from(segment.index())?;
        if sell_from(pool, segment.guard(), row, buyer).await? {
            return Ok(BuyerAnswer::Bought);
        }
    }
    Ok(BuyerAnswer::SoldOut)
}

/// Claims first: a holder that was paused for longer than its lease must not write after this.
async fn sell_from<DB: Product>(
    pool: &sqlx::Pool<DB>,
    guard: &Guard,
    segment: i64,
    buyer: i64,
) -> Result<bool> {
    let mut local = pool.begin().await?;
    guard.claim(&mut local).await?;
    let units = DB::read_number(&mut local, UNITS, segment).await?;
    if units == 0 {
        local.rollback().await?;
        return Ok(false);
    }
    let arguments = [Argument::Number(units - 1), Argument::Number(segment)];
    DB::execute(&mut local, SET_UNITS, &arguments).await?;
    let arguments = [Argument::Number(buyer), Argument::Number(segment)];
    DB::execute(&mut local, INSERT_SALE, &arguments).await?;
    local.commit().await?;
    Ok(true)
}
