//! Death at each named point, while money moves and lists grow.

use handfast_crash_tests::fault::{COORDINATOR_POINTS, Fault, SERVICE_POINTS};
use handfast_crash_tests::stage::Stage;

use crate::stages::{FILES, MIXED, assert_sound, settings};

/// Which pass of a point: not the first, which some points meet before there is any work.
const PASS: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_dies_at_any_point_loses_nothing() {
    let mut stage = Stage::start(settings(FILES, 11)).await.unwrap();
    for point in COORDINATOR_POINTS {
        // It leads once in its life.
        let pass = if point == "after-lead" { 1 } else { PASS };
        stage.suffer(&Fault::CrashCoordinator { point, pass }).await.unwrap();
    }
    assert_all_reached(&stage, &COORDINATOR_POINTS);
    assert_sound(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_dies_at_any_point_leaves_nothing() {
    let mut stage = Stage::start(settings(MIXED, 12)).await.unwrap();
    for (service, point) in SERVICE_POINTS.into_iter().enumerate() {
        let service = service % stage.service_count();
        // Two operations must meet for a repetition.
        let pass = if point == "before-replay" { 1 } else { PASS };
        stage.suffer(&Fault::CrashService { service, point, pass }).await.unwrap();
    }
    assert_all_reached(&stage, &SERVICE_POINTS);
    assert_sound(stage).await;
}

fn assert_all_reached(stage: &Stage, points: &[&str]) {
    let reached = |point: &str| stage.faults.keys().any(|fault| fault.ends_with(point));
    let missed: Vec<&&str> = points.iter().filter(|point| !reached(point)).collect();
    assert!(missed.is_empty(), "nobody came to {missed:?}");
}
