//! A service with orders in MariaDB and stock in PostgreSQL, and the accidents that it meets.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use handfast::{AtResource, Global, Handfast, TransactionError};
use handfast_locks::{Guard, Locks};
use serde_json::{Value, json};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, MySql, Postgres};
use tokio::task::JoinHandle;

use crate::approval;
use crate::browser::DONE;
use crate::events::Shipments;

const STOCK: &str = "CREATE TABLE stock (product BIGINT PRIMARY KEY, name TEXT NOT NULL, \
    units BIGINT NOT NULL)";
const FILL: &str = "INSERT INTO stock VALUES (1, 'lamp', 100000), (2, 'chair', 100000), \
    (3, 'table', 10), (4, 'shelf', 10), (5, 'stool', 100000), (6, 'desk', 40)";
const ORDERS: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, product BIGINT NOT NULL, \
    units BIGINT NOT NULL)";
const TAKE: &str = "UPDATE stock SET units = units - $1 WHERE product = $2";
const PLACE: &str = "INSERT INTO orders (id, product, units) VALUES (?, ?, ?)";
/// A name as a hostile client may choose it.
const HOSTILE: &str = "<img src=x onerror=\"document.title='markup'\">";
/// How long a transaction that is held open may take.
const HELD: Duration = Duration::from_secs(300);

/// The service.
pub(crate) struct Shop {
    coordinator: String,
    token: String,
    handfast: Handfast,
    hostile: Handfast,
    stock: AtResource<Postgres>,
    orders: AtResource<MySql>,
    /// Beside the library, as a program that knows nothing of transactions.
    outside: PgPool,
    databases: Databases,
    order_last: i64,
    held: Vec<Global>,
    waiting: Vec<JoinHandle<Result<()>>>,
    lock: Option<(Locks, Guard)>,
    shipments: Shipments,
}

/// The databases of a run, in servers that others may use.
struct Databases {
    name: String,
    postgres: PgPool,
    mysql: MySqlPool,
}

impl Shop {
    /// Makes the databases, and connects the service.
    pub(crate) async fn open(
        coordinator: &str,
        token: &str,
        postgres: &str,
        mysql: &str,
    ) -> Result<Self> {
        let name = format!("shop_{}", std::process::id());
        let (postgres, mysql): (PgConnectOptions, MySqlConnectOptions) =
            (postgres.parse()?, mysql.parse()?);
        let databases = Databases {
            postgres: PgPool::connect_with(postgres.clone()).await?,
            mysql: MySqlPool::connect_with(mysql.clone()).await?,
            name,
        };
        databases.create().await?;
        let stock = PgPool::connect_with(postgres.database(&databases.name)).await?;
        let orders = MySqlPool::connect_with(mysql.database(&databases.name)).await?;
        sqlx::query(STOCK).execute(&stock).await?;
        sqlx::query(FILL).execute(&stock).await?;
        sqlx::query(approval::DONE_STEPS).execute(&stock).await?;
        sqlx::query(ORDERS).execute(&orders).await?;
        let connect =
            |application| Handfast::connect(coordinator).application(application).token(token);
        let (handfast, hostile) = (connect("shop").await?, connect(HOSTILE).await?);
        handfast.migrate(&stock).await?;
        handfast.migrate(&orders).await?;
        approval::take_part(&handfast, &stock);
        let shipments = Shipments::open(&handfast, stock.clone());
        Ok(Self {
            coordinator: coordinator.to_owned(),
            token: token.to_owned(),
            stock: handfast.at(stock.clone()).await?,
            orders: handfast.at(orders).await?,
            handfast,
            hostile,
            outside: stock,
            databases,
            order_last: 0,
            held: Vec::new(),
            waiting: Vec::new(),
            lock: None,
            shipments,
        })
    }

    /// Does what the script asks for.
    pub(crate) async fn act(&mut self, deed: &str) -> Result<Value> {
        match deed.split(' ').collect::<Vec<_>>()[..] {
            ["orders", count] => self.place_orders(count.parse()?).await,
            ["begin", count] => self.begin_many(count.parse()?).await,
            ["dirty", product] => self.meet_dirty_write(product.parse()?).await,
            ["units", product] => self.units(product.parse()?).await,
            ["hold", product] => self.hold(product.parse()?).await,
            ["wait", product] => self.wait(product.parse()?).await,
            ["deadlock"] => self.deadlock().await,
            ["release"] => self.release().await,
            ["leave"] => self.leave().await,
            ["return"] => self.come_back().await,
            ["hostile"] => self.begin_hostile().await,
            ["saga", key] => approval::start(&self.handfast, key, "").await,
            ["refused-saga", key] => approval::start(&self.handfast, key, "no lorry").await,
            ["done", key] => approval::done_steps(&self.outside, key).await,
            ["park", key] => self.shipments.park(key).await,
            ["accept", key] => Ok(self.shipments.accept(key)),
            ["published", key] => Ok(self.shipments.published(key)),
            ["lock", name] => self.take_lock(name).await,
            ["close"] => self.close().await,
            _ => bail!("no deed is called `{deed}`"),
        }
    }

    /// Places orders, of which every tenth is given up.
    async fn place_orders(&mut self, count: i64) -> Result<Value> {
        for at in 1..=count {
            let global = self.begin_order().await?;
            self.order(&global, 1 + at % 2).await?;
            if at % 10 == 0 {
                global.rollback("the customer has changed their mind").await?;
            } else {
                global.commit().await?;
            }
        }
        Ok(DONE)
    }

    async fn begin(&self, name: &str) -> Result<Global> {
        Ok(self.handfast.transaction(name).timeout(HELD).begin().await?)
    }

    /// Begins to place the next order, and labels the transaction with its number.
    async fn begin_order(&mut self) -> Result<Global> {
        self.order_last += 1;
        let order = self.order_last.to_string();
        let transaction = self.handfast.transaction("place-order").label("order", order);
        Ok(transaction.timeout(HELD).begin().await?)
    }

    /// Begins transactions that stay without a branch until their time is over.
    async fn begin_many(&mut self, count: usize) -> Result<Value> {
        for _ in 0..count {
            self.held.push(self.begin("long-list").await?);
        }
        Ok(DONE)
    }

    async fn order(&self, global: &Global, product: i64) -> Result<()> {
        let place = sqlx::query(PLACE).bind(self.order_last).bind(product).bind(3_i64);
        global.scope(place.execute(&self.orders)).await?;
        global.scope(sqlx::query(TAKE).bind(3_i64).bind(product).execute(&self.stock)).await?;
        Ok(())
    }

    /// Orders a product, has its row written by another program, and gives the order up.
    async fn meet_dirty_write(&mut self, product: i64) -> Result<Value> {
        let global = self.begin_order().await?;
        self.order(&global, product).await?;
        sqlx::query(TAKE).bind(4_i64).bind(product).execute(&self.outside).await?;
        let xid = global.xid().to_string();
        self.waiting.push(tokio::spawn(async move {
            match global.rollback("the payment was refused").await {
                Err(TransactionError::NeedsOperator { .. }) => Ok(()),
                end => bail!("the dirty row needs no operator: {end:?}"),
            }
        }));
        Ok(json!(xid))
    }

    async fn units(&self, product: i64) -> Result<Value> {
        let units = sqlx::query_scalar::<_, i64>("SELECT units FROM stock WHERE product = $1");
        Ok(json!(units.bind(product).fetch_one(&self.outside).await?))
    }

    /// Takes a row and keeps it.
    async fn hold(&mut self, product: i64) -> Result<Value> {
        let global = self.begin("count-stock").await?;
        global.scope(sqlx::query(TAKE).bind(1_i64).bind(product).execute(&self.stock)).await?;
        let xid = global.xid().to_string();
        self.held.push(global);
        Ok(json!(xid))
    }

    /// Wants a row that is kept.
    async fn wait(&mut self, product: i64) -> Result<Value> {
        let global = self.begin_order().await?;
        let (xid, stock) = (global.xid().to_string(), self.stock.clone());
        self.waiting.push(tokio::spawn(async move {
            let take = sqlx::query(TAKE).bind(1_i64).bind(product);
            global.scope(async move { take.execute(&stock).await }).await?;
            global.commit().await?;
            Ok(())
        }));
        Ok(json!(xid))
    }

    /// Two transactions take two rows in opposite order: one of them is refused.
    async fn deadlock(&mut self) -> Result<Value> {
        let (one, other) = (self.begin("move-left").await?, self.begin("move-right").await?);
        self.take(&one, 4).await?;
        self.take(&other, 5).await?;
        let ends = tokio::join!(self.take_and_end(one, 5), self.take_and_end(other, 4));
        let refused = [ends.0?, ends.1?].into_iter().flatten().next();
        Ok(json!(refused.context("one of two in opposite order is refused")?))
    }

    async fn take(&self, global: &Global, product: i64) -> sqlx::Result<()> {
        let take = sqlx::query(TAKE).bind(1_i64).bind(product).execute(&self.stock);
        global.scope(take).await.map(drop)
    }

    /// Takes a row and commits, or rolls back and returns why the row is refused.
    async fn take_and_end(&self, global: Global, product: i64) -> Result<Option<String>> {
        let Err(refused) = self.take(&global, product).await else {
            global.commit().await?;
            return Ok(None);
        };
        global.rollback("refused").await?;
        Ok(Some(refused.to_string()))
    }

    /// Lets everything go that is kept, and waits for those that waited.
    async fn release(&mut self) -> Result<Value> {
        for global in self.held.drain(..) {
            match global.commit().await {
                // The console may have ended it, or a crash that came before its first branch.
                Ok(())
                | Err(TransactionError::RolledBack { .. } | TransactionError::Forgotten { .. }) => {
                }
                Err(error) => return Err(error.into()),
            }
        }
        for waiting in self.waiting.drain(..) {
            waiting.await??;
        }
        self.lock = None;
        Ok(DONE)
    }

    /// Ends the processes of the service, whatever they have under way.
    async fn leave(&mut self) -> Result<Value> {
        self.held.clear();
        self.shipments.close().await?;
        self.handfast.close().await;
        Ok(DONE)
    }

    /// Starts the service again.
    async fn come_back(&mut self) -> Result<Value> {
        let connect = Handfast::connect(&self.coordinator).application("shop").token(&self.token);
        self.handfast = connect.await?;
        approval::take_part(&self.handfast, &self.outside);
        self.shipments = Shipments::open(&self.handfast, self.outside.clone());
        self.stock = self.handfast.at(self.outside.clone()).await?;
        self.orders = self.handfast.at(self.orders.pool().clone()).await?;
        Ok(DONE)
    }

    async fn begin_hostile(&mut self) -> Result<Value> {
        let global = self.hostile.transaction(HOSTILE).timeout(HELD).begin().await?;
        let xid = global.xid().to_string();
        self.held.push(global);
        Ok(json!({ "xid": xid, "name": HOSTILE }))
    }

    async fn take_lock(&mut self, name: &str) -> Result<Value> {
        let locks = Locks::over(self.handfast.locks()).label("reports").start()?;
        let guard = locks.try_lock(name).await.map_err(|error| anyhow!("{error}"))?;
        self.lock = Some((locks, guard));
        Ok(DONE)
    }

    /// Ends the service and removes its databases.
    async fn close(&mut self) -> Result<Value> {
        self.waiting.drain(..).for_each(|waiting| waiting.abort());
        self.held.clear();
        self.lock = None;
        self.shipments.close().await?;
        self.handfast.close().await;
        self.hostile.close().await;
        self.databases.drop().await?;
        Ok(DONE)
    }
}

impl Databases {
    async fn create(&self) -> Result<()> {
        let create = format!("CREATE DATABASE {}", self.name);
        sqlx::query(AssertSqlSafe(create.clone())).execute(&self.postgres).await?;
        sqlx::query(AssertSqlSafe(create)).execute(&self.mysql).await?;
        Ok(())
    }

    async fn drop(&self) -> Result<()> {
        let forced = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        sqlx::query(AssertSqlSafe(forced)).execute(&self.postgres).await?;
        let drop = format!("DROP DATABASE {}", self.name);
        sqlx::query(AssertSqlSafe(drop)).execute(&self.mysql).await?;
        Ok(())
    }
}
