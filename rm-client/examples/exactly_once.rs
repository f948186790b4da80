//! An event takes effect once, however often it arrives: the consumer's inbox knows it.
//!
//! Needs no coordinator: `cargo run -p handfast --example exactly_once`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use handfast::outbox::{self, Consumer, Event, InProcess, OutboxError, Relay};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("shop.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    let (deliveries, payments) = run(&pool).await?;
    println!("{deliveries} deliveries, payments {payments:?}");
    Ok(())
}

/// Places three orders. Two consumers of one group get every event: each is delivered twice.
pub(crate) async fn run(pool: &SqlitePool) -> anyhow::Result<(i64, Vec<(String, i64)>)> {
    outbox::migrate(pool).await?;
    sqlx::query("CREATE TABLE payment (order_id TEXT, cents INTEGER)").execute(pool).await?;
    let broker = InProcess::new();
    for _process in 0..2 {
        let events = broker.subscribe("orders");
        let consumer = Consumer::new(pool.clone(), "payments"); // the group: its inbox is one
        tokio::spawn(async move {
            consumer.run(events, |local, event| charge(local, event).boxed(), pending()).await
        });
    }
    tokio::spawn(Relay::new(pool.clone(), broker).run(pending()));

    for (order, cents) in [("1", 500), ("2", 700), ("3", 900)] {
        let mut local = pool.begin().await?; // with the INSERT of the order
        let event = Event::new("orders", order).json(&cents)?;
        outbox::emit(&mut local, &event).await?;
        local.commit().await?;
    }

    let deliveries = "SELECT coalesce(sum(deliveries), 0) FROM event_inbox";
    loop {
        let count: i64 = sqlx::query_scalar(deliveries).fetch_one(pool).await?;
        if count >= 6 {
            let payments = "SELECT order_id, cents FROM payment ORDER BY order_id, cents";
            return Ok((count, sqlx::query_as(payments).fetch_all(pool).await?));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The effect: everything in this local transaction, which the inbox's row is part of.
async fn charge(local: &mut Transaction<'_, Sqlite>, event: &Event) -> Result<(), OutboxError> {
    let pay = "INSERT INTO payment (order_id, cents) VALUES (?, CAST(CAST(? AS TEXT) AS INTEGER))";
    let pay = sqlx::query(pay).bind(event.key()).bind(event.payload_bytes());
    pay.execute(&mut **local).await?;
    Ok(())
}
