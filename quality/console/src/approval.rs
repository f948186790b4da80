//! A saga that waits for a person: stock is reserved, a person approves, and the rest is done.

use std::time::Duration;

use anyhow::Result;
use handfast::Handfast;
use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use sqlx::{Postgres, Transaction};

/// The steps that are done, as their actions have written them down.
pub(crate) const DONE_STEPS: &str = "CREATE TABLE done_steps (saga TEXT NOT NULL, \
    step TEXT NOT NULL, approved_by TEXT, PRIMARY KEY (saga, step))";
const WRITE_DOWN: &str = "INSERT INTO done_steps (saga, step, approved_by) VALUES ($1, $2, $3)";
const CROSS_OUT: &str = "DELETE FROM done_steps WHERE saga = $1 AND step = $2";
const READ: &str = "SELECT step || coalesce(' ' || approved_by, '') FROM done_steps \
    WHERE saga = $1 ORDER BY step";
/// How long a person may take.
const APPROVED_WITHIN: Duration = Duration::from_secs(3600);

/// Writes down that a step is done, and who approved it if it is told.
struct WriteDown;

impl SagaAction<Postgres> for WriteDown {
    type Input = Value;
    type Output = Value;

    async fn act(
        &self,
        local: &mut Transaction<'_, Postgres>,
        input: &Value,
        call: &SagaCall,
    ) -> Result<Value, StepError> {
        if let Some(why) = input["refused"].as_str().filter(|why| !why.is_empty()) {
            return Err(StepError::refuse(why));
        }
        let approved_by = call.output_of::<String>("approval")?;
        let write = sqlx::query(WRITE_DOWN).bind(call.key()).bind(call.step()).bind(approved_by);
        write.execute(&mut **local).await?;
        Ok(json!({ "done": input }))
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Postgres>,
        _input: &Value,
        call: &SagaCall,
    ) -> Result<(), StepError> {
        let cross_out = sqlx::query(CROSS_OUT).bind(call.key()).bind(call.step());
        cross_out.execute(&mut **local).await?;
        Ok(())
    }
}

/// Offers the actions of the saga's steps.
pub(crate) fn take_part(handfast: &Handfast, pool: &PgPool) {
    for (resource, [one, other]) in [("stock", ["reserve", "ship"]), ("billing", ["debit", "send"])]
    {
        let participant = handfast.saga_participant(resource, pool.clone());
        participant.action(one, WriteDown).action(other, WriteDown).register();
    }
}

/// Starts a saga with this key, which goes on until it waits for a person. Its shipment is refused
/// if a reason is given.
pub(crate) async fn start(handfast: &Handfast, key: &str, refused: &str) -> Result<Value> {
    let reserve = SagaStep::compensable("reserve", "stock", "reserve");
    let pay = SagaStep::pivot("pay", "billing", "debit").takes("approval");
    let saga = Saga::new("large-order")
        .timeout(APPROVED_WITHIN)
        .step(reserve.input(&json!({ "product": 7, "units": 40 })))
        .step(SagaStep::signal("approval"))
        .step(pay.input(&json!({ "cents": 480_000 })))
        .together([
            SagaStep::retriable("ship", "stock", "ship").input(&json!({ "refused": refused })),
            SagaStep::retriable("invoice", "billing", "send"),
        ]);
    Ok(json!(handfast.start_saga(key, saga).await?.xid().as_str()))
}

/// Returns the steps that are done, with who approved them.
pub(crate) async fn done_steps(pool: &PgPool, key: &str) -> Result<Value> {
    let steps = sqlx::query_scalar::<_, String>(READ).bind(key).fetch_all(pool).await?;
    Ok(json!(steps.join(", ")))
}
