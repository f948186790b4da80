//! The program as a person runs it, on each database and broker: the outcome, the proof and the
//! crash.

use anyhow::{Result, ensure};

use handfast_example_shop::trial::{Trial, redis};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment-outbox"));

handfast_example_shop::trials!(sqlite, postgres, mysql);

#[test]
fn sqlite_by_redis_at_once() -> Result<()> {
    let report = PROGRAM.run("sqlite", &["--concurrency", "16", "--broker", &redis()?])?;
    ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
    Ok(())
}

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others("sqlite")
}

#[test]
fn an_unknown_broker_is_told() {
    let error = PROGRAM.run("sqlite", &["--broker", "pigeon://loft"]).unwrap_err().to_string();
    assert!(error.contains("in-process or redis://"), "{error}");
}
