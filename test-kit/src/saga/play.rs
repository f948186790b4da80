//! One play.

use std::any::Any;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;
use handfast::saga::{Saga, SagaReport, SagaStatus, StartedSaga};
use serde_json::Value;

use super::plan::PlannedPlay;
use super::{SagaEnd, cannot_begin};
use crate::kit::TestKit;
use crate::traffic::StepSeen;

/// How long a play may take, in real time.
const WITHIN: Duration = Duration::from_secs(20);
/// How long a saga without a call under way is left alone before its pauses are passed over.
const IDLE: Duration = Duration::from_millis(30);
/// How much of the saga's time is passed over at once, and in all: longer than the longest pause
/// between attempts, many times.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES_MAX: u32 = 300;
/// The key of the saga. Each play has a coordinator of its own.
const KEY: &str = "play";

/// The findings of a play.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) steps: Vec<StepSeen>,
    /// The batches that the coordinator stored for the saga.
    pub(super) writes: usize,
    /// Whether a fault of the play did not happen.
    pub(super) is_vacuous: bool,
}

/// Plays a saga once.
///
/// # Errors
/// Says what was there instead of the end that the play has to have.
pub(super) async fn play<W, E: Display, F: Display>(
    saga: &dyn Fn() -> Saga,
    signals: &[(String, Value)],
    planned: &PlannedPlay,
    setup: &impl AsyncFn(&TestKit) -> Result<W, E>,
    check: &impl AsyncFn(&W, SagaEnd) -> Result<(), F>,
) -> Result<Played, String> {
    let kit = TestKit::start().await.map_err(|error| cannot_begin(&error))?;
    let world = setup(&kit).await.map_err(|error| format!("setup failed: {error}"))?;
    let before = kit.coordinator.gate().writes();
    let faults: Vec<_> = planned.faults.iter().map(|fault| kit.inject(fault.fault())).collect();
    let is_forward = planned.end() == SagaEnd::Completed;
    let report = run(&kit, saga(), signals, is_forward).await?;
    let writes = kit.coordinator.gate().writes() - before;
    let end = ended_as(&report, planned.end())?;
    // What is late must do no harm either: the check comes when no call is under way.
    idle(&kit).await;
    let is_vacuous = faults.iter().any(|fault| fault.struck() == 0);
    match AssertUnwindSafe(check(&world, end)).catch_unwind().await {
        Ok(Ok(())) => Ok(Played { steps: kit.traffic.steps(), writes, is_vacuous }),
        Ok(Err(error)) => Err(format!("the saga is {}, but: {error}", text(end))),
        Err(panic) => Err(format!("the saga is {}, but: {}", text(end), message(&*panic))),
    }
}

async fn run(
    kit: &TestKit,
    saga: Saga,
    signals: &[(String, Value)],
    is_forward: bool,
) -> Result<SagaReport, String> {
    let started = kit.handfast().start_saga(KEY, saga).await;
    let started = started.map_err(|error| format!("the saga is not started: {error}"))?;
    for (step, payload) in signals {
        match started.signal(step, payload).await {
            Ok(_) => {}
            // A saga that has turned back waits for no signal.
            Err(handfast::Error::Rejected(_)) if !is_forward => {}
            Err(error) => return Err(format!("signal {step}: {error}")),
        }
    }
    let until = Instant::now() + WITHIN;
    let mut pauses = 0;
    loop {
        if let Some(report) = ended_soon(&started).await? {
            return Ok(report);
        }
        if Instant::now() >= until || pauses >= PAUSES_MAX {
            let report = started.report().await.map_err(|error| error.to_string())?;
            return Err(format!("the saga does not end:{}", steps(&report)));
        }
        if kit.is_idle() && kit.can_advance() {
            kit.advance(PAUSE).await;
            pauses += 1;
        }
    }
}

/// Returns the saga's end, unless it takes long.
async fn ended_soon(started: &StartedSaga) -> Result<Option<SagaReport>, String> {
    match started.ended(IDLE).await {
        Ok(report) => Ok(Some(report)),
        Err(handfast::Error::Unanswered { .. } | handfast::Error::Unreachable { .. }) => Ok(None),
        Err(error) => Err(format!("the saga cannot be asked for: {error}")),
    }
}

async fn idle(kit: &TestKit) {
    let until = Instant::now() + WITHIN;
    while !kit.is_idle() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn ended_as(report: &SagaReport, end: SagaEnd) -> Result<SagaEnd, String> {
    let is_as_expected = matches!(
        (report.status(), end),
        (SagaStatus::Completed, SagaEnd::Completed)
            | (SagaStatus::Compensated, SagaEnd::Compensated)
    );
    if is_as_expected {
        return Ok(end);
    }
    Err(format!("the saga is not {}: {:?}{}", text(end), report.status(), steps(report)))
}

fn steps(report: &SagaReport) -> String {
    let cause = report.cause();
    let mut text = if cause.is_empty() { String::new() } else { format!("\n  because {cause}") };
    for step in report.steps() {
        text.push_str(&format!("\n  step {}: {:?}", step.name(), step.state()));
        if !step.error().is_empty() {
            text.push_str(&format!(" ({})", step.error()));
        }
    }
    text
}

fn text(end: SagaEnd) -> &'static str {
    match end {
        SagaEnd::Completed => "completed",
        SagaEnd::Compensated => "compensated",
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
