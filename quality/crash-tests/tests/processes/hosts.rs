//! Services on one host, the coordinator on another, and a network between them that is cut.

use std::sync::Arc;
use std::time::Duration;

use handfast_crash_tests::fault::{Fault, LONGER_THAN_EVERY_TIMEOUT};
use handfast_crash_tests::namespace::Host;
use handfast_crash_tests::stage::{RunningSystem, Settings};

use crate::stages::{FILES, assert_sound, not_run, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_loses_all_packets_does_no_harm() {
    let host = match Host::make().unwrap() {
        Ok(host) => Some(Arc::new(host)),
        Err(why) => return not_run(&format!("no second host in a network namespace: {why}")),
    };
    let mut stage = RunningSystem::start(Settings { host, ..settings(FILES, 51) }).await.unwrap();
    for lasting in [Duration::from_millis(800), LONGER_THAN_EVERY_TIMEOUT] {
        stage.suffer(&Fault::CutHost(lasting)).await.unwrap();
    }
    stage.suffer(&Fault::KillCoordinator).await.unwrap();
    assert_sound(stage).await;
}
