//! The account service, which pays: debits the customer when the lines are deducted.

use anyhow::Result;
use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::emit;
use sqlx::Transaction;

use handfast_example_shop::Site;
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{Service, ServiceFailure, account};

use crate::fact::{Fact, FactKind, Topic};
use crate::journal;

/// Makes and fills the service's tables and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("account-service").await?;
    let pool = &site.databases.account;
    account::fill(pool, &handfast, &site.input.customers, site.balance_cents).await?;
    pool.make_tables(&handfast, &[journal::TABLE]).await?;
    // It learns of orders by events alone, so it serves no requests.
    Service::start(Router::new(), handfast).await
}

/// Debits the customer of an order whose lines are deducted.
pub(crate) fn on_stock<'l, DB: Dialect>(
    local: &'l mut Transaction<'_, DB>,
    fact: Fact,
) -> BoxFuture<'l, Result<(), ServiceFailure>> {
    async move {
        match fact.what {
            FactKind::Taken => {
                let (cents, customer) = (fact.order.total_cents(), &*fact.order.customer_id);
                let arguments = [cents.into(), customer.into(), cents.into()];
                let what = match DB::execute(local, account::DEBIT, &arguments).await? {
                    0 => FactKind::NoFunds,
                    _ => FactKind::Paid,
                };
                let told = Fact { what, ..fact };
                Ok(emit(local, &told.event(Topic::Payments)?).await?)
            }
            FactKind::Placed
            | FactKind::OutOfStock
            | FactKind::Paid
            | FactKind::NoFunds
            | FactKind::PutBack => Ok(()),
        }
    }
    .boxed()
}
