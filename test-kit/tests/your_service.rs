//! A service and its tests. The service would be your `src/lib.rs`, the tests your `tests/shop.rs`.

use std::time::Duration;

use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
use handfast::{AtResource, Handfast, TransactionError};
use handfast_test::{Death, Fault, KitError, SagaEnd, SagaRunError, SagaRunner, TestKit};
use sqlx::{Sqlite, SqlitePool, Transaction};

/// The service: an order goes into one database and takes its units from another.
struct Shop {
    handfast: Handfast,
    orders: AtResource<Sqlite>,
    stock: AtResource<Sqlite>,
}

impl Shop {
    async fn place_order(&self, id: i64, units: i64) -> Result<(), TransactionError<sqlx::Error>> {
        let order = self.handfast.transaction("place-order").run(async |_tx| {
            let insert = "INSERT INTO orders (id, units) VALUES (?, ?)";
            sqlx::query(insert).bind(id).bind(units).execute(&self.orders).await?;
            let take = "UPDATE stock SET units = units - ?1 WHERE product = 7 AND units >= ?1";
            let taken = sqlx::query(take).bind(units).execute(&self.stock).await?;
            if taken.rows_affected() == 0 {
                return Err(sqlx::Error::RowNotFound);
            }
            Ok(())
        });
        order.await
    }
}

const ORDERS: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, units INTEGER)";
const STOCK: &str = "CREATE TABLE stock (product INTEGER PRIMARY KEY, units INTEGER);
                     INSERT INTO stock VALUES (7, 10)";

/// Opens the service on databases of this test alone.
async fn open(kit: &TestKit) -> Result<Shop, Box<dyn std::error::Error>> {
    let handfast = kit.handfast().clone();
    let orders = handfast.at(kit.sqlite(ORDERS).await?).await?;
    let stock = handfast.at(kit.sqlite(STOCK).await?).await?;
    Ok(Shop { handfast, orders, stock })
}

async fn units_left(shop: &Shop) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT units FROM stock WHERE product = 7")
        .fetch_one(shop.stock.pool())
        .await
}

#[tokio::test]
async fn an_order_takes_its_units() -> Result<(), Box<dyn std::error::Error>> {
    let kit = TestKit::start().await?;
    let shop = open(&kit).await?;
    shop.place_order(1, 3).await?;
    kit.assert_committed(&kit.last_xid().ok_or("nothing was begun")?).await;
    kit.assert_nothing_left(shop.orders.pool()).await;
    kit.assert_nothing_left(shop.stock.pool()).await;
    assert_eq!(units_left(&shop).await?, 7);
    Ok(())
}

#[tokio::test]
async fn an_order_without_units_leaves_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let kit = TestKit::start().await?;
    let shop = open(&kit).await?;
    // The order is committed in its own database before the units are refused.
    kit.inject(Fault::refused_registration(2));
    assert!(shop.place_order(1, 3).await.is_err());
    kit.assert_faults_struck();
    kit.assert_rolled_back(&kit.last_xid().ok_or("nothing was begun")?).await;
    kit.assert_nothing_left(shop.orders.pool()).await;
    assert_eq!(units_left(&shop).await?, 10);
    Ok(())
}

#[tokio::test]
async fn an_order_survives_the_coordinator() -> Result<(), Box<dyn std::error::Error>> {
    let kit = TestKit::start().await?;
    let shop = open(&kit).await?;
    kit.inject(Fault::coordinator_dies(Death::AfterDecision));
    shop.place_order(1, 3).await?;
    kit.assert_faults_struck();
    kit.assert_committed(&kit.last_xid().ok_or("nothing was begun")?).await;
    assert_eq!(units_left(&shop).await?, 7);
    Ok(())
}

#[tokio::test]
async fn an_order_that_hangs_is_undone() -> Result<(), Box<dyn std::error::Error>> {
    let kit = TestKit::start().await?;
    let shop = open(&kit).await?;
    let order = shop.handfast.transaction("hangs").timeout(Duration::from_secs(30));
    let tx = order.begin().await?;
    let insert = sqlx::query("INSERT INTO orders VALUES (1, 3)");
    tx.xid().scope(async { insert.execute(&shop.orders).await }).await?;
    kit.advance(Duration::from_secs(31)).await;
    kit.assert_rolled_back(tx.xid()).await;
    kit.assert_nothing_left(shop.orders.pool()).await;
    Ok(())
}

/// A step of a saga: units are reserved, and put back.
struct Reserve;

impl SagaAction<Sqlite> for Reserve {
    type Input = i64;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        units: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let take = "UPDATE stock SET units = units - ?1 WHERE product = 7 AND units >= ?1";
        let taken = sqlx::query(take).bind(units).execute(&mut **local).await?;
        if taken.rows_affected() == 0 {
            return Err(StepError::refuse("out of stock"));
        }
        Ok(())
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        units: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let put_back = "UPDATE stock SET units = units + ? WHERE product = 7";
        sqlx::query(put_back).bind(units).execute(&mut **local).await?;
        Ok(())
    }
}

/// The saga under test.
fn two_reservations() -> Saga {
    Saga::new("two-reservations")
        .step(SagaStep::compensable("first", "stock", "reserve").input(&3))
        .step(SagaStep::compensable("second", "stock", "reserve").input(&2))
}

#[tokio::test]
async fn the_saga_stands_everything() -> Result<(), SagaRunError> {
    let setup = async |kit: &TestKit| {
        let stock = kit.sqlite(STOCK).await?;
        let participant = kit.handfast().saga_participant("stock", stock.clone());
        participant.action("reserve", Reserve).register();
        Ok::<_, KitError>(stock)
    };
    let check = async |stock: &SqlitePool, end| {
        let units: i64 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(stock).await?;
        assert_eq!(units, if end == SagaEnd::Completed { 5 } else { 10 });
        Ok::<_, sqlx::Error>(())
    };
    let runs = SagaRunner::new(two_reservations).run(setup, check).await?;
    assert!(runs.plays() > 20, "{}", runs.plays());
    Ok(())
}
