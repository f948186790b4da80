//! The account service, which pays: debits the customer when the lines are deducted.

use anyhow::Result;
use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::emit;
use sqlx::{Pool, Transaction};

use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{Failure, Service, account};
use handfast_example_shop::{Site, with_pool};

use crate::broker::Broker;
use crate::fact::{Fact, Topic, What};
use crate::{journal, work};

/// Makes and fills the service's tables and starts it.
pub(crate) async fn start(site: &Site<'_>, broker: &Broker) -> Result<Service> {
    let handfast = site.connect("account-service").await?;
    let pool = &site.databases.account;
    account::fill(pool, &handfast, &site.input.customers, site.balance_cents).await?;
    pool.make_tables(&handfast, &[journal::TABLE]).await?;
    // It hears of orders by events alone.
    let mut service = Service::start(Router::new(), handfast).await?;
    with_pool!(pool, |pool, _text| begin_work(&mut service, pool, broker).await?);
    // The last service to be stopped tidies up.
    let broker = broker.clone();
    service.beside(|stop| async move {
        stop.cancelled().await;
        broker.remove().await
    });
    Ok(service)
}

async fn begin_work<DB: Dialect>(
    service: &mut Service,
    pool: &Pool<DB>,
    broker: &Broker,
) -> Result<()> {
    work::relay(service, pool, broker);
    work::consume(service, pool, broker, (Topic::Stock, "account"), on_stock).await
}

fn on_stock<'l, DB: Dialect>(
    local: &'l mut Transaction<'_, DB>,
    fact: Fact,
) -> BoxFuture<'l, Result<(), Failure>> {
    async move {
        match fact.what {
            What::Taken => {
                let (cents, customer) = (fact.order.total_cents(), &*fact.order.customer_id);
                let arguments = [cents.into(), customer.into(), cents.into()];
                let what = match DB::execute(local, account::DEBIT, &arguments).await? {
                    0 => What::NoFunds,
                    _ => What::Paid,
                };
                let told = Fact { what, ..fact };
                Ok(emit(local, &told.event(Topic::Payments)?).await?)
            }
            What::Placed | What::OutOfStock | What::Paid | What::NoFunds | What::PutBack => Ok(()),
        }
    }
    .boxed()
}
