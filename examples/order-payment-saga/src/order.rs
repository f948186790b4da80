//! The order service: starts the saga of each order and waits for its end, and writes, confirms and
//! cancels orders as steps of it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use handfast::saga::{
    Saga, SagaAction, SagaCall, SagaReport, SagaStatus, SagaStep, SagaStepState, StepError,
};
use handfast::{Error, Handfast};
use sqlx::{Pool, Transaction};
use tokio::time::{Instant, sleep};

use handfast_example_shop::database::Sql;
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::account::Debit;
use handfast_example_shop::services::order::{self, INSERT_LINE, INSERT_ORDER, OrderEnd};
use handfast_example_shop::services::{BusinessRefusal, Service};
use handfast_example_shop::{Order, Site, with_pool};

use crate::{account, stock};

/// The time to wait for the end of an order. It is certain to come, so this is for a coordinator
/// or a database that stays away.
const WAIT_FOR: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The name of the service in the steps of sagas; the names of its actions follow.
const RESOURCE: &str = "order";
const WRITE: &str = "write";
const CONFIRM: &str = "confirm";

/// Orders that are still to be confirmed or cancelled.
pub(crate) const OPEN: &str = "SELECT COUNT(*) FROM customer_order WHERE state = 'written'";

const ADD_STATE: &str =
    "ALTER TABLE customer_order ADD COLUMN state VARCHAR(16) NOT NULL DEFAULT 'written'";

/// Only an order that is still open: an order has one end.
const END: Sql = Sql {
    numbered: "UPDATE customer_order SET state = $1 WHERE order_id = $2 AND state = 'written'",
    plain: "UPDATE customer_order SET state = ? WHERE order_id = ? AND state = 'written'",
};

/// Writes an order; its compensation cancels it.
struct Write<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> SagaAction<DB> for Write<DB> {
    type Input = Order;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        order: &Order,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        let (id, customer) = (order.order_id, order.customer_id.as_str());
        let (date, total) = (order.order_date.as_str(), order.total_cents());
        let head = [id.into(), customer.into(), date.into(), total.into()];
        DB::execute(local, INSERT_ORDER, &head).await?;
        for line in &order.lines {
            let line = [id, line.product_id, line.quantity, line.unit_price_cents];
            DB::execute(local, INSERT_LINE, &line.map(Into::into)).await?;
        }
        Ok(())
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        order: &Order,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        end(local, order.order_id, "cancelled").await
    }
}

/// Confirms an order that is paid.
struct Confirm<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> SagaAction<DB> for Confirm<DB> {
    /// The order's number.
    type Input = i64;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        &order_id: &i64,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        end(local, order_id, "confirmed").await
    }
}

/// An order that is not open here was changed outside of the saga, and needs an operator.
async fn end<DB: Dialect>(
    local: &mut Transaction<'_, DB>,
    order_id: i64,
    state: &str,
) -> Result<(), StepError> {
    match DB::execute(local, END, &[state.into(), order_id.into()]).await? {
        0 => Err(StepError::refuse(format!("order {order_id} is not open"))),
        _ => Ok(()),
    }
}

/// The part of the service that customers see.
struct OrderService {
    handfast: Handfast,
    /// Names of this run's participants.
    order: String,
    stock: String,
    account: String,
}

/// Makes the service's tables and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("order-service").await?;
    let pool = &site.databases.order;
    pool.make_tables(&handfast, order::TABLES).await?;
    pool.make_tables(&handfast, &[ADD_STATE]).await?;
    let [order, stock, account] = [RESOURCE, stock::RESOURCE, account::RESOURCE];
    let [order, stock, account] = [order, stock, account].map(|service| site.node(service));
    with_pool!(pool, |pool, _text| take_part(&handfast, &order, pool));
    let service = OrderService { handfast: handfast.clone(), order, stock, account };
    let router = Router::new().route("/orders", post(place)).with_state(Arc::new(service));
    Service::start(router, handfast).await
}

fn take_part<DB: Dialect>(handfast: &Handfast, name: &str, pool: &Pool<DB>) {
    let participant = handfast.saga_participant(name, pool.clone());
    let participant = participant.action(WRITE, Write(PhantomData));
    participant.action(CONFIRM, Confirm(PhantomData)).register();
}

async fn place(
    State(service): State<Arc<OrderService>>,
    Json(order): Json<Order>,
) -> Json<OrderEnd> {
    Json(service.end_of(&order).await)
}

impl OrderService {
    fn saga(&self, order: &Order) -> Saga {
        let Self { order: orders, stock, account, .. } = self;
        let debit =
            Debit { customer_id: order.customer_id.clone(), amount_cents: order.total_cents() };
        let deduct = SagaStep::compensable(stock::DEDUCT, stock, stock::DEDUCT);
        Saga::new("place-order")
            .step(SagaStep::compensable(WRITE, orders, WRITE).input(order))
            .step(deduct.input(&order.lines))
            .step(SagaStep::pivot(account::PAY, account, account::PAY).input(&debit))
            .step(SagaStep::retriable(CONFIRM, orders, CONFIRM).input(&order.order_id))
    }

    /// Starts the order's saga and waits, within limits, for its end. Whatever is lost on the way,
    /// the same key finds the same saga.
    async fn end_of(&self, order: &Order) -> OrderEnd {
        let until = Instant::now() + WAIT_FOR;
        loop {
            let reason = match self.attempt(order).await {
                Ok(report) => match ended(&report) {
                    Some(ended) => return ended,
                    None => format!("it is {:?}", report.status()),
                },
                Err(error @ Error::Rejected(_)) => {
                    return OrderEnd::Unclear { reason: error.to_string() };
                }
                Err(error) => error.to_string(),
            };
            tracing::warn!(order = order.order_id, reason, "asking for the outcome");
            if Instant::now() >= until {
                return OrderEnd::Unclear { reason };
            }
            sleep(ASK_EVERY).await;
        }
    }

    async fn attempt(&self, order: &Order) -> Result<SagaReport, Error> {
        // The participant's name is of this run, and so is the key.
        let key = format!("{}-{}", self.order, order.order_id);
        self.handfast.start_saga(key, self.saga(order)).await?.ended(WAIT_FOR).await
    }
}

/// Returns the end of the order, if it has ended. Such a saga is compensated only because a step
/// has refused: the payment, or the deduction before it.
fn ended(report: &SagaReport) -> Option<OrderEnd> {
    match report.status() {
        SagaStatus::Completed => Some(OrderEnd::Committed),
        SagaStatus::Compensated => {
            let pay = report.step(account::PAY).map(|step| step.state());
            let is_refused = pay == Some(SagaStepState::Failed);
            let refusal =
                if is_refused { BusinessRefusal::NoFunds } else { BusinessRefusal::OutOfStock };
            Some(OrderEnd::Refused { refusal })
        }
        // The saga goes on by itself, or after an operator has acted.
        SagaStatus::Running
        | SagaStatus::Compensating
        | SagaStatus::NeedsOperator
        | SagaStatus::Unknown
        | _ => None,
    }
}
