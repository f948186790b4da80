//! Real orders as sagas: each has four steps that the coordinator drives.
//!
//! ```text
//! order service: write ─▶ stock service: deduct ─▶ account service: pay ─▶ order service: confirm
//!                cancel ◀─                put back ◀── no funds              (the pivot is done)
//! ```
//!
//! Every step is committed at once in the service's own database. An order that is refused is
//! compensated: deducted units are put back, and the written order is cancelled. The order service
//! starts the saga under the order's number, so that it finds the same one again whatever dies
//! meanwhile. At the end the run proves that nothing was lost and that every order was confirmed or
//! cancelled.

mod account;
mod order;
mod stock;

use std::process::ExitCode;

use anyhow::Result;

use handfast_example_shop::database::Databases;
use handfast_example_shop::services::Services;
use handfast_example_shop::{Books, Example, Leftover, Site};

/// Every service as a participant of sagas.
struct OrderPaymentSaga;

impl Example for OrderPaymentSaga {
    const NAME: &'static str = "order-payment-saga";
    const ABOUT: &'static str = "Run orders as sagas, whose steps are committed one by one and \
        compensated when one of them refuses, and prove that nothing was lost";
    const BOOKS: Books = Books {
        sold: "SELECT line.product_id, line.quantity FROM order_line line \
               JOIN customer_order written ON written.order_id = line.order_id \
               WHERE written.state = 'confirmed'",
        paid: "SELECT customer_id, total_cents FROM customer_order WHERE state = 'confirmed'",
        ..Books::PLAIN
    };

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        let stock = stock::start(site).await?;
        let account = account::start(site).await?;
        let order = order::start(site).await?;
        Ok(Services { order, stock, account })
    }

    async fn leftovers(&self, databases: &Databases) -> Result<Vec<Leftover>> {
        Ok(vec![Leftover {
            what: "orders neither confirmed nor cancelled left",
            count: databases.order.count(order::OPEN).await?,
        }])
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    handfast_example_shop::main(OrderPaymentSaga).await
}
