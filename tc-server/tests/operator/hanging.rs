//! The end of a coordinator whose disk hangs. The hang points are compiled in when the tests of the
//! workspace are built.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::serving::{Coordinator, handfast};

/// Starts a coordinator that hangs in the write of a batch.
#[cfg(feature = "crash-points")]
async fn hanging(data_dir: &Path, limit: &str) -> Coordinator {
    let arguments = ["--data-dir", data_dir.to_str().unwrap(), "--set", limit];
    let coordinator = Coordinator::start_on_hanging_disk(&arguments);
    let mut application = crate::application::Application::connect(coordinator.grpc).await;
    let xid = application.begin("place-order").await;
    tokio::spawn(async move { application.register(&xid, 7, "2:42").await });
    let admin = crate::port::Admin::new(&format!("http://{}", coordinator.admin), None);
    let metrics = async || admin.send(http::Method::GET, "/metrics", None).await.1;
    let is_stuck = async || metrics().await.contains("\nhandfast_answering 0\n");
    handfast_test_services::until("the disk hangs", is_stuck).await;
    coordinator
}

// Regression: the process waited for the disk forever and ignored further signals.
#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_whose_disk_hangs_ends_at_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let coordinator = hanging(directory.path(), "shutdown_limit_ms=200").await;
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(9), "{log}");
    assert!(log.contains("error[HF-CLI-CUT-SHORT]"), "{log}");
}

#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_coordinator_whose_disk_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let mut coordinator = hanging(directory.path(), "shutdown_limit_ms=3600000").await;
    coordinator.signal("-TERM");
    coordinator.read_until("shutting down");
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(9), "{log}");
}

/// Replaces a file by one whose bytes never arrive.
fn put_in_place_of(file: &Path) {
    std::fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
}

// Lost were signals: the process ignored them until it had started.
#[test]
fn a_coordinator_that_hangs_at_its_start_can_be_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", directory.path().to_str().unwrap()];
    let coordinator = Coordinator::start(&arguments);
    coordinator.signal("-TERM");
    assert_eq!(coordinator.wait().0, Some(0));
    let journal = directory.path().join("journal-0");
    put_in_place_of(&journal);
    let mut command = handfast(&["serve", "--grpc-listen", "127.0.0.1:0"]);
    command.args(["--admin-listen", "127.0.0.1:0"]).args(arguments).stderr(Stdio::piped());
    let starting = command.spawn().unwrap();
    // Returns when the coordinator has begun to read; no bytes follow.
    let _unwritten = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
    let stop = Command::new("kill").args(["-TERM", &starting.id().to_string()]).status();
    assert!(stop.unwrap().success());
    let ended = starting.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}
