//! Faults at random moments.

use std::time::Duration;

use handfast_crash_tests::cluster::run_cluster;
use handfast_crash_tests::run::run;
use handfast_crash_tests::service::TimeLimits;
use handfast_crash_tests::shared_store::SharedKind;
use handfast_crash_tests::stage::{ClusterSettings, Settings};

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

/// Three coordinators that are killed, stopped, frozen and cut off from their store, which is
/// killed and frozen as well.
async fn assert_sound_cluster(store: SharedKind, seed: u64) {
    let (coordinators, spares) = (3, 2);
    let cluster = ClusterSettings { coordinators, spares, store, network: None, earlier: None };
    let cluster = Some(cluster);
    let settings = Settings { limits: TimeLimits::LONG, cluster, ..settings(SERVERS, seed) };
    let report = Box::pin(run_cluster(settings, SHORT)).await.unwrap();
    report.require_sound().unwrap();
    assert!(report.grants > 0 && report.sagas > 0, "locks were held, sagas ended: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_on_postgres_under_faults_at_random() {
    assert_sound_cluster(SharedKind::Postgres, 33).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_on_mariadb_under_faults_at_random() {
    assert_sound_cluster(SharedKind::MariaDb, 34).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_on_etcd_under_faults_at_random() {
    assert_sound_cluster(SharedKind::Etcd, 35).await;
}
