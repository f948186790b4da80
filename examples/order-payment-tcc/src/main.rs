//! Real orders through global transactions with branches in TCC mode.
//!
//! The stock service reserves the lines of an order and sells or releases them once the order is
//! decided; the account service freezes what the customer owes and takes or unfreezes it. No row is
//! locked in between, so that orders for one product do not wait for each other's ends. The order
//! service writes the order as an AT branch of the same global transaction. At the end the run
//! proves that nothing was lost and that nothing is reserved or frozen any more.

mod account;
mod stock;

use std::process::ExitCode;

use anyhow::Result;

use handfast_example_shop::database::{Databases, SqlMode};
use handfast_example_shop::services::Services;
use handfast_example_shop::services::order::{self, Neighbours};
use handfast_example_shop::{Example, Leftover, Site};

/// Stock and accounts as actions, orders as rows.
struct OrderPaymentTcc;

impl Example for OrderPaymentTcc {
    const NAME: &'static str = "order-payment-tcc";
    const ABOUT: &'static str = "Run orders through global transactions whose stock and account \
        branches are tried, then confirmed or cancelled, and prove that nothing was lost";

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        let stock = stock::start(site).await?;
        let account = account::start(site).await?;
        let neighbours = Neighbours { stock: stock.url.clone(), account: account.url.clone() };
        let order = order::start(site, SqlMode::At, neighbours).await?;
        Ok(Services { order, stock, account })
    }

    async fn leftovers(&self, databases: &Databases) -> Result<Vec<Leftover>> {
        const TRIED: &str = "SELECT COUNT(*) FROM branch_fence WHERE status = 1";
        let (stock, account) = (&databases.stock, &databases.account);
        let tried = stock.count(TRIED).await? + account.count(TRIED).await?;
        Ok(vec![
            Leftover {
                what: "products with reserved units left",
                count: stock.count(stock::RESERVED).await?,
            },
            Leftover {
                what: "accounts with frozen money left",
                count: account.count(account::FROZEN).await?,
            },
            Leftover { what: "tries neither confirmed nor cancelled left", count: tried },
        ])
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    handfast_example_shop::main(OrderPaymentTcc).await
}
