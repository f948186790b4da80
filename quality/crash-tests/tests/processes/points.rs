//! Death at each named point, while money moves and lists grow.

use std::time::Duration;

use handfast_crash_tests::fault::{COORDINATOR_POINTS, Fault, SERVICE_POINTS};
use handfast_crash_tests::service::TimeLimits;
use handfast_crash_tests::stage::{RunningSystem, Settings};

use crate::stages::{FILES, MIXED, assert_sound, settings};

/// The pass of a point at which the process dies: not the first, which some points meet before
/// there is any work.
const PASS: u32 = 3;
/// How often a point is waited for that no process comes to.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_dies_at_any_point_loses_nothing() {
    // So long that a request which is not sent again holds its operation up for good.
    let limits = TimeLimits { answer: Duration::from_secs(300), ..TimeLimits::SHORT };
    let settings = Settings { limits, ..settings(FILES, 11) };
    let mut stage = RunningSystem::start(settings).await.unwrap();
    for point in COORDINATOR_POINTS {
        // It leads once in its life.
        let pass = if point == "after-lead" { 1 } else { PASS };
        suffer_until_reached(&mut stage, &Fault::CrashCoordinator { point, pass }).await;
    }
    // Between decision and disk, where no client may have been answered: often enough to meet
    // commits.
    for pass in 4..12 {
        stage.suffer(&Fault::CrashCoordinator { point: "before-write", pass }).await.unwrap();
    }
    assert_all_reached(&stage, &COORDINATOR_POINTS);
    let report = assert_sound(stage).await;
    // Requests that had no answer were sent again: a restart is a delay and no error.
    assert_eq!(report.verdict.reasons.get("HF-TM-UNANSWERED"), None, "{report}");
    assert_eq!(report.verdict.outcomes.get("unknown"), None, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_dies_at_any_point_leaves_nothing() {
    let mut stage = RunningSystem::start(settings(MIXED, 12)).await.unwrap();
    for (service, point) in SERVICE_POINTS.into_iter().enumerate() {
        let service = service % stage.service_count();
        // Two operations must meet for a repetition.
        let pass = if point == "before-replay" { 1 } else { PASS };
        suffer_until_reached(&mut stage, &Fault::CrashService { service, point, pass }).await;
    }
    assert_all_reached(&stage, &SERVICE_POINTS);
    assert_sound(stage).await;
}

/// Suffers a fault until its point is reached: on a busy machine there may be too little work in
/// the time that a fault waits for it.
async fn suffer_until_reached(stage: &mut RunningSystem, fault: &Fault) {
    for _ in 0..TRIES {
        stage.suffer(fault).await.unwrap();
        if stage.faults.contains_key(&fault.to_string()) {
            return;
        }
    }
}

fn assert_all_reached(stage: &RunningSystem, points: &[&str]) {
    let reached = |point: &str| stage.faults.keys().any(|fault| fault.ends_with(point));
    let missed: Vec<&&str> = points.iter().filter(|point| !reached(point)).collect();
    assert!(missed.is_empty(), "no process came to {missed:?}");
}
