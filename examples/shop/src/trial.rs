//! Runs an example as a user does, for the examples' tests: the outcome, the proof and the crash.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The expected result of the examples' own orders, one after the other.
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

/// Tests of an example on each of these databases, `PROGRAM` being its [`Trial`]: one order after
/// the other, many at once, and many while the coordinator dies.
#[macro_export]
macro_rules! trials {
    ($($database:ident),+) => {
        $(mod $database {
            use $crate::trial::$database as database;

            #[test]
            fn one_by_one() -> anyhow::Result<()> {
                super::PROGRAM.one_by_one(&database()?)
            }

            #[test]
            fn at_once() -> anyhow::Result<()> {
                super::PROGRAM.at_once(&database()?)
            }

            #[test]
            fn with_crashes() -> anyhow::Result<()> {
                super::PROGRAM.with_crashes(&database()?)
            }
        })+
    };
}

/// The executable of an example.
#[derive(Debug, Clone, Copy)]
pub struct Trial(pub &'static str);

impl Trial {
    /// Runs it, which succeeds only if the proof holds, and returns its report.
    ///
    /// # Errors
    /// If the proof does not hold, or nothing came of the run.
    pub fn run(self, database: &str, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.0);
        command.args(["--json", "--database", database]).args(arguments);
        let output = command.output()?;
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
        serde_json::from_str(out.trim()).with_context(|| out.into_owned())
    }

    /// One order after the other: the outcome is always the same.
    ///
    /// # Errors
    /// If it is another one.
    pub fn one_by_one(self, database: &str) -> Result<()> {
        let report = self.run(database, &["--concurrency", "1"])?;
        for (key, expected) in OWN_OUTCOME {
            ensure!(report[key].as_u64() == Some(expected), "{key}: {report}");
        }
        Ok(())
    }

    /// Sixteen orders at a time.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn at_once(self, database: &str) -> Result<()> {
        let report = self.run(database, &["--concurrency", "16"])?;
        ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
        Ok(())
    }

    /// Sixteen orders at a time, while the coordinator is killed twice.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn with_crashes(self, database: &str) -> Result<()> {
        let report = self.run(database, &["--concurrency", "16", "--crash-coordinator", "2"])?;
        ensure!(report["failed"] == 0 && report["coordinator_restarts"] == 2, "{report}");
        Ok(())
    }

    /// Sixteen orders at a time over three coordinators, of which the leader is killed twice.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn with_three_coordinators(self, database: &str) -> Result<()> {
        let three = ["--coordinators", "3", "--crash-coordinator", "2", "--concurrency", "16"];
        let report = self.run(database, &three)?;
        ensure!(report["failed"] == 0 && report["orders"] == 120, "{report}");
        ensure!(report["coordinator_restarts"] == 2, "{report}");
        Ok(())
    }

    /// Scripts read the same keys from each example.
    ///
    /// # Errors
    /// If there are others.
    pub fn has_its_keys_and_no_others(self, database: &str) -> Result<()> {
        let report = self.run(database, &[])?;
        let mut keys: Vec<&str> =
            report.as_object().context("an object")?.keys().map(String::as_str).collect();
        let mut expected = KEYS.to_vec();
        keys.sort_unstable();
        expected.sort_unstable();
        ensure!(keys == expected, "{keys:?}");
        Ok(())
    }
}

/// Files of the run's own.
///
/// # Errors
/// Never: the databases are asked for alike.
pub fn sqlite() -> Result<String> {
    Ok("sqlite".to_owned())
}

/// The PostgreSQL server of the test run.
///
/// # Errors
/// If there is none.
pub fn postgres() -> Result<String> {
    server_url("HANDFAST_TEST_POSTGRES")
}

/// The MySQL or MariaDB server of the test run.
///
/// # Errors
/// If there is none.
pub fn mysql() -> Result<String> {
    server_url("HANDFAST_TEST_MYSQL")
}

/// The Redis server of the test run.
///
/// # Errors
/// If there is none.
pub fn redis() -> Result<String> {
    server_url("HANDFAST_TEST_REDIS")
}

/// The RabbitMQ server of the test run.
///
/// # Errors
/// If there is none.
pub fn rabbit_mq() -> Result<String> {
    server_url("HANDFAST_TEST_RABBITMQ")
}

/// The NATS server of the test run.
///
/// # Errors
/// If there is none.
pub fn jet_stream() -> Result<String> {
    server_url("HANDFAST_TEST_NATS")
}

fn server_url(variable: &str) -> Result<String> {
    env::var(variable).with_context(|| format!("{variable} is not set: run `cargo xtask test`"))
}
