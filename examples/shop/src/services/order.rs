//! The order service: begins the global transaction of each order and tells how it ended.

use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use handfast::propagation::XidMiddleware;
use handfast::{GlobalStatus, Handfast, TransactionError, Xid};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::database::{Pool, Resource, Sql, SqlMode, with_resource};
use crate::example::Site;
use crate::input::Order;

use super::account::Debit;
use super::{BusinessRefusal, Service, ServiceFailure};

/// The timeout of an order's global: longer than the slowest database needs under load, and the
/// longest time for which rows stay locked after a crash of the coordinator.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The time during which the end of a global is polled. It is certain to come within the timeout,
/// so this is for a coordinator that stays away.
const ASK_FOR: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The service's tables.
pub const TABLES: &[&str] = &[
    "CREATE TABLE customer_order (\
     order_id BIGINT NOT NULL PRIMARY KEY, \
     customer_id VARCHAR(16) NOT NULL, \
     order_date VARCHAR(10) NOT NULL, \
     total_cents BIGINT NOT NULL)",
    "CREATE TABLE order_line (\
     order_id BIGINT NOT NULL, \
     product_id BIGINT NOT NULL, \
     quantity BIGINT NOT NULL, \
     unit_price_cents BIGINT NOT NULL, \
     PRIMARY KEY (order_id, product_id))",
];

/// Writes an order: id, customer, date, total.
pub const INSERT_ORDER: Sql = Sql {
    numbered: "INSERT INTO customer_order (order_id, customer_id, order_date, total_cents) \
               VALUES ($1, $2, $3, $4)",
    plain: "INSERT INTO customer_order (order_id, customer_id, order_date, total_cents) \
            VALUES (?, ?, ?, ?)",
};

/// Writes a line: order, product, quantity, price of one unit.
pub const INSERT_LINE: Sql = Sql {
    numbered: "INSERT INTO order_line (order_id, product_id, quantity, unit_price_cents) \
               VALUES ($1, $2, $3, $4)",
    plain: "INSERT INTO order_line (order_id, product_id, quantity, unit_price_cents) \
            VALUES (?, ?, ?, ?)",
};

/// The end of an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum OrderEnd {
    /// Everything of it happened.
    Committed,
    /// Nothing of it happened, and nothing will.
    Refused {
        /// Why not.
        refusal: BusinessRefusal,
    },
    /// Nothing of it happened, for a reason that may be gone the next time.
    RolledBack {
        /// The reason.
        reason: String,
    },
    /// A person must look.
    Unclear {
        /// The reason, as far as it is known.
        reason: String,
    },
}

/// The addresses of the services that an order needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Neighbours {
    /// URL of the stock service, which takes lines at `/deductions`.
    pub stock: String,
    /// URL of the account service, which takes a [`Debit`] at `/debits`.
    pub account: String,
}

#[derive(Debug, Clone)]
struct OrderService {
    handfast: Handfast,
    resource: Resource,
    neighbours: Neighbours,
    http: ClientWithMiddleware,
}

/// Makes the service's tables and starts it. It writes orders in the given mode.
///
/// # Errors
/// Whatever keeps it from starting.
pub async fn start(site: &Site<'_>, mode: SqlMode, neighbours: Neighbours) -> Result<Service> {
    let handfast = site.connect("order-service").await?;
    let pool = &site.databases.order;
    pool.make_tables(&handfast, TABLES).await?;
    serve(pool, handfast, mode, &site.node("order"), neighbours).await
}

/// Starts the service on tables that are there.
pub(super) async fn serve(
    pool: &Pool,
    handfast: Handfast,
    mode: SqlMode,
    node: &str,
    neighbours: Neighbours,
) -> Result<Service> {
    let service = OrderService {
        resource: pool.join(&handfast, mode, node).await?,
        handfast: handfast.clone(),
        neighbours,
        // Requests made within a global transaction carry its XID.
        http: ClientBuilder::new(reqwest::Client::new()).with(XidMiddleware::new()).build(),
    };
    let router = Router::new().route("/orders", post(place)).with_state(service);
    Service::start(router, handfast).await
}

async fn place(State(service): State<OrderService>, Json(order): Json<Order>) -> Json<OrderEnd> {
    Json(in_global(&service.handfast, service.carry_out(&order)).await)
}

/// Does the work of an order in a global transaction and returns how it ended.
pub async fn in_global(
    handfast: &Handfast,
    work: impl Future<Output = Result<(), ServiceFailure>> + Send,
) -> OrderEnd {
    let transaction = handfast.transaction("place-order").timeout(TIMEOUT);
    match Box::pin(transaction.run(async |_transaction| work.await)).await {
        Ok(()) => OrderEnd::Committed,
        Err(error) => ended(handfast, error).await,
    }
}

impl OrderService {
    /// Does all parts of an order. If one fails, everything is rolled back.
    async fn carry_out(&self, order: &Order) -> Result<(), ServiceFailure> {
        self.write(order).await?;
        self.post(&self.neighbours.stock, "deductions", &order.lines).await?;
        let debit =
            Debit { customer_id: order.customer_id.clone(), amount_cents: order.total_cents() };
        self.post(&self.neighbours.account, "debits", &debit).await
    }

    async fn write(&self, order: &Order) -> Result<(), ServiceFailure> {
        with_resource!(&self.resource, |resource, text| {
            let work = resource.transaction(async |mut local| {
                sqlx::query(text(INSERT_ORDER))
                    .bind(order.order_id)
                    .bind(&order.customer_id)
                    .bind(&order.order_date)
                    .bind(order.total_cents())
                    .execute(&mut *local)
                    .await?;
                for line in &order.lines {
                    sqlx::query(text(INSERT_LINE))
                        .bind(order.order_id)
                        .bind(line.product_id)
                        .bind(line.quantity)
                        .bind(line.unit_price_cents)
                        .execute(&mut *local)
                        .await?;
                }
                Ok(())
            });
            Ok(work.await?)
        })
    }

    async fn post(
        &self,
        service: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(), ServiceFailure> {
        let response = self.http.post(format!("{service}/{path}")).json(body).send().await?;
        ServiceFailure::of(response).await
    }
}

/// Finds the end of a transaction whose commit was not answered.
async fn ended(handfast: &Handfast, error: TransactionError<ServiceFailure>) -> OrderEnd {
    let reason = error.to_string();
    let undone = match error.application() {
        Some(ServiceFailure::Refused(refusal)) => OrderEnd::Refused { refusal: *refusal },
        Some(ServiceFailure::Unavailable(_)) | None => {
            OrderEnd::RolledBack { reason: reason.clone() }
        }
    };
    if is_undone(&error) {
        return undone;
    }
    // Sent again before it is undone, the order would meet its own rows; and a commit that got
    // no answer may have happened. So the coordinator is asked until it knows.
    if let TransactionError::RollingBack { xid, .. } = &error {
        let status = end_of(handfast, xid).await;
        // No commit was requested: a global that the coordinator forgot has left nothing behind.
        if matches!(status, GlobalStatus::RolledBack(_) | GlobalStatus::Unknown) {
            return undone;
        }
        return OrderEnd::Unclear { reason: format!("{reason}; it is {status}") };
    }
    if let TransactionError::Unknown { xid, .. } = &error {
        let status = end_of(handfast, xid).await;
        if matches!(status, GlobalStatus::Committing | GlobalStatus::Committed) {
            return OrderEnd::Committed;
        }
        if matches!(status, GlobalStatus::RolledBack(_)) {
            return undone;
        }
        return OrderEnd::Unclear { reason: format!("{reason}; it is {status}") };
    }
    OrderEnd::Unclear { reason }
}

/// Waits, within limits, until a global has ended.
async fn end_of(handfast: &Handfast, xid: &Xid) -> GlobalStatus {
    let until = Instant::now() + ASK_FOR;
    let mut last = GlobalStatus::Active;
    while Instant::now() < until {
        match handfast.outcome(xid).await {
            Ok(status @ (GlobalStatus::Active | GlobalStatus::RollingBack(_))) => last = status,
            Ok(status) => return status,
            Err(error) => tracing::warn!(%xid, %error, "asking for the outcome"),
        }
        sleep(ASK_EVERY).await;
    }
    last
}

/// Nothing of it happened, and nothing of it is left to be undone.
fn is_undone(error: &TransactionError<ServiceFailure>) -> bool {
    matches!(
        error,
        TransactionError::NotBegun(_)
            | TransactionError::RolledBack { .. }
            | TransactionError::Forgotten { .. }
    )
}
