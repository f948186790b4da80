//! The stock service: deducts the lines of an order, all or nothing, and puts them back when the
//! order is compensated.

use std::marker::PhantomData;

use anyhow::Result;
use axum::Router;
use handfast::Handfast;
use handfast::saga::{SagaAction, SagaCall, StepError};
use sqlx::{Pool, Transaction};

use handfast_example_shop::database::Sql;
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{BusinessRefusal, Service, stock};
use handfast_example_shop::{OrderLine, Site, with_pool};

/// The name of the service in the steps of sagas; the names of its actions follow.
pub(crate) const RESOURCE: &str = "stock";
pub(crate) const DEDUCT: &str = "deduct";

const PUT_BACK: Sql = Sql {
    numbered: "UPDATE stock SET units = units + $1 WHERE product_id = $2",
    plain: "UPDATE stock SET units = units + ? WHERE product_id = ?",
};

/// Takes the lines of an order out of the stock.
struct DeductLines<DB>(PhantomData<fn() -> DB>);

impl<DB: Dialect> SagaAction<DB> for DeductLines<DB> {
    type Input = Vec<OrderLine>;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        lines: &Vec<OrderLine>,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        for &OrderLine { product_id, quantity, .. } in lines {
            let arguments = [quantity, product_id, quantity].map(Into::into);
            if DB::execute(local, stock::DEDUCT, &arguments).await? == 0 {
                return Err(StepError::refuse(BusinessRefusal::OutOfStock.to_string()));
            }
        }
        Ok(())
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        lines: &Vec<OrderLine>,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        for &OrderLine { product_id, quantity, .. } in lines {
            DB::execute(local, PUT_BACK, &[quantity, product_id].map(Into::into)).await?;
        }
        Ok(())
    }
}

/// Makes and fills the service's table and starts it.
pub(crate) async fn start(site: &Site<'_>) -> Result<Service> {
    let handfast = site.connect("stock-service").await?;
    let pool = &site.databases.stock;
    stock::fill(pool, &handfast, &site.input.products).await?;
    // The name is for one database alone, also on a coordinator that others use.
    let name = site.node(RESOURCE);
    with_pool!(pool, |pool, _text| take_part(&handfast, name, pool));
    // It is called by the coordinator alone.
    Service::start(Router::new(), handfast).await
}

fn take_part<DB: Dialect>(handfast: &Handfast, name: String, pool: &Pool<DB>) {
    let participant = handfast.saga_participant(name, pool.clone());
    participant.action(DEDUCT, DeductLines(PhantomData)).register();
}
