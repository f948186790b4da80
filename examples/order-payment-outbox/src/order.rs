//! The order service: places each order in a global transaction, and confirms or cancels it when an
//! event reports its result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{AtResource, Handfast};
use sqlx::Transaction;
use tokio::time::{Instant, sleep};

use handfast_example_shop::database::{Pool, Sql};
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::order::{self, INSERT_LINE, INSERT_ORDER, OrderEnd};
use handfast_example_shop::services::{BusinessRefusal, Service, ServiceFailure};
use handfast_example_shop::{Order, Site, with_pool};

use crate::fact::{Fact, FactKind, Topic};
use crate::journal;

/// The time to wait for the end of an order. It is certain to come, so this is for a broker or a
/// database that stays away.
const WAIT_FOR: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);

const ADD_STATE: &str =
    "ALTER TABLE customer_order ADD COLUMN state VARCHAR(16) NOT NULL DEFAULT 'placed'";

/// Only an order that is still open: an order has one end.
const END: Sql = Sql {
    numbered: "UPDATE customer_order SET state = $1 WHERE order_id = $2 AND state = 'placed'",
    plain: "UPDATE customer_order SET state = ? WHERE order_id = ? AND state = 'placed'",
};

const STATE: Sql = Sql {
    numbered: "SELECT state FROM customer_order WHERE order_id = $1",
    plain: "SELECT state FROM customer_order WHERE order_id = ?",
};

struct OrderService<DB: Dialect> {
    handfast: Handfast,
    resource: AtResource<DB>,
    /// The same database, to read the state of orders.
    pool: Pool,
}

/// Makes the service's tables and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("order-service").await?;
    let pool = &site.databases.order;
    pool.make_tables(&handfast, order::TABLES).await?;
    pool.make_tables(&handfast, &[ADD_STATE, journal::TABLE]).await?;
    with_pool!(pool, |inner, _text| serve(handfast, inner, pool.clone()).await)
}

async fn serve<DB: Dialect>(
    handfast: Handfast,
    inner: &sqlx::Pool<DB>,
    pool: Pool,
) -> Result<Service> {
    let resource = handfast.at(inner.clone()).await?;
    let state = Arc::new(OrderService { handfast: handfast.clone(), resource, pool });
    let router = Router::new().route("/orders", post(place::<DB>)).with_state(state);
    Service::start(router, handfast).await
}

async fn place<DB: Dialect>(
    State(service): State<Arc<OrderService<DB>>>,
    Json(order): Json<Order>,
) -> Json<OrderEnd> {
    match order::in_global(&service.handfast, service.write(&order)).await {
        OrderEnd::Committed => Json(service.end_of(order.order_id).await),
        other @ (OrderEnd::Refused { .. }
        | OrderEnd::RolledBack { .. }
        | OrderEnd::Unclear { .. }) => Json(other),
    }
}

impl<DB: Dialect> OrderService<DB> {
    /// Writes the order and the event that tells of it, which leaves when the global has committed.
    async fn write(&self, order: &Order) -> Result<(), ServiceFailure> {
        let placed = Fact { what: FactKind::Placed, order: order.clone() }.event(Topic::Orders)?;
        let (id, customer) = (order.order_id, order.customer_id.as_str());
        let (date, total) = (order.order_date.as_str(), order.total_cents());
        let head = [id.into(), customer.into(), date.into(), total.into()];
        let work = self.resource.transaction(async |mut local| {
            DB::execute_in_branch(&mut *local, INSERT_ORDER, &head).await?;
            for line in &order.lines {
                let line = [id, line.product_id, line.quantity, line.unit_price_cents];
                DB::execute_in_branch(&mut *local, INSERT_LINE, &line.map(Into::into)).await?;
            }
            local.emit(&placed).await?;
            Ok(())
        });
        Ok(work.await?)
    }

    /// Waits, within limits, until the other services have answered.
    async fn end_of(&self, order_id: i64) -> OrderEnd {
        let until = Instant::now() + WAIT_FOR;
        let mut last = String::new();
        while Instant::now() < until {
            last = match self.state(order_id).await {
                Ok(state) => state,
                Err(error) => error.to_string(),
            };
            match last.as_str() {
                "confirmed" => return OrderEnd::Committed,
                "out_of_stock" => {
                    return OrderEnd::Refused { refusal: BusinessRefusal::OutOfStock };
                }
                "no_funds" => return OrderEnd::Refused { refusal: BusinessRefusal::NoFunds },
                _ => sleep(LOOK_EVERY).await,
            }
        }
        OrderEnd::Unclear { reason: format!("order {order_id} after {WAIT_FOR:?}: {last}") }
    }

    async fn state(&self, order_id: i64) -> Result<String, sqlx::Error> {
        with_pool!(&self.pool, |pool, text| {
            sqlx::query_scalar(text(STATE)).bind(order_id).fetch_one(pool).await
        })
    }
}

/// Confirms or cancels an order. Events that are not final for it are for other services.
pub(crate) fn on_answer<'l, DB: Dialect>(
    local: &'l mut Transaction<'_, DB>,
    fact: Fact,
) -> BoxFuture<'l, Result<(), ServiceFailure>> {
    async move {
        let state = match fact.what {
            FactKind::Paid => "confirmed",
            FactKind::OutOfStock => "out_of_stock",
            // For a customer without funds, the last event is that the stock is restored.
            FactKind::PutBack => "no_funds",
            FactKind::Placed | FactKind::Taken | FactKind::NoFunds => return Ok(()),
        };
        let order_id = fact.order.order_id;
        match DB::execute(local, END, &[state.into(), order_id.into()]).await? {
            0 => Err(ServiceFailure::Unavailable(format!("order {order_id} is not open"))),
            _ => Ok(()),
        }
    }
    .boxed()
}
