//! A view of the last 15 minutes, and the task that keeps it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::AdminState;
use super::caller::Viewer;
use super::model::{Recent, RecentStep, Timing};
use crate::recent::{Durations, STEP, StepCounts, Timed};
use crate::time_format::rfc3339;

/// How long the engine may take to say its sizes; a step without them is kept without them.
const COUNTS_WITHIN: Duration = Duration::from_secs(1);

/// Shows rates, durations and sizes of the last 15 minutes.
#[utoipa::path(
    get,
    path = "/api/v1/recent",
    tag = "overview",
    responses((status = OK, body = Recent)),
    security(("token" = []))
)]
pub(super) async fn show(_viewer: Viewer, State(state): State<AdminState>) -> Json<Recent> {
    let step_ms = u64::try_from(STEP.as_millis()).unwrap_or(u64::MAX);
    let steps = state.recent().steps().iter().map(shown).collect();
    Json(Recent { step_ms, steps })
}

/// Ends a step of the ring at a steady pace, for as long as the server runs.
pub(crate) async fn keep(state: AdminState) {
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, and ends no step.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let counts = state.engine().view(|coordinator| coordinator.counts());
        let counts = timeout(COUNTS_WITHIN, counts).await.ok().and_then(Result::ok);
        state.recent().end_step(state.now(), counts);
    }
}

fn shown(step: &StepCounts) -> RecentStep {
    let timing = |of| step.durations(of).map(timing);
    RecentStep {
        at: rfc3339(step.at),
        committed: step.committed,
        rolled_back: step.rolled_back,
        active: step.counts.map(|counts| counts.active),
        waiting: step.counts.map(|counts| counts.waiters),
        pending: step.counts.map(|counts| counts.pending_branches),
        needs_operator: step.counts.map(|counts| counts.needs_operator),
        begin: timing(Timed::Begin),
        register: timing(Timed::Register),
        commit: timing(Timed::Commit),
        phase_two: timing(Timed::PhaseTwo),
        lock_wait: timing(Timed::LockWait),
        store_commit: timing(Timed::StoreCommit),
    }
}

fn timing(Durations { count, p50_us, p99_us }: Durations) -> Timing {
    Timing { count, p50_us, p99_us }
}
