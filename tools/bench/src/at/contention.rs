//! Contention: globals of several statements over few rows, in the form that cannot be repeated.
//!
//! Each global has two branches on one database, each of two updates of random rows, one by its key
//! and one by a condition, whose gaps InnoDB locks too. Half of the globals are rolled back on
//! purpose. What fails is counted by its reason and not repeated, as an application would that
//! leaves that to its caller.

use anyhow::Result;
use handfast::{AtError, TransactionError};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::database::{BenchDatabase, Statement};
use super::setup::AtSetup;
use crate::measure::Measure;
use crate::report::Row;
use crate::workers::{OperationEnd, work};

/// The rows that the globals change.
const ROWS: i64 = 400;
const STATEMENTS: [Statement; 2] = [Statement::Point, Statement::General];
const BRANCHES: usize = 2;

/// The end of a closure that fails.
#[derive(Debug)]
enum Failure {
    Purpose,
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// Measures it with each number of clients.
pub(crate) async fn measure<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    clients: &[usize],
    measure: &Measure,
) -> Result<Vec<Row>> {
    let mut measured = Vec::new();
    for &clients in clients {
        let names = [format!("{}, {ROWS} rows, {clients} clients: begin()", DB::PRODUCT)];
        let times = (measure.warm_up(), measure.length());
        let servers = setup.servers()?;
        let run = async |_| {
            work(clients, times, &servers, async |_, random| global(setup, random).await).await
        };
        measured.extend(measure.rows(&names, run).await?);
    }
    Ok(measured)
}

async fn global<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    random: &mut SmallRng,
) -> Result<OperationEnd> {
    let is_kept = random.random_bool(0.5);
    let items: Vec<i64> =
        (0..BRANCHES * STATEMENTS.len()).map(|_| random.random_range(0..ROWS)).collect();
    let ran = setup.handfast.transaction("contention").run(async |_| {
        for items in items.chunks(STATEMENTS.len()) {
            let mut local = setup.first_resource.begin().await?;
            for (statement, item) in STATEMENTS.into_iter().zip(items) {
                DB::update_branch(&mut local, statement, *item).await?;
            }
            local.commit().await?;
        }
        if is_kept { Ok(()) } else { Err(Failure::Purpose) }
    });
    Ok(match ran.await {
        Ok(()) => OperationEnd::Well,
        Err(error) => OperationEnd::Expected(reason(&error)),
    })
}

/// Returns what a global that did not commit is counted as.
fn reason(error: &TransactionError<Failure>) -> &'static str {
    let failure = match error.application() {
        Some(Failure::Purpose) => return "rolled back on purpose",
        Some(Failure::Database(failure)) => failure,
        None => return "rolled back by the coordinator",
    };
    match AtError::of(failure).map(AtError::code) {
        Some("HF-TC-ROW-LOCKED") => "refused: row locked",
        Some("HF-TC-DEADLOCK") => "refused: deadlock",
        Some(_) => "refused otherwise",
        None => "ended by the database",
    }
}
