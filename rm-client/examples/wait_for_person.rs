//! A saga with a step that waits for a person: an expense is set aside, approved, and paid.
//!
//! Needs a coordinator: `cargo run -p handfast --example wait_for_person`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
use handfast::{Error, Handfast, Xid};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("expenses").await?;
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("budget.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    take_part(&handfast, &pool).await?;
    let key = format!("expense-{}", std::process::id());
    let xid = ask(&handfast, &key, 300).await?;
    println!("{key} waits for a person, who says in a second terminal");
    println!("  yes: handfast saga signal {xid} approval --payload '\"Ada\"'");
    println!("  no:  handfast saga cancel {xid} --reason 'not approved by Ada'");
    let report = handfast.saga(&xid).ended(DAY).await?;
    println!("{key}: {:?} {}", report.status(), report.cause());
    handfast.close().await;
    Ok(())
}

/// In the service that has the budget, once, at its start.
pub(crate) async fn take_part(handfast: &Handfast, pool: &SqlitePool) -> anyhow::Result<()> {
    handfast.migrate(pool).await?;
    let table =
        "CREATE TABLE budget (free INTEGER, paid INTEGER); INSERT INTO budget VALUES (500, 0)";
    sqlx::raw_sql(table).execute(pool).await?;
    let budget = handfast.saga_participant("budget", pool.clone());
    budget.action("set-aside", SetAside).action("pay", Pay).register();
    Ok(())
}

/// Where the expense is handed in. The caller may go: the saga waits in the coordinator.
pub(crate) async fn ask(handfast: &Handfast, key: &str, cents: i64) -> Result<Xid, Error> {
    let saga = Saga::new("expense")
        .step(SagaStep::compensable("set-aside", "budget", "set-aside").input(&cents))
        .step(SagaStep::signal("approval").timeout(14 * DAY))
        .step(SagaStep::pivot("pay", "budget", "pay").input(&cents).takes("approval"));
    Ok(handfast.start_saga(key, saga).await?.xid().clone())
}

struct SetAside;

impl SagaAction<Sqlite> for SetAside {
    type Input = i64;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        cents: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let take = "UPDATE budget SET free = free - ?1 WHERE free >= ?1";
        match sqlx::query(take).bind(cents).execute(&mut **local).await?.rows_affected() {
            0 => Err(StepError::refuse("not so much left")),
            _ => Ok(()),
        }
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        cents: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let give = "UPDATE budget SET free = free + ?";
        sqlx::query(give).bind(cents).execute(&mut **local).await?;
        Ok(())
    }
}

struct Pay;

impl SagaAction<Sqlite> for Pay {
    type Input = i64;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        cents: &i64,
        call: &SagaCall,
    ) -> Result<(), StepError> {
        // What the person has said is the output of the step that waited.
        if call.output_of::<String>("approval")?.is_none() {
            return Err(StepError::refuse("approved without a name"));
        }
        let pay = "UPDATE budget SET paid = paid + ?";
        sqlx::query(pay).bind(cents).execute(&mut **local).await?;
        Ok(())
    }
}
