//! A service: an order goes into one database and takes its units from another.

use handfast::{AtResource, Handfast, TransactionError};
use handfast_test::{KitError, TestKit};
use sqlx::{Sqlite, SqlitePool};

pub(crate) const ORDERS: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, units INTEGER)";
pub(crate) const STOCK: &str = "CREATE TABLE stock (product INTEGER PRIMARY KEY, units INTEGER);
                                INSERT INTO stock VALUES (7, 10)";

pub(crate) struct Shop {
    pub(crate) handfast: Handfast,
    pub(crate) orders: AtResource<Sqlite>,
    pub(crate) stock: AtResource<Sqlite>,
}

impl Shop {
    pub(crate) async fn open(kit: &TestKit) -> Result<Self, KitError> {
        Self::open_with(kit, kit.handfast().clone()).await
    }

    pub(crate) async fn open_with(kit: &TestKit, handfast: Handfast) -> Result<Self, KitError> {
        let (orders, stock) = (kit.sqlite(ORDERS).await?, kit.sqlite(STOCK).await?);
        let open = async |pool: SqlitePool| {
            handfast.at(pool).await.map_err(|error| KitError::Database(error.into()))
        };
        Ok(Self { orders: open(orders).await?, stock: open(stock).await?, handfast })
    }

    pub(crate) async fn place(
        &self,
        id: i64,
        units: i64,
    ) -> Result<(), TransactionError<sqlx::Error>> {
        let order = self.handfast.transaction("place-order").run(async |_tx| {
            self.insert(id, units).await?;
            self.take(units).await
        });
        order.await
    }

    pub(crate) async fn insert(&self, id: i64, units: i64) -> Result<(), sqlx::Error> {
        let insert = sqlx::query("INSERT INTO orders VALUES (?, ?)").bind(id).bind(units);
        insert.execute(&self.orders).await.map(drop)
    }

    pub(crate) async fn take(&self, units: i64) -> Result<(), sqlx::Error> {
        let take = "UPDATE stock SET units = units - ?1 WHERE product = 7 AND units >= ?1";
        match sqlx::query(take).bind(units).execute(&self.stock).await?.rows_affected() {
            1 => Ok(()),
            _ => Err(sqlx::Error::RowNotFound),
        }
    }

    /// The orders and the units that are left.
    pub(crate) async fn books(&self) -> (i64, i64) {
        let orders = sqlx::query_scalar("SELECT count(*) FROM orders");
        let units = sqlx::query_scalar("SELECT units FROM stock WHERE product = 7");
        let orders = orders.fetch_one(self.orders.pool()).await;
        let units = units.fetch_one(self.stock.pool()).await;
        (orders.expect("the database answers"), units.expect("the database answers"))
    }

    pub(crate) async fn assert_nothing_left(&self, kit: &TestKit) {
        kit.assert_nothing_left(self.orders.pool()).await;
        kit.assert_nothing_left(self.stock.pool()).await;
    }
}
