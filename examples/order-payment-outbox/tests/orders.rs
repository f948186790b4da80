//! The program as a person runs it, on each database and broker: the outcome, the proof and the
//! crash.

use anyhow::{Result, ensure};

use handfast_example_shop::trial::{Trial, jet_stream, mysql, postgres, rabbit_mq, redis};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment-outbox"));

handfast_example_shop::trials!(sqlite, postgres, mysql);

#[test]
fn sqlite_by_redis_at_once() -> Result<()> {
    let report = PROGRAM.run("sqlite", &["--concurrency", "16", "--broker", &redis()?])?;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    Ok(())
}

/// Runs orders over a broker, with relays and consumers that are killed.
fn with_kills(database: &str, broker: &str) -> Result<()> {
    let arguments = ["--concurrency", "8", "--broker", broker, "--kill-workers", "12"];
    let report = PROGRAM.run(database, &arguments)?;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    Ok(())
}

#[test]
fn postgres_by_redis_with_kills() -> Result<()> {
    with_kills(&postgres()?, &redis()?)
}

#[test]
fn mysql_by_rabbit_mq_with_kills() -> Result<()> {
    with_kills(&mysql()?, &rabbit_mq()?)
}

#[test]
fn sqlite_by_jet_stream_with_kills() -> Result<()> {
    with_kills("sqlite", &jet_stream()?)
}

#[test]
fn processes_need_a_broker_that_they_reach() {
    let error = PROGRAM.run("sqlite", &["--kill-workers", "1"]).unwrap_err().to_string();
    assert!(error.contains("other processes reach"), "{error}");
}

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others("sqlite")
}

#[test]
fn an_unknown_broker_is_told() {
    let error = PROGRAM.run("sqlite", &["--broker", "pigeon://loft"]).unwrap_err().to_string();
    assert!(error.contains("in-process, redis://"), "{error}");
}
