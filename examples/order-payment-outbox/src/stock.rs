//! The stock service: deducts the lines of an order when it is placed, and puts them back when it
//! is not paid.

use anyhow::Result;
use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::emit;
use sqlx::{Connection, Transaction};

use handfast_example_shop::database::Sql;
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{Service, ServiceFailure, stock};
use handfast_example_shop::{Order, Site};

use crate::fact::{Fact, FactKind, Topic};
use crate::journal;

const PUT_BACK: Sql = Sql {
    numbered: "UPDATE stock SET units = units + $1 WHERE product_id = $2",
    plain: "UPDATE stock SET units = units + ? WHERE product_id = ?",
};

/// Makes and fills the service's tables and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("stock-service").await?;
    let pool = &site.databases.stock;
    stock::fill(pool, &handfast, &site.input.products).await?;
    pool.make_tables(&handfast, &[journal::TABLE]).await?;
    // It learns of orders by events alone, so it serves no requests.
    Service::start(Router::new(), handfast).await
}

/// Deducts the lines of an order that is placed; puts back those of one that is not paid.
pub(crate) fn on_news<'l, DB: Dialect>(
    local: &'l mut Transaction<'_, DB>,
    fact: Fact,
) -> BoxFuture<'l, Result<(), ServiceFailure>> {
    async move {
        match fact.what {
            FactKind::Placed => {
                let taken = take(local, &fact.order).await?;
                let what = if taken { FactKind::Taken } else { FactKind::OutOfStock };
                tell(local, what, fact.order).await
            }
            FactKind::NoFunds => {
                for line in &fact.order.lines {
                    let arguments = [line.quantity, line.product_id].map(Into::into);
                    DB::execute(local, PUT_BACK, &arguments).await?;
                }
                tell(local, FactKind::PutBack, fact.order).await
            }
            FactKind::Taken | FactKind::OutOfStock | FactKind::Paid | FactKind::PutBack => Ok(()),
        }
    }
    .boxed()
}

/// Deducts all lines or none, and returns whether it did.
async fn take<DB: Dialect>(
    local: &mut Transaction<'_, DB>,
    order: &Order,
) -> Result<bool, sqlx::Error> {
    // A savepoint: what was deducted goes back, and the local transaction goes on.
    let mut lines = local.begin().await?;
    for line in &order.lines {
        let arguments = [line.quantity, line.product_id, line.quantity].map(Into::into);
        if DB::execute(&mut lines, stock::DEDUCT, &arguments).await? == 0 {
            lines.rollback().await?;
            return Ok(false);
        }
    }
    lines.commit().await?;
    Ok(true)
}

async fn tell<DB: Dialect>(
    local: &mut Transaction<'_, DB>,
    what: FactKind,
    order: Order,
) -> Result<(), ServiceFailure> {
    Ok(emit(local, &Fact { what, order }.event(Topic::Stock)?).await?)
}
