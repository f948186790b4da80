//! Faults at random moments.

use std::time::Duration;

use handfast_crash_tests::run::run;

use crate::stages::{FILES, SERVERS, settings};

/// Shortened; `cargo xtask crash` has the minutes.
const SHORT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_under_faults_at_random() {
    let report = Box::pin(run(settings(SERVERS, 31), SHORT)).await.unwrap();
    report.require_sound().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_under_faults_at_random() {
    let report = Box::pin(run(settings(FILES, 32), SHORT)).await.unwrap();
    report.require_sound().unwrap();
}
