//! The account service: debits the customer, which is the point of no return.

use std::marker::PhantomData;

use anyhow::Result;
use axum::Router;
use handfast::Handfast;
use handfast::saga::{SagaAction, SagaCall, StepError};
use sqlx::{Pool, Transaction};

use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::account::{self, Debit};
use handfast_example_shop::services::{BusinessRefusal, Service};
use handfast_example_shop::{Site, with_pool};

/// The name of the service in the steps of sagas; the names of its actions follow.
pub(crate) const RESOURCE: &str = "account";
pub(crate) const PAY: &str = "pay";

/// Debits the customer of an order. This is the pivot, and has no compensation: after it the order
/// only goes forward.
struct Pay<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> SagaAction<DB> for Pay<DB> {
    type Input = Debit;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        debit: &Debit,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        let (cents, customer) = (debit.amount_cents, debit.customer_id.as_str());
        let arguments = [cents.into(), customer.into(), cents.into()];
        match DB::execute(local, account::DEBIT, &arguments).await? {
            0 => Err(StepError::refuse(BusinessRefusal::NoFunds.to_string())),
            _ => Ok(()),
        }
    }
}

/// Makes and fills the service's table and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("account-service").await?;
    let pool = &site.databases.account;
    account::fill(pool, &handfast, &site.input.customers, site.balance_cents).await?;
    // The name is for one database alone, also on a coordinator that others use.
    let name = site.node(RESOURCE);
    with_pool!(pool, |pool, _text| take_part(&handfast, name, pool));
    // It is called by the coordinator alone.
    Service::start(Router::new(), handfast).await
}

fn take_part<DB: Dialect>(handfast: &Handfast, name: String, pool: &Pool<DB>) {
    let participant = handfast.saga_participant(name, pool.clone());
    participant.action(PAY, Pay(PhantomData)).register();
}
