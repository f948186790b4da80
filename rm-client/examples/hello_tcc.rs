//! TCC mode: seats are held by the try, sold by the confirm, given back by the cancel.
//!
//! Needs a coordinator: `cargo run -p handfast-cli -- serve`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use handfast::{Handfast, Tcc, TccBranch};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};

struct SellSeats;

type Local<'a> = Transaction<'a, Sqlite>;

impl Tcc for SellSeats {
    type Database = Sqlite;
    type Input = i64;
    type Error = sqlx::Error;

    async fn try_(&self, seats: &i64, _: &TccBranch, on: &mut Local<'_>) -> sqlx::Result<()> {
        let hold = "UPDATE train SET free = free - ?1, held = held + ?1 WHERE free >= ?1";
        change(on, hold, *seats).await
    }

    async fn confirm(&self, seats: &i64, _: &TccBranch, on: &mut Local<'_>) -> sqlx::Result<()> {
        change(on, "UPDATE train SET held = held - ?1, sold = sold + ?1", *seats).await
    }

    async fn cancel(&self, seats: &i64, _: &TccBranch, on: &mut Local<'_>) -> sqlx::Result<()> {
        change(on, "UPDATE train SET held = held - ?1, free = free + ?1", *seats).await
    }
}

async fn change(on: &mut Local<'_>, sql: &'static str, seats: i64) -> sqlx::Result<()> {
    match sqlx::query(sql).bind(seats).execute(&mut **on).await?.rows_affected() {
        0 => Err(sqlx::Error::RowNotFound),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("hello-tcc").await?;
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("train.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    handfast.migrate(&pool).await?;
    sqlx::query("CREATE TABLE train (free INTEGER, held INTEGER, sold INTEGER)")
        .execute(&pool)
        .await?;
    sqlx::query("INSERT INTO train VALUES (10, 0, 0)").execute(&pool).await?;
    let train = handfast.tcc("sell-seats", pool.clone(), SellSeats).await?;

    // The second sale does not get all its seats: the first part of it is cancelled.
    for parts in [[2, 3], [4, 4]] {
        let sale = handfast.transaction("sell").run(async |_tx| {
            for seats in parts {
                train.try_(&seats).await?;
            }
            Ok::<_, handfast::TccError<sqlx::Error>>(())
        });
        println!("sale of {parts:?}: {:?}", sale.await.map_err(|error| error.to_string()));
    }
    // A commit is answered at the decision; the confirms follow.
    loop {
        let seats: (i64, i64, i64) = sqlx::query_as("SELECT * FROM train").fetch_one(&pool).await?;
        println!("free, held, sold: {seats:?}");
        if seats.1 == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    handfast.close().await;
    Ok(())
}
