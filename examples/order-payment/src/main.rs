//! Real orders through global transactions in AT mode: three services, three databases, one
//! coordinator.
//!
//! The order service begins one global transaction per order, writes the order, has the stock
//! service deduct the lines and the account service debit the customer, all over HTTP and in
//! ordinary SQL; a refusal anywhere rolls everything back. At the end the run proves that nothing
//! was lost. The services are those of `examples/shop`; this says only that their databases join in
//! AT mode.

use std::process::ExitCode;

use anyhow::Result;

use handfast_example_shop::database::SqlMode;
use handfast_example_shop::services::Services;
use handfast_example_shop::{Example, Site};

/// Every service in AT mode.
struct OrderPayment;

impl Example for OrderPayment {
    const NAME: &'static str = "order-payment";
    const ABOUT: &'static str = "Run orders through global transactions across an order, a stock \
        and an account service, and prove that nothing was lost";

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        Services::start_in_sql(site, SqlMode::At).await
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    handfast_example_shop::main(OrderPayment).await
}
