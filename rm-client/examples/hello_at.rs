//! AT mode: money moves between two databases by ordinary SQL, or not at all.
//!
//! Needs a coordinator: `cargo run -p handfast-cli -- serve`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;

use handfast::{AtResource, Handfast};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("hello-at").await?;
    let folder = tempfile::tempdir()?;
    let alice = open_account(&handfast, &folder.path().join("alice.db")).await?;
    let bob = open_account(&handfast, &folder.path().join("bob.db")).await?;

    for cents in [30, 200] {
        let transfer = handfast.transaction("transfer").run(async |_tx| {
            let give = "UPDATE account SET cents = cents + ?";
            sqlx::query(give).bind(cents).execute(&bob).await?;
            let take = "UPDATE account SET cents = cents - ?1 WHERE cents >= ?1";
            match sqlx::query(take).bind(cents).execute(&alice).await?.rows_affected() {
                1 => Ok(()),
                _ => Err(sqlx::Error::RowNotFound), // Bob has the money already: it is undone.
            }
        });
        let ended = transfer.await.map_err(|error| error.to_string());
        let (alice, bob) = (cents_in(&alice).await?, cents_in(&bob).await?);
        println!("transfer of {cents}: {ended:?}; alice has {alice}, bob has {bob}");
    }
    handfast.close().await;
    Ok(())
}

async fn open_account(handfast: &Handfast, file: &Path) -> anyhow::Result<AtResource<Sqlite>> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    handfast.migrate(&pool).await?;
    let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("INSERT INTO account VALUES (1, 100)").execute(&pool).await?;
    Ok(handfast.at(pool).await?)
}

async fn cents_in(account: &AtResource<Sqlite>) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT cents FROM account").fetch_one(account.pool()).await
}
