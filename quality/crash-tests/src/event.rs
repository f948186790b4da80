//! Events that a service process reports, a line each on standard output, before and after each
//! step: a line in a pipe survives the process that wrote it.

use std::io::Write;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::history::{Outcome, Read};
use crate::work::Task;

/// One event of a service process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ServiceEvent {
    /// Everything is connected and work begins.
    Ready,
    /// An operation is going to be run.
    Began {
        /// Its number.
        operation: u64,
        /// When.
        at: u64,
        /// The operation.
        task: Task,
    },
    /// Its global was begun.
    Begun {
        /// Which.
        operation: u64,
        /// The global.
        xid: String,
    },
    /// It is over.
    Ended {
        /// Which.
        operation: u64,
        /// When.
        at: u64,
        /// How.
        outcome: Outcome,
        /// Why it did not commit.
        why: String,
        /// The values read.
        seen: ReadValues,
    },
    /// No more work comes; the process stays, to finish branches.
    Finished,
}

/// The values that an operation read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReadValues {
    /// The sum of all accounts.
    pub total: Option<i64>,
    /// Lists.
    pub lists: Vec<Read>,
}

impl ReadValues {
    /// Returns whether a total or a list was read.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.total.is_some() || !self.lists.is_empty()
    }
}

/// Writes the line.
///
/// # Errors
/// Returns an error if standard output is closed.
pub fn emit(event: &ServiceEvent) -> Result<()> {
    let line = serde_json::to_string(event)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("standard output is closed")
}

/// Returns nanoseconds of a clock that all processes of the machine share and that is never set.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Unix has this clock");
    let nanoseconds = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    u64::try_from(nanoseconds).expect("the machine has been up for less than 500 years")
}
