//! The program as a person runs it, on each database: the outcome, the proof and the crash.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};

use handfast_example_shop::trial::{Trial, mysql, postgres};
use handfast_server::config::{AdminConfig, Config, GrpcConfig};
use handfast_server::serve::{Server, ShutdownOutcome};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment"));

handfast_example_shop::trials!(sqlite, postgres, mysql);

/// Runs on a coordinator that is running already, as `handfast serve` starts it, and leaves it
/// clean.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_on_a_coordinator_that_runs_already() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(Config {
        data_dir: folder.path().to_owned(),
        grpc: GrpcConfig { listen: any_port, ..GrpcConfig::default() },
        admin: AdminConfig { listen: any_port, ..AdminConfig::default() },
        ..Config::default()
    });
    let server = server.await?;
    let coordinator = format!("http://{}", server.grpc_address);
    let admin = format!("http://{}", server.admin_address);
    let ran = tokio::task::spawn_blocking(move || {
        let elsewhere = ["--coordinator", &coordinator, "--admin", &admin];
        PROGRAM.run("sqlite", &[&elsewhere[..], &["--concurrency", "16"]].concat())
    });
    let report = ran.await??;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    ensure!(report["locks_left"] == 0 && report["unfinished"] == 0, "{report}");
    ensure!(server.shutdown().await? == ShutdownOutcome::Drained, "its clients have let go");
    Ok(())
}

#[test]
fn three_coordinators_on_postgres() -> Result<()> {
    PROGRAM.with_three_coordinators(&postgres()?)
}

#[test]
fn three_coordinators_on_mysql() -> Result<()> {
    PROGRAM.with_three_coordinators(&mysql()?)
}

#[test]
fn several_coordinators_need_a_database_server() {
    let error = PROGRAM.run("sqlite", &["--coordinators", "3"]).unwrap_err().to_string();
    assert!(error.contains("--database postgres://… or mysql://…"), "{error}");
}

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others("sqlite")
}

#[test]
fn a_wrong_database_is_told_and_nothing_is_left_running() {
    let error = PROGRAM.run("oracle://somewhere", &[]).unwrap_err().to_string();
    assert!(error.contains("sqlite, postgres://"), "{error}");
}
