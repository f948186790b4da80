//! A coordinator that may open few files: connections never take the descriptors of the store.

use std::net::SocketAddr;

use handfast_server::descriptors::raise_limit;
use tokio::net::TcpStream;

use crate::application::Application;
use crate::faults::until_live;
use crate::port::Admin;
use crate::serving::{Coordinator, handfast};

/// More connections than the process may have.
const SILENT: usize = 1_200;
/// Registrations that fill the small journal's two files many times.
const MANY: usize = 400;

fn small_journal(directory: &tempfile::TempDir) -> [String; 4] {
    let data_dir = directory.path().join("data").to_str().unwrap().to_owned();
    ["--data-dir".into(), data_dir, "--set".into(), "journal_segment_bytes=16384".into()]
}

/// Registers branches, each in a global of its own, and returns the globals.
async fn work(application: &mut Application) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0..MANY {
        let xid = application.begin("place-order").await;
        application.register(&xid, 7, &format!("4:{number:04}")).await.unwrap();
        acknowledged.push(xid);
    }
    acknowledged
}

async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    connections
}

async fn expect_all(admin: &Admin, acknowledged: &[String]) {
    for xid in acknowledged {
        assert_eq!(admin.show(xid).await.branches.len(), 1, "{xid}");
    }
}

// Regression: the process ended. The next carry-over of the journal found no file descriptor, which
// counted as a failed disk, so that any client that reached a port could end the process.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_leave_descriptors_for_the_store() {
    raise_limit().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let arguments = small_journal(&directory);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let coordinator = Coordinator::start_limited("ulimit -n 1024", &arguments);
    let mut application = Application::connect(coordinator.grpc).await;
    let connections =
        [silent(coordinator.grpc, SILENT - 100).await, silent(coordinator.admin, 100).await];
    let acknowledged = work(&mut application).await;
    drop(connections);
    until_live(coordinator.admin).await;
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    expect_all(&admin, &acknowledged).await;
    drop((admin, application));
    let told = coordinator.startup_event("file descriptors");
    let places = told["grpc"].as_u64().unwrap() + told["admin"].as_u64().unwrap();
    assert_eq!((&told["limit"], &told["reserve"]), (&1_024.into(), &192.into()));
    assert!(places <= 1_024 - 192, "{told}");
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

// Regression: the process ended, if there was no descriptor left at a carry-over.
#[tokio::test(flavor = "multi_thread")]
async fn a_carry_over_takes_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = small_journal(&directory);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let coordinator = Coordinator::start(&arguments);
    let mut application = Application::connect(coordinator.grpc).await;
    coordinator.set_descriptors_max(0);
    let acknowledged = work(&mut application).await;
    coordinator.set_descriptors_max(1_024);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    expect_all(&admin, &acknowledged).await;
    drop(admin);
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let limit = "ulimit -Sn 256; ulimit -Hn 2000";
    let coordinator = Coordinator::start_limited(limit, &["--store", "memory"]);
    assert_eq!(coordinator.startup_event("file descriptors")["limit"], 2_000);
}

#[test]
fn a_limit_without_room_for_connections_fails_the_start() {
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 150; exec \"$@\"", "sh"]).arg(handfast(&[]).get_program());
    let output = limited.args(["serve", "--store", "memory"]).env_clear().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("error[HF-CFG-DESCRIPTORS]"), "{said}");
}
