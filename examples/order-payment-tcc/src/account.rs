//! The account service: freezes the price of an order, and takes or unfreezes it when the order is
//! decided.

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
use handfast_example_shop::services::account::{self, Debit};
use handfast_example_shop::services::{BusinessRefusal, Service, ServiceFailure};
use handfast_example_shop::{Site, with_pool};

/// Accounts with money that is frozen.
pub(crate) const FROZEN: &str = "SELECT COUNT(*) FROM account WHERE frozen_cents <> 0";

/// `balance_cents` are free to be spent; `frozen_cents` belong to orders that are not decided.
const ADD_FROZEN: &str = "ALTER TABLE account ADD COLUMN frozen_cents BIGINT NOT NULL DEFAULT 0";

const FREEZE: Sql = Sql {
    numbered: "UPDATE account SET balance_cents = balance_cents - $1, \
               frozen_cents = frozen_cents + $2 WHERE customer_id = $3 AND balance_cents >= $4",
    plain: "UPDATE account SET balance_cents = balance_cents - ?, \
            frozen_cents = frozen_cents + ? WHERE customer_id = ? AND balance_cents >= ?",
};

const TAKE: Sql = Sql {
    numbered: "UPDATE account SET frozen_cents = frozen_cents - $1 \
               WHERE customer_id = $2 AND frozen_cents >= $3",
    plain: "UPDATE account SET frozen_cents = frozen_cents - ? \
            WHERE customer_id = ? AND frozen_cents >= ?",
};

const UNFREEZE: Sql = Sql {
    numbered: "UPDATE account SET balance_cents = balance_cents + $1, \
               frozen_cents = frozen_cents - $2 WHERE customer_id = $3 AND frozen_cents >= $4",
    plain: "UPDATE account SET balance_cents = balance_cents + ?, \
            frozen_cents = frozen_cents - ? WHERE customer_id = ? AND frozen_cents >= ?",
};

/// Takes what an order costs from its customer.
struct TakeMoney<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> Tcc for TakeMoney<DB> {
    type Database = DB;
    type Input = Debit;
    type Error = ServiceFailure;

    async fn try_(
        &self,
        debit: &Debit,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        let (customer, cents) = (debit.customer_id.as_str(), debit.amount_cents);
        let arguments = [cents.into(), cents.into(), customer.into(), cents.into()];
        match DB::execute(local, FREEZE, &arguments).await? {
            0 => Err(BusinessRefusal::NoFunds.into()),
            _ => Ok(()),
        }
    }

    async fn confirm(
        &self,
        debit: &Debit,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        let (customer, cents) = (debit.customer_id.as_str(), debit.amount_cents);
        let arguments = [cents.into(), customer.into(), cents.into()];
        expect_frozen(debit, DB::execute(local, TAKE, &arguments).await?)
    }

    async fn cancel(
        &self,
        debit: &Debit,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), ServiceFailure> {
        let (customer, cents) = (debit.customer_id.as_str(), debit.amount_cents);
        let arguments = [cents.into(), cents.into(), customer.into(), cents.into()];
        expect_frozen(debit, DB::execute(local, UNFREEZE, &arguments).await?)
    }
}

/// Checks that the frozen amount was still there. It is missing only if another program changes
/// this table. The branch is then called again, and operators see it.
fn expect_frozen(debit: &Debit, changed: u64) -> Result<(), ServiceFailure> {
    if changed == 1 {
        return Ok(());
    }
    Err(ServiceFailure::Unavailable(format!("the money of {} is not frozen", debit.customer_id)))
}

/// Makes and fills the service's table and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("account-service").await?;
    let pool = &site.databases.account;
    account::fill(pool, &handfast, &site.input.customers, site.balance_cents).await?;
    pool.make_tables(&handfast, &[ADD_FROZEN]).await?;
    // The action's name is for one database alone, also on a coordinator that others use.
    let name = site.node("take-money");
    with_pool!(pool, |pool, _text| serve(handfast, name, pool.clone()).await)
}

async fn serve<DB: Dialect>(handfast: Handfast, name: String, pool: Pool<DB>) -> Result<Service> {
    let action = handfast.tcc(name, pool, TakeMoney(PhantomData)).await?;
    let router = Router::new()
        .route("/debits", post(take::<DB>))
        // Requests that carry an XID are served within that global transaction.
        .layer(XidLayer::new())
        .with_state(action);
    Service::start(router, handfast).await
}

async fn take<DB: Dialect>(
    State(action): State<TccResource<TakeMoney<DB>>>,
    Json(debit): Json<Debit>,
) -> Result<(), ServiceFailure> {
    Ok(action.try_(&debit).await?)
}
