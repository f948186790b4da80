//! The program as a person runs it, on each database: the outcome, the proof and the crash.

use anyhow::Result;

use handfast_example_shop::trial::{Trial, postgres};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment-xa"));

handfast_example_shop::trials!(postgres, mysql);

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others(&postgres()?)
}

#[test]
fn sqlite_is_refused_with_advice() {
    let error = PROGRAM.run("sqlite", &[]).unwrap_err().to_string();
    assert!(error.contains("SQLite has no two-phase commit"), "{error}");
    assert!(error.contains("--database postgres://"), "{error}");
}
