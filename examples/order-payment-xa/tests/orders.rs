//! The program as a person runs it, on each database: the outcome, the proof and the crash.

use anyhow::Result;

use handfast_example_shop::trial::{Trial, mysql, postgres};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment-xa"));

#[test]
fn postgres_one_by_one() -> Result<()> {
    PROGRAM.one_by_one(&postgres()?)
}

#[test]
fn postgres_at_once() -> Result<()> {
    PROGRAM.at_once(&postgres()?)
}

#[test]
fn postgres_with_crashes() -> Result<()> {
    PROGRAM.with_crashes(&postgres()?)
}

#[test]
fn mysql_one_by_one() -> Result<()> {
    PROGRAM.one_by_one(&mysql()?)
}

#[test]
fn mysql_at_once() -> Result<()> {
    PROGRAM.at_once(&mysql()?)
}

#[test]
fn mysql_with_crashes() -> Result<()> {
    PROGRAM.with_crashes(&mysql()?)
}

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others(&postgres()?)
}

#[test]
fn sqlite_is_refused_and_told_what_to_do() {
    let error = PROGRAM.run("sqlite", &[]).unwrap_err().to_string();
    assert!(error.contains("SQLite has no two-phase commit"), "{error}");
    assert!(error.contains("--database postgres://"), "{error}");
}
