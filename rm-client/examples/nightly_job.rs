//! A job that every node starts at night and one node does: under a lock, with a fencing token.
//!
//! Needs a coordinator: `cargo run -p handfast --example nightly_job`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use handfast::Handfast;
use handfast_locks::{Guard, LockError, Locks};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("reports").await?;
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("reports.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    handfast.migrate(&pool).await?; // also the table in which tokens are claimed
    sqlx::query(TABLE).execute(&pool).await?;
    // Two nodes at the same time, as two cron tables would have it.
    let (one, other) =
        tokio::join!(run(&handfast, &pool, "2026-11-27"), run(&handfast, &pool, "2026-11-27"),);
    println!("one node: {:?}, the other: {:?}", one?, other?);
    handfast.close().await;
    Ok(())
}

pub(crate) const TABLE: &str =
    "CREATE TABLE chapter (day TEXT, number INTEGER, text TEXT, PRIMARY KEY (day, number))";
const CHAPTERS: i64 = 3;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Night {
    /// This process has written the report, or what was left of it.
    Written,
    /// Another process is at it.
    Busy,
}

pub(crate) async fn run(
    handfast: &Handfast,
    pool: &SqlitePool,
    day: &str,
) -> anyhow::Result<Night> {
    let lease = Duration::from_secs(30); // renewed while this process lives
    let locks = Locks::over(handfast.locks()).label("reports").lease(lease).start()?;
    let guard = match locks.try_lock(&format!("nightly-report/{day}")).await {
        Ok(guard) => guard,
        Err(LockError::Busy { .. }) => return Ok(Night::Busy),
        Err(error) => return Err(error.into()),
    };
    for number in 1..=CHAPTERS {
        write_chapter(&guard, pool, day, number).await?;
    }
    // Lost or not: each write has claimed the report, so none came behind a later holder's.
    let _outcome = guard.release().await?;
    Ok(Night::Written)
}

/// One local transaction for each piece: a job that is started again goes on where it was.
pub(crate) async fn write_chapter(
    guard: &Guard,
    pool: &SqlitePool,
    day: &str,
    number: i64,
) -> anyhow::Result<()> {
    let mut local = pool.begin().await?;
    guard.claim(&mut local).await?; // fails if a later holder has been here: nothing is written
    let write = "INSERT INTO chapter VALUES (?, ?, 'text') ON CONFLICT DO NOTHING";
    sqlx::query(write).bind(day).bind(number).execute(&mut *local).await?;
    local.commit().await?;
    Ok(())
}
