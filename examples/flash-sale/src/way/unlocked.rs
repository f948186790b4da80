//! Without a lock of the application: the database decides, or the coordinator.

use anyhow::{Result, bail};
use handfast::{AtResource, Handfast};

use handfast_example_shop::dialect::Argument;
use handfast_example_shop::services::ServiceFailure;
use handfast_example_shop::services::order::{self, OrderEnd};

use crate::stock::{INSERT_SALE, NONE_LEFT, Product, TAKE_ONE};

use super::BuyerAnswer;

/// The arguments that take one unit from the one row.
const TAKE: [Argument<'static>; 3] =
    [Argument::Number(1), Argument::Number(0), Argument::Number(1)];
const NONE: [Argument<'static>; 2] = [Argument::Number(0), Argument::Number(0)];

pub(super) async fn guarded<DB: Product>(pool: &sqlx::Pool<DB>, buyer: i64) -> Result<BuyerAnswer> {
    let mut local = pool.begin().await?;
    if DB::execute(&mut local, TAKE_ONE, &TAKE).await? == 0 {
        local.rollback().await?;
        return Ok(BuyerAnswer::SoldOut);
    }
    let arguments = [Argument::Number(buyer), Argument::Number(0)];
    DB::execute(&mut local, INSERT_SALE, &arguments).await?;
    local.commit().await?;
    Ok(BuyerAnswer::Bought)
}

pub(super) async fn in_global<DB: Product>(
    resource: &AtResource<DB>,
    handfast: &Handfast,
    buyer: i64,
) -> Result<BuyerAnswer> {
    let mut told = BuyerAnswer::SoldOut;
    let ended = order::in_global(handfast, async {
        told = in_branch(resource, buyer).await?;
        Ok(())
    });
    match ended.await {
        OrderEnd::Committed => Ok(told),
        OrderEnd::Refused { refusal } => bail!("a branch refused, which none does: {refusal}"),
        OrderEnd::RolledBack { reason } | OrderEnd::Unclear { reason } => bail!(reason),
    }
}

/// "Nothing is left" must be as certain as "something is left": the global that took the last unit
/// may still be rolled back. So the row is taken into this global too, which waits for that one.
async fn in_branch<DB: Product>(
    resource: &AtResource<DB>,
    buyer: i64,
) -> Result<BuyerAnswer, ServiceFailure> {
    let work = resource.try_transaction(async |mut local| {
        let sale = [Argument::Number(buyer), Argument::Number(0)];
        if DB::execute_in_branch(&mut local, TAKE_ONE, &TAKE).await? == 1 {
            DB::execute_in_branch(&mut local, INSERT_SALE, &sale).await?;
            return Ok(BuyerAnswer::Bought);
        }
        if DB::execute_in_branch(&mut local, NONE_LEFT, &NONE).await? == 1 {
            return Ok(BuyerAnswer::SoldOut);
        }
        Err(ServiceFailure::Unavailable("a unit came back meanwhile".to_owned()))
    });
    work.await
}
