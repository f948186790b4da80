//! A saga: a trip is booked step by step. Where a step refuses, those before it are compensated.
//!
//! Needs a coordinator: `cargo run -p handfast-cli -- serve`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use handfast::Handfast;
use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};

/// Books one of what is left of the kind.
struct Book(&'static str);

impl SagaAction<Sqlite> for Book {
    type Input = ();
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        (): &(),
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let book = "UPDATE offer SET units = units - 1 WHERE kind = ? AND units > 0";
        match sqlx::query(book).bind(self.0).execute(&mut **local).await?.rows_affected() {
            0 => Err(StepError::refuse("fully booked")),
            _ => Ok(()),
        }
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        (): &(),
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let give_back = "UPDATE offer SET units = units + 1 WHERE kind = ?";
        sqlx::query(give_back).bind(self.0).execute(&mut **local).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("hello-saga").await?;
    let folder = tempfile::tempdir()?;
    let file = SqliteConnectOptions::new().filename(folder.path().join("travel.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await?;
    handfast.migrate(&pool).await?;
    sqlx::query("CREATE TABLE offer (kind TEXT PRIMARY KEY, units INTEGER)").execute(&pool).await?;
    sqlx::query("INSERT INTO offer VALUES ('room', 5), ('flight', 1)").execute(&pool).await?;
    let travel = handfast.saga_participant("travel", pool.clone());
    travel.action("room", Book("room")).action("flight", Book("flight")).register();

    // The process id makes the keys new: a key names one saga for as long as it is remembered.
    for trip in 1..=2 {
        let saga = Saga::new("trip")
            .step(SagaStep::compensable("room", "travel", "room").input(&()))
            .step(SagaStep::pivot("flight", "travel", "flight").input(&()));
        let started =
            handfast.start_saga(format!("trip-{}-{trip}", std::process::id()), saga).await?;
        let report = started.ended(Duration::from_secs(30)).await?;
        let offers: Vec<(String, i64)> =
            sqlx::query_as("SELECT kind, units FROM offer").fetch_all(&pool).await?;
        println!("trip {trip}: {:?} {}; left: {offers:?}", report.status(), report.cause());
    }
    handfast.close().await;
    Ok(())
}
