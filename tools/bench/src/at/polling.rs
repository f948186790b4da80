//! Branches whose client polls for its global locks, as Seata's does: every 10 ms and at most 30
//! times, either with the database's row lock held all the while, or after a rollback and before
//! the local transaction is repeated.
//!
//! The statements are those of Seata too: before image, statement, after image, undo row. Undo rows
//! are not deleted and rollbacks restore nothing, which makes polling look better than it is.

use std::time::Duration;

use anyhow::{Result, bail};
use handfast_proto::v1::Decision;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::time::sleep;

use super::caller::Caller;
use super::database::{BenchDatabase, Fresh, Statement};
use crate::load::Shape;

/// Seata's defaults.
const PAUSE: Duration = Duration::from_millis(10);
const ATTEMPTS: u32 = 30;
/// The length of a small undo log of one row.
const UNDO_BYTES: usize = 150;

/// The locks that the client holds between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The database's row lock.
    Hold,
    /// Nothing: it rolls back first, and repeats its work.
    Back,
}

/// A database, and the number of its resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a, DB: BenchDatabase> {
    pub(crate) database: &'a Fresh<DB>,
    pub(crate) number: usize,
    pub(crate) item: i64,
}

/// Creates the table for undo rows.
pub(crate) async fn prepare<DB: BenchDatabase>(database: &Fresh<DB>) -> Result<()> {
    let table = "CREATE TABLE polled_undo (branch_id BIGINT NOT NULL PRIMARY KEY, \
                 xid VARCHAR(128) NOT NULL, log VARCHAR(2000) NOT NULL)";
    Ok(DB::execute(&database.pool, table.to_owned()).await?)
}

/// Runs one global over these rows. Returns whether it committed.
pub(crate) async fn global<DB: BenchDatabase>(
    caller: &Caller,
    policy: Policy,
    targets: &[Target<'_, DB>],
    random: &mut SmallRng,
) -> Result<bool> {
    let xid = caller.begin().await?;
    for target in targets {
        if !branch(caller, policy, target, &xid, random).await? {
            caller.end(&xid, Decision::RollBack).await?;
            return Ok(false);
        }
    }
    caller.end(&xid, Decision::Commit).await?;
    Ok(true)
}

/// Runs one branch. Returns whether it got its lock in time.
async fn branch<DB: BenchDatabase>(
    caller: &Caller,
    policy: Policy,
    target: &Target<'_, DB>,
    xid: &str,
    random: &mut SmallRng,
) -> Result<bool> {
    let rows = Shape::of_one_row();
    let mut request = rows.registration(xid, &crate::load::resource_id(target.number), random);
    request.wait = None;
    request.rows[0].keys = vec![format!("6:{:06}", target.item).into_bytes()];
    for _ in 0..ATTEMPTS {
        let mut local = DB::begin_local(&target.database.pool).await?;
        let read = format!("SELECT * FROM item WHERE id = {} FOR UPDATE", target.item);
        DB::execute_in(&mut local, read.clone()).await?;
        DB::update(&mut local, Statement::Point, target.item).await?;
        DB::execute_in(&mut local, read).await?;
        let id = random.random_range(1..i64::MAX);
        let log = "x".repeat(UNDO_BYTES);
        let undo = format!("INSERT INTO polled_undo VALUES ({id}, '{xid}', '{log}')");
        DB::execute_in(&mut local, undo).await?;
        let tries = if policy == Policy::Hold { ATTEMPTS } else { 1 };
        for attempt in 0..tries {
            if attempt > 0 {
                sleep(PAUSE).await;
            }
            if caller.register(request.clone()).await? {
                local.commit().await?;
                return Ok(true);
            }
        }
        local.rollback().await?;
        if policy == Policy::Hold {
            return Ok(false);
        }
        sleep(PAUSE).await;
    }
    Ok(false)
}

/// A product without row locks cannot poll for one.
pub(crate) fn require_row_locks<DB: BenchDatabase>() -> Result<()> {
    if DB::DROP.is_none() {
        bail!("{} locks the whole database: there are no hot rows", DB::PRODUCT);
    }
    Ok(())
}
