//! The program as a person runs it, on each database: the outcome, the proof and the crash.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use handfast_server::config::{AdminConfig, Config, GrpcConfig};
use handfast_server::serve::{Ended, Server};

/// What the example's own orders come to, one after the other.
const OWN_OUTCOME: [(&str, u64); 8] = [
    ("orders", 120),
    ("committed", 38),
    ("out_of_stock", 49),
    ("no_funds", 33),
    ("failed", 0),
    ("undo_rows_left", 0),
    ("locks_left", 0),
    ("unfinished", 0),
];

const KEYS: [&str; 15] = [
    "orders",
    "committed",
    "out_of_stock",
    "no_funds",
    "failed",
    "revenue_cents",
    "stock_left",
    "undo_rows_left",
    "locks_left",
    "unfinished",
    "coordinator_restarts",
    "seconds",
    "orders_per_second",
    "p50_ms",
    "p99_ms",
];

/// Runs the program, which exits with success only if the proof holds, and reads what it says.
fn run(database: &str, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_order-payment"));
    command.args(["--json", "--database", database]).args(arguments);
    let output = command.output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    serde_json::from_str(out.trim()).with_context(|| out.into_owned())
}

fn run_one_by_one(database: &str) -> Result<()> {
    let report = run(database, &["--concurrency", "1"])?;
    for (key, expected) in OWN_OUTCOME {
        ensure!(report[key].as_u64() == Some(expected), "{key}: {report}");
    }
    Ok(())
}

fn run_at_once(database: &str) -> Result<()> {
    let report = run(database, &["--concurrency", "16"])?;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    Ok(())
}

fn run_with_crashes(database: &str) -> Result<()> {
    let report = run(database, &["--concurrency", "16", "--crash-coordinator", "2"])?;
    ensure!(report["failed"] == 0 && report["coordinator_restarts"] == 2, "{report}");
    Ok(())
}

fn server_url(variable: &str) -> Result<String> {
    env::var(variable).with_context(|| format!("{variable} is not set: run `cargo xtask test`"))
}

#[test]
fn sqlite_one_by_one() -> Result<()> {
    run_one_by_one("sqlite")
}

#[test]
fn sqlite_at_once() -> Result<()> {
    run_at_once("sqlite")
}

#[test]
fn sqlite_with_crashes() -> Result<()> {
    run_with_crashes("sqlite")
}

#[test]
fn postgres_one_by_one() -> Result<()> {
    run_one_by_one(&server_url("HANDFAST_TEST_POSTGRES")?)
}

#[test]
fn postgres_at_once() -> Result<()> {
    run_at_once(&server_url("HANDFAST_TEST_POSTGRES")?)
}

#[test]
fn postgres_with_crashes() -> Result<()> {
    run_with_crashes(&server_url("HANDFAST_TEST_POSTGRES")?)
}

#[test]
fn mysql_one_by_one() -> Result<()> {
    run_one_by_one(&server_url("HANDFAST_TEST_MYSQL")?)
}

#[test]
fn mysql_at_once() -> Result<()> {
    run_at_once(&server_url("HANDFAST_TEST_MYSQL")?)
}

#[test]
fn mysql_with_crashes() -> Result<()> {
    run_with_crashes(&server_url("HANDFAST_TEST_MYSQL")?)
}

/// A coordinator that runs already, as `handfast serve` starts it: the run leaves it clean.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_on_a_coordinator_of_somebody_else() -> Result<()> {
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
        run("sqlite", &[&elsewhere[..], &["--concurrency", "16"]].concat())
    });
    let report = ran.await??;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    ensure!(report["locks_left"] == 0 && report["unfinished"] == 0, "{report}");
    ensure!(server.shutdown().await? == Ended::Drained, "its clients have let go");
    Ok(())
}

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    let report = run("sqlite", &[])?;
    let mut keys: Vec<&str> =
        report.as_object().context("an object")?.keys().map(String::as_str).collect();
    let mut expected = KEYS.to_vec();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    Ok(())
}

#[test]
fn a_wrong_database_is_told_and_nothing_is_left_running() {
    let error = run("oracle://somewhere", &[]).unwrap_err().to_string();
    assert!(error.contains("sqlite, postgres://"), "{error}");
}
