//! The stock service: reserves the lines of an order, all or nothing, and sells or releases them
//! when the order is decided.

use std::marker::PhantomData;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use handfast::propagation::XidLayer;
use handfast::{Handfast, Tcc, TccBranch, TccResource};
use sqlx::{Pool, Transaction};

use handfast_example_shop::database::Sql;
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{BusinessRefusal, Service, ServiceFailure, stock};
use handfast_example_shop::{OrderLine, Site, with_pool};

/// Products of which units are reserved.
pub(crate) const RESERVED: &str = "SELECT COUNT(*) FROM stock WHERE reserved <> 0";

/// `units` are free; `reserved` ones belong to orders that are not decided.
const ADD_RESERVED: &str = "ALTER TABLE stock ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0";

const RESERVE: Sql = Sql {
    numbered: "UPDATE stock SET units = units - $1, reserved = reserved + $2 \
               WHERE product_id = $3 AND units >= $4",
    plain: "UPDATE stock SET units = units - ?, reserved = reserved + ? \
            WHERE product_id = ? AND units >= ?",
};

const SELL: Sql = Sql {
    numbered: "UPDATE stock SET reserved = reserved - $1 WHERE product_id = $2 AND reserved >= $3",
    plain: "UPDATE stock SET reserved = reserved - ? WHERE product_id = ? AND reserved >= ?",
};

const RELEASE: Sql = Sql {
    numbered: "UPDATE stock SET units = units + $1, reserved = reserved - $2 \
               WHERE product_id = $3 AND reserved >= $4",
    plain: "UPDATE stock SET units = units + ?, reserved = reserved - ? \
            WHERE product_id = ? AND reserved >= ?",
};

/// Takes the lines of an order out of the stock.
struct TakeLines<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> Tcc for TakeLines<DB> {
    type Database = DB;
    type Input = Vec<OrderLine>;
    type Error = ServiceFailure;

    async fn try_(
        &self,
        lines: &Vec<OrderLine>,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        for &OrderLine { product_id, quantity, .. } in lines {
            let arguments = [quantity, quantity, product_id, quantity].map(Into::into);
            if DB::execute(local, RESERVE, &arguments).await? == 0 {
                return Err(BusinessRefusal::OutOfStock.into());
            }
        }
        Ok(())
    }

    async fn confirm(
        &self,
        lines: &Vec<OrderLine>,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        for &OrderLine { product_id, quantity, .. } in lines {
            let arguments = [quantity, product_id, quantity].map(Into::into);
            expect_reserved(product_id, DB::execute(local, SELL, &arguments).await?)?;
        }
        Ok(())
    }

    async fn cancel(
        &self,
        lines: &Vec<OrderLine>,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        for &OrderLine { product_id, quantity, .. } in lines {
            let arguments = [quantity, quantity, product_id, quantity].map(Into::into);
            expect_reserved(product_id, DB::execute(local, RELEASE, &arguments).await?)?;
        }
        Ok(())
    }
}

/// Checks that the reservation was still there. It is missing only if another program changes this
/// table. The branch is then called again, and operators see it.
fn expect_reserved(product_id: i64, changed: u64) -> Result<(), ServiceFailure> {
    if changed == 1 {
        return Ok(());
    }
    Err(ServiceFailure::Unavailable(format!("product {product_id} is not reserved")))
}

/// Makes and fills the service's table and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("stock-service").await?;
    let pool = &site.databases.stock;
    stock::fill(pool, &handfast, &site.input.products).await?;
    pool.make_tables(&handfast, &[ADD_RESERVED]).await?;
    // The action's name is for one database alone, also on a coordinator that others use.
    let name = site.node("take-lines");
    with_pool!(pool, |pool, _text| serve(handfast, name, pool.clone()).await)
}

async fn serve<DB: Dialect>(handfast: Handfast, name: String, pool: Pool<DB>) -> Result<Service> {
    let action = handfast.tcc(name, pool, TakeLines(PhantomData)).await?;
    let router = Router::new()
        .route("/deductions", post(take::<DB>))
        // Requests that carry an XID are served within that global transaction.
        .layer(XidLayer::new())
        .with_state(action);
    Service::start(router, handfast).await
}

async fn take<DB: Dialect>(
    State(action): State<TccResource<TakeLines<DB>>>,
    Json(lines): Json<Vec<OrderLine>>,
) -> Result<(), ServiceFailure> {
    Ok(action.try_(&lines).await?)
}
