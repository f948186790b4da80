//! Many buyers of one product: no unit is sold twice, and none is kept back.
//!
//! Needs a coordinator: `cargo run -p handfast --example hot_stock`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use futures::future::join_all;
use handfast::{AtResource, Counter, Handfast};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("sale").await?;
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("stock.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    let (alone, in_globals) = run(&handfast, &pool).await?;
    println!("sold alone: {alone}, in globals: {in_globals}, of 20 wishes for 8 units each");
    handfast.close().await;
    Ok(())
}

const TAKE: &str = "UPDATE stock SET units = units - 1 WHERE product = ? AND units >= 1";
const NONE_LEFT: &str = "UPDATE stock SET units = 0 WHERE product = ? AND units = 0";
const BUYERS: usize = 20;
/// Beyond this, a buyer is asked to come back.
const ATTEMPTS: usize = 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Bought,
    SoldOut,
}

/// Sells eight units of product 1 without a global, and eight of product 2 in globals, of which
/// every fourth is rolled back after it has taken its unit.
pub(crate) async fn run(handfast: &Handfast, pool: &SqlitePool) -> anyhow::Result<(usize, usize)> {
    handfast.migrate(pool).await?;
    let table = "CREATE TABLE stock (product INTEGER PRIMARY KEY, units INTEGER);
                 INSERT INTO stock VALUES (1, 8), (2, 8)";
    sqlx::raw_sql(table).execute(pool).await?;
    // Buyers take units in any order, also while their globals are undecided.
    let stock = handfast.at(pool.clone()).counter("stock", "units", Counter::at_least(0)).await?;
    let alone = join_all((0..BUYERS).map(|_| buy_alone(pool, 1))).await;
    let pays = |buyer: usize| !buyer.is_multiple_of(4);
    let together = (0..BUYERS).map(|buyer| buy_in_global(handfast, &stock, 2, pays(buyer)));
    let together = join_all(together).await;
    let bought = |wish: &anyhow::Result<Wish>| matches!(wish, Ok(Wish::Bought));
    Ok((alone.into_iter().filter(bought).count(), together.into_iter().filter(bought).count()))
}

/// All the data is here: the condition of the UPDATE is the whole rule, and no lock is needed.
async fn buy_alone(pool: &SqlitePool, product: i64) -> anyhow::Result<Wish> {
    let taken = sqlx::query(TAKE).bind(product).execute(pool).await?.rows_affected();
    Ok(if taken == 1 { Wish::Bought } else { Wish::SoldOut })
}

/// The payment is elsewhere, so the unit may come back.
async fn buy_in_global(
    handfast: &Handfast,
    stock: &AtResource<Sqlite>,
    product: i64,
    pays: bool,
) -> anyhow::Result<Wish> {
    let purchase = handfast.transaction("purchase").run(async |_tx| {
        for _attempt in 0..ATTEMPTS {
            // A statement by itself waits for the row with nothing locked in the database.
            let taken = sqlx::query(TAKE).bind(product).execute(stock).await?.rows_affected();
            if taken == 1 {
                return if pays { Ok(Wish::Bought) } else { Err(sqlx::Error::RowNotFound) };
            }
            // "None" may be the work of a global that is rolled back yet: this waits for its end.
            let none = sqlx::query(NONE_LEFT).bind(product).execute(stock).await?;
            if none.rows_affected() == 1 {
                return Ok(Wish::SoldOut);
            }
        }
        Err(sqlx::Error::PoolTimedOut)
    });
    Ok(purchase.await?)
}
