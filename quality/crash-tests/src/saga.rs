//! Sagas of five steps as processes: a service that takes part in them, and a caller that starts
//! one and waits. Each action and each compensation leaves a row in the service's SQLite file, in
//! the local transaction of its fence, which is all there is to judge.
//!
//! Both end when their standard input does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use handfast::Handfast;
use handfast::saga::{Saga, SagaAction, SagaCall, SagaStatus, SagaStep, StepError};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::event::{ServiceEvent, emit};
use crate::service::{self, keep_trying, listen};

/// Longer than any saga takes, however slow the machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// In their order: two that can be compensated, a check, the pivot, and a step after it.
pub const STEPS: [&str; 5] = ["reserve", "charge", "check", "pay", "ship"];

const RESOURCE: &str = "shop";
const ACTION: &str = "leave";
const EFFECT: &str = "CREATE TABLE effect (saga TEXT NOT NULL, step TEXT NOT NULL)";

/// The way a saga ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SagaEnding {
    /// Every step is done.
    Forward,
    /// The pivot refuses, and everything is compensated.
    Back,
    /// As forward, where charge and check are a child.
    ForwardWithChild,
    /// As back: a child that was done is compensated.
    BackWithChild,
}

impl SagaEnding {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Forward, Self::Back, Self::ForwardWithChild, Self::BackWithChild];

    /// Returns the status of the saga at its end.
    #[must_use]
    pub fn status(self) -> SagaStatus {
        match self {
            Self::Forward | Self::ForwardWithChild => SagaStatus::Completed,
            Self::Back | Self::BackWithChild => SagaStatus::Compensated,
        }
    }

    /// Returns the traces that it leaves, in this order and each once: the step's name for an
    /// action, with a minus before it for a compensation.
    #[must_use]
    pub fn effects(self) -> &'static [&'static str] {
        match self {
            Self::Forward => &STEPS,
            Self::Back => &["reserve", "charge", "check", "-charge", "-reserve"],
            Self::ForwardWithChild => {
                &["reserve", "billing/charge", "billing/check", "pay", "ship"]
            }
            Self::BackWithChild => {
                &["reserve", "billing/charge", "billing/check", "-billing/charge", "-reserve"]
            }
        }
    }

    /// Returns the crash points of a service in this saga, and the number of passes of each. See
    /// `rm-client/src/at/crash_point.rs`.
    #[must_use]
    pub fn service_points(self) -> &'static [(&'static str, u32)] {
        match self {
            Self::Forward | Self::ForwardWithChild => {
                &[("before-step", 5), ("in-step-before-commit", 5), ("after-step-commit", 5)]
            }
            // The pivot's action does not commit, and is answered all the same.
            Self::Back | Self::BackWithChild => &[
                ("before-step", 4),
                ("in-step-before-commit", 3),
                ("after-step-commit", 4),
                ("in-compensation-before-commit", 2),
                ("after-compensation-commit", 2),
            ],
        }
    }

    /// Returns the saga. Its steps are retried soon, so that a test has many deaths in a minute.
    pub fn saga(self) -> Saga {
        let (order, refuses) = (Saga::new("place-order"), self.status() == SagaStatus::Compensated);
        let [reserve, charge, check, pay, ship] = STEPS;
        let steps = [
            SagaStep::compensable(reserve, RESOURCE, ACTION).input(&false),
            SagaStep::compensable(charge, RESOURCE, ACTION).input(&false),
            SagaStep::harmless(check, RESOURCE, ACTION).input(&false),
            SagaStep::pivot(pay, RESOURCE, ACTION).input(&refuses),
            SagaStep::retriable(ship, RESOURCE, ACTION).input(&false),
        ];
        let (soon, later) = (Duration::from_millis(1), Duration::from_millis(20));
        let steps = steps.map(|step| step.pauses(soon, 2, later));
        match self {
            Self::Forward | Self::Back => steps.into_iter().fold(order, Saga::step),
            Self::ForwardWithChild | Self::BackWithChild => {
                let [reserve, charge, check, pay, ship] = steps;
                let billing = Saga::new("invoice").step(charge).step(check);
                let steps = [reserve, SagaStep::child("billing", billing), pay, ship];
                steps.into_iter().fold(order, Saga::step)
            }
        }
    }
}

/// The role of a process, and the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// The coordinators' endpoints.
    pub endpoints: Vec<String>,
    /// The role.
    pub role: Role,
}

/// The two parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Takes part, with its work in this file.
    Service(PathBuf),
    /// Starts the saga of a key and waits for its end.
    Caller(String, SagaEnding),
}

/// Plays the part until standard input ends.
///
/// # Errors
/// Returns an error if standard output is closed.
pub async fn play(script: Script) -> Result<()> {
    listen(Arc::default());
    let handfast = keep_trying(async || connect(&script.endpoints).await).await;
    match script.role {
        Role::Service(database) => {
            let pool = open(&database).await?;
            handfast.saga_participant(RESOURCE, pool).action(ACTION, RecordStep).register();
            emit(&ServiceEvent::Ready)?;
        }
        Role::Caller(key, course) => {
            let saga = handfast.start_saga(key, course.saga()).await?;
            emit(&ServiceEvent::Ready)?;
            saga.ended(PATIENCE).await?;
            emit(&ServiceEvent::Finished)?;
        }
    }
    std::future::pending().await
}

/// Returns a client that resends its requests for as long as a test may take.
///
/// # Errors
/// When there is no coordinator.
pub async fn connect(endpoints: &[String]) -> Result<Handfast, handfast::Error> {
    let handfast = service::connect(endpoints).application("shop").request_deadline(PATIENCE);
    handfast.back_off(Duration::from_millis(20), Duration::from_millis(500)).await
}

/// Makes the service's database.
///
/// # Errors
/// When the file cannot be written.
pub async fn create(handfast: &Handfast, database: &Path) -> Result<SqlitePool> {
    let pool = open(database).await?;
    handfast.migrate(&pool).await?;
    sqlx::query(EFFECT).execute(&pool).await?;
    Ok(pool)
}

/// Runs one saga after the other until it is stopped, in each of the ways in turn; returns how
/// many.
///
/// # Errors
/// When a saga does not end in its way with exactly its traces.
pub async fn run_sagas(
    handfast: Handfast,
    pool: SqlitePool,
    stop: Arc<AtomicBool>,
) -> Result<usize> {
    let mut sagas = 0;
    while !stop.load(Ordering::Relaxed) {
        let ending = SagaEnding::ALL[sagas % SagaEnding::ALL.len()];
        let key = format!("order-{sagas}");
        let saga = handfast.start_saga(&*key, ending.saga()).await?;
        let report = saga.ended(PATIENCE).await?;
        let found = effects(&pool, &key).await?;
        let as_expected = report.status() == ending.status() && found == ending.effects();
        ensure!(as_expected, "saga {key}, {ending:?}: {:?} with {found:?}", report.status());
        sagas += 1;
    }
    Ok(sagas)
}

/// Returns the traces of the saga with a key.
///
/// # Errors
/// When the file cannot be read.
pub async fn effects(pool: &SqlitePool, key: &str) -> Result<Vec<String>> {
    let effects = "SELECT step FROM effect WHERE saga = ? ORDER BY rowid";
    Ok(sqlx::query_scalar(effects).bind(key).fetch_all(pool).await?)
}

async fn open(database: &Path) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new().filename(database).create_if_missing(true);
    let options = options.busy_timeout(PATIENCE);
    Ok(SqlitePoolOptions::new().connect_with(options).await?)
}

/// Records the step's name.
struct RecordStep;

impl SagaAction<Sqlite> for RecordStep {
    /// Whether the action refuses.
    type Input = bool;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        &refuses: &bool,
        call: &SagaCall,
    ) -> Result<(), StepError> {
        leave(local, call, "").await?;
        if refuses { Err(StepError::refuse("on purpose")) } else { Ok(()) }
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        _refuses: &bool,
        call: &SagaCall,
    ) -> Result<(), StepError> {
        leave(local, call, "-").await
    }
}

async fn leave(
    local: &mut Transaction<'_, Sqlite>,
    call: &SagaCall,
    sign: &str,
) -> Result<(), StepError> {
    let effect = sqlx::query("INSERT INTO effect (saga, step) VALUES (?, ? || ?)");
    effect.bind(call.key()).bind(sign).bind(call.step()).execute(&mut **local).await?;
    Ok(())
}
