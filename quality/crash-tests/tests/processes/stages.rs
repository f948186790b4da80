//! Stages for tests.

use std::io::Write;

use handfast_crash_tests::program::Program;
use handfast_crash_tests::run::Report;
use handfast_crash_tests::service::TimeLimits;
use handfast_crash_tests::stage::{RunningSystem, Settings};
use handfast_crash_tests::work::{Product, Workload};

pub(crate) const FILES: [Product; 2] = [Product::Sqlite, Product::Sqlite];
pub(crate) const MIXED: [Product; 2] = [Product::Sqlite, Product::MariaDb];
pub(crate) const SERVERS: [Product; 2] = [Product::Postgres, Product::MariaDb];

/// Two services that run three operations each at a time.
pub(crate) fn settings(products: [Product; 2], seed: u64) -> Settings {
    Settings {
        program: Program::new(env!("CARGO_BIN_EXE_handfast-crash-tests")),
        products,
        services: 2,
        workers: 3,
        workload: Workload::Both,
        seed,
        limits: TimeLimits::SHORT,
        data_dir: None,
        host: None,
        cluster: None,
    }
}

/// Says that this machine does not allow what a test is about, where it cannot be overlooked. With
/// `HANDFAST_TEST_EVERY_FAULT` set it is a failure.
pub(crate) fn not_run(why: &str) {
    // Past the test runner, which keeps what tests print for those that fail.
    let mut terminal = std::io::stderr();
    writeln!(terminal, "NOT RUN: {why}").unwrap();
    assert!(std::env::var_os("HANDFAST_TEST_EVERY_FAULT").is_none(), "not run: {why}");
}

/// Something has been read, and everything ends well.
pub(crate) async fn assert_sound(mut stage: RunningSystem) -> Report {
    stage.until_read().await.unwrap();
    let report = stage.report().await.unwrap();
    stage.stop().await.unwrap();
    report.require_sound().unwrap();
    assert!(report.verdict.totals + report.verdict.list_reads > 0, "something was read: {report}");
    report
}
