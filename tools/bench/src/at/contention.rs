//! Contention: globals of several statements over few rows, in the form that cannot be repeated.
//!
//! Each global has two branches on one database, each of two updates of random rows, one by its key
//! and one by a condition, whose gaps InnoDB locks too. No row comes twice in a global. Half of the
//! globals are rolled back on purpose. What fails is counted by its reason and not repeated, as an
//! application would that leaves that to its caller. Seata's Java client runs the same mix in a
//! process of its own.
//!
//! After each run the rows must add up to what was committed.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use handfast::{AtError, TransactionError};
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep};

use super::database::{BenchDatabase, Fresh, Statement};
use super::seata::{JavaProgram, SeataSetup};
use super::setup::AtSetup;
use crate::java::{JavaClients, JavaResult, JavaRun};
use crate::measure::Measure;
use crate::report::Row;
use crate::sample::Sample;
use crate::usage::Process;
use crate::workers::{OperationEnd, work};

/// The rows that the globals change.
const ROWS: i64 = 400;
// The Java client has the same statements and branches, in `Contention.java`.
const STATEMENTS: [Statement; 2] = [Statement::Point, Statement::General];
const BRANCHES: usize = 2;

/// The time that phase two has after a run.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

const ON_PURPOSE: &str = "rolled back on purpose";
const BY_COORDINATOR: &str = "rolled back by the coordinator";
pub(super) const ROW_LOCKED: &str = "refused: row locked";
const BY_DATABASE: &str = "ended by the database";

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

/// A run and what it committed.
#[derive(Debug)]
struct ContendedRun {
    sample: Sample,
    foreign_cores: f64,
    /// The globals that were committed, also outside of the window.
    commits: u64,
}

/// Returns the program that runs it by Seata's client.
pub(super) fn program() -> JavaProgram {
    JavaProgram { class: "Contention", arguments: vec![ROWS.to_string()] }
}

/// Measures it with each number of clients, by this library and by Seata's client.
pub(crate) async fn measure<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    others: &mut [SeataSetup<DB>],
    clients: &[usize],
    measure: &Measure,
) -> Result<Vec<Row>> {
    let times = (measure.warm_up(), measure.length());
    let mut measured = Vec::new();
    for &clients in clients {
        let name = |client| format!("{}, {ROWS} rows, {clients} clients: {client}", DB::PRODUCT);
        let own = [name("begin()".to_owned())].into_iter();
        let names: Vec<_> = own.chain(others.iter().map(|other| name(other.name()))).collect();
        let run = async |which: usize| {
            let Some(other) = which.checked_sub(1) else {
                let run = async || library(setup, clients, times).await;
                return checked(&setup.first, run).await;
            };
            let servers = others[other].servers()?;
            let SeataSetup { database, java, .. } = &mut others[other];
            checked(database, async || by_java(java, clients, times, &servers).await).await
        };
        measured.extend(measure.rows(&names, run).await?);
    }
    Ok(measured)
}

/// Runs it, and adds an error if the rows do not come to add up to what was committed.
async fn checked<DB: BenchDatabase>(
    database: &Fresh<DB>,
    run: impl AsyncFnOnce() -> Result<ContendedRun>,
) -> Result<(Sample, f64)> {
    let sum = async || Ok::<i64, sqlx::Error>(DB::counts(&database.pool).await?.iter().sum());
    let before = sum().await?;
    let ContendedRun { mut sample, foreign_cores, commits } = run().await?;
    let due = before + i64::try_from(commits)? * i64::try_from(BRANCHES * STATEMENTS.len())?;
    let ended = Instant::now();
    let mut found = sum().await?;
    while found != due && ended.elapsed() < SETTLED_WITHIN {
        sleep(LOOK_EVERY).await;
        found = sum().await?;
    }
    if found != due {
        sample.errors.insert(format!("the rows add up to {found} instead of {due}"), 1);
    }
    Ok((sample, foreign_cores))
}

/// Runs it by Seata's client.
async fn by_java(
    java: &mut JavaClients,
    clients: usize,
    times: (Duration, Duration),
    servers: &[Process],
) -> Result<ContendedRun> {
    let run = JavaRun { operation: "mix", clients, times, servers, expected };
    let JavaResult { sample, foreign_cores, ended } = java.run(&run).await?;
    Ok(ContendedRun { sample, foreign_cores, commits: ended })
}

/// Returns what a global of Seata's client that did not commit is counted as.
fn expected(reason: &str) -> Option<&'static str> {
    match reason {
        "purpose" => Some(ON_PURPOSE),
        "coordinator" => Some(BY_COORDINATOR),
        "row-locked" => Some(ROW_LOCKED),
        "database" => Some(BY_DATABASE),
        _ => None,
    }
}

/// Runs it by this library.
async fn library<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    clients: usize,
    times: (Duration, Duration),
) -> Result<ContendedRun> {
    let (servers, commits) = (setup.servers()?, Cell::new(0));
    let (sample, foreign_cores) = work(clients, times, &servers, async |_, random| {
        let end = global(setup, random).await?;
        if matches!(end, OperationEnd::Well) {
            commits.set(commits.get() + 1);
        }
        Ok(end)
    })
    .await?;
    Ok(ContendedRun { sample, foreign_cores, commits: commits.get() })
}

async fn global<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    random: &mut SmallRng,
) -> Result<OperationEnd> {
    let is_kept = random.random_bool(0.5);
    let items = items(random);
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

/// Returns the rows of a global. They differ, since Seata Server 2.0.0 rolls branches back in the
/// order of their registration, and then cannot restore a row that two of them have changed.
fn items(random: &mut SmallRng) -> Vec<i64> {
    let mut items = Vec::new();
    while items.len() < BRANCHES * STATEMENTS.len() {
        let item = random.random_range(0..ROWS);
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items
}

/// Returns what a global that did not commit is counted as.
fn reason(error: &TransactionError<Failure>) -> &'static str {
    let failure = match error.application() {
        Some(Failure::Purpose) => return ON_PURPOSE,
        Some(Failure::Database(failure)) => failure,
        None => return BY_COORDINATOR,
    };
    match AtError::of(failure).map(AtError::code) {
        Some("HF-TC-ROW-LOCKED") => ROW_LOCKED,
        Some("HF-TC-DEADLOCK") => "refused: deadlock",
        Some(_) => "refused otherwise",
        None => BY_DATABASE,
    }
}
