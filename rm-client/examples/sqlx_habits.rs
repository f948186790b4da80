//! Habits of sqlx within global transactions: built queries, streams, functions that take a local
//! transaction, savepoints.
//!
//! Needs a coordinator: `cargo run -p handfast-cli -- serve`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use futures::TryStreamExt;
use handfast::{AtResource, AtTransaction, Handfast};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{QueryBuilder, Sqlite};

/// A product and a number of units.
type Units = (i64, i64);

/// Several rows by one statement: `QueryBuilder` makes its text and keeps its arguments.
async fn fill(stock: &AtResource<Sqlite>, products: &[Units]) -> Result<u64, sqlx::Error> {
    let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO stock (id, units) ");
    insert.push_values(products, |mut row, (id, units)| {
        row.push_bind(id).push_bind(units);
    });
    Ok(insert.build().execute(stock).await?.rows_affected())
}

/// Rows one by one: a plain read streams, within a global as outside of it.
async fn units(stock: &AtResource<Sqlite>) -> Result<i64, sqlx::Error> {
    let mut rows = sqlx::query_as::<_, Units>("SELECT id, units FROM stock").fetch(stock);
    let mut sum = 0;
    while let Some((_id, units)) = rows.try_next().await? {
        sum += units;
    }
    Ok(sum)
}

/// A function that works in the caller's local transaction.
async fn take(
    local: &mut AtTransaction<'_, Sqlite>,
    (id, units): Units,
) -> Result<bool, sqlx::Error> {
    let take = "UPDATE stock SET units = units - ?1 WHERE id = ?2 AND units >= ?1";
    let taken = sqlx::query(take).bind(units).bind(id).execute(local).await?;
    Ok(taken.rows_affected() == 1)
}

/// In place of a nested `begin()`: a savepoint, to which the rest of the work can go back.
async fn take_all_or_none(
    stock: &AtResource<Sqlite>,
    basket: &[Units],
) -> Result<i64, sqlx::Error> {
    let mut local = stock.begin().await?;
    let mut taken = 0;
    sqlx::query("SAVEPOINT basket").execute(&mut local).await?;
    for line in basket {
        if !take(&mut local, *line).await? {
            sqlx::query("ROLLBACK TO SAVEPOINT basket").execute(&mut local).await?;
            taken = 0;
            break;
        }
        taken += line.1;
    }
    sqlx::query("RELEASE SAVEPOINT basket").execute(&mut local).await?;
    // The attempt stays, whatever became of the basket.
    sqlx::query("INSERT INTO attempt (taken) VALUES (?)").bind(taken).execute(&mut local).await?;
    local.commit().await?;
    Ok(taken)
}

/// The form that waits for rows of other globals with nothing held, with such a function in it.
async fn take_one(stock: &AtResource<Sqlite>, id: i64) -> Result<i64, sqlx::Error> {
    stock
        .transaction(async |mut local| {
            let taken = i64::from(take(&mut local, (id, 1)).await?);
            let note = "INSERT INTO attempt (taken) VALUES (?)";
            sqlx::query(note).bind(taken).execute(&mut *local).await?;
            Ok(taken)
        })
        .await
}

/// Does all of it, with two products of 5 and 1 units, and returns the units that are left.
pub(crate) async fn run(handfast: &Handfast, stock: &AtResource<Sqlite>) -> anyhow::Result<i64> {
    let shopping = handfast.transaction("shopping").run(async |_tx| {
        fill(stock, &[(1, 5), (2, 1)]).await?;
        let mut taken = take_all_or_none(stock, &[(1, 2), (2, 2)]).await?; // too few of the second
        taken += take_all_or_none(stock, &[(1, 2)]).await?;
        taken += take_one(stock, 2).await?;
        Ok::<_, sqlx::Error>(taken)
    });
    println!("taken: {}", shopping.await?);
    let undone = handfast.transaction("undone").run(async |_tx| {
        take_all_or_none(stock, &[(1, 3)]).await?;
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    if let Err(error) = undone.await {
        println!("{error}");
    }
    Ok(units(stock).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::from_env()?.application("sqlx-habits").await?;
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new().filename(folder.path().join("stock.db"));
    let pool = SqlitePool::connect_with(options.create_if_missing(true)).await?;
    handfast.migrate(&pool).await?;
    let tables = "CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER NOT NULL);
                  CREATE TABLE attempt (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL)";
    sqlx::raw_sql(tables).execute(&pool).await?;
    let stock = handfast.at(pool).await?;
    println!("left: {}", run(&handfast, &stock).await?);
    handfast.close().await;
    Ok(())
}
