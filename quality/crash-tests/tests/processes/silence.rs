//! Processes that are stopped, and wires that carry nothing, for longer than every timeout.

use std::time::Duration;

use handfast_crash_tests::fault::{Fault, LONGER_THAN_EVERY_TIMEOUT, WireEnd};
use handfast_crash_tests::stage::{RunningSystem, Settings};
use handfast_crash_tests::wire::WireState;
use handfast_crash_tests::work::{Product, Workload};

use crate::stages::{FILES, SERVERS, assert_sound, settings};

/// A stopped service goes on with its work long after its globals are decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_stopped_past_every_timeout_does_no_harm() {
    let mut stage = RunningSystem::start(settings(FILES, 21)).await.unwrap();
    stage.suffer(&Fault::PauseCoordinator(LONGER_THAN_EVERY_TIMEOUT)).await.unwrap();
    stage.suffer(&Fault::PauseService(0, LONGER_THAN_EVERY_TIMEOUT)).await.unwrap();
    assert_sound(stage).await;
}

/// A branch that is registered and not committed when its global is rolled back is undone, or comes
/// too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_stopped_before_its_commit_comes_too_late() {
    // The process that wakes up carries out its own rollback, before its COMMIT or after it. That a
    // rollback by another process leaves a guard row is shown by `at_dirty` of the client.
    // Transfers, since a branch that only reads leaves nothing to find.
    let products = [Product::Postgres, Product::Postgres];
    let settings = Settings { workload: Workload::Bank, ..settings(products, 24) };
    let mut stage = RunningSystem::start(settings).await.unwrap();
    for stop in 0..4 {
        let (service, point) = (stop % stage.service_count(), "after-register");
        // Longer than the global may take, and its rollback.
        let lasting = Duration::from_secs(5);
        stage.suffer(&Fault::StopService { service, point, lasting }).await.unwrap();
    }
    assert_sound(stage).await;
}

/// A database is killed, and stopped with all its children, and a wire to it is cut or loses
/// everything, in either direction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_does_no_harm() {
    let mut stage = RunningSystem::start(settings(SERVERS, 22)).await.unwrap();
    let lasting = Duration::from_secs(3);
    for database in 0..2 {
        stage.suffer(&Fault::KillDatabase(database)).await.unwrap();
        stage.suffer(&Fault::PauseDatabase(database, lasting)).await.unwrap();
        for state in [WireState::Cut, WireState::Silent, WireState::Deaf] {
            let to = WireEnd::Database(database);
            stage.suffer(&Fault::Wire { service: 0, to, state, lasting }).await.unwrap();
        }
    }
    assert_sound(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_is_cut_off_does_no_harm() {
    let mut stage = RunningSystem::start(settings(FILES, 23)).await.unwrap();
    for (service, state) in
        [WireState::Cut, WireState::Silent, WireState::Deaf].into_iter().enumerate()
    {
        let (service, to, lasting) = (service % 2, WireEnd::Coordinator, Duration::from_secs(4));
        stage.suffer(&Fault::Wire { service, to, state, lasting }).await.unwrap();
    }
    assert_sound(stage).await;
}
