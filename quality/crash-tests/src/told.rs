//! What a service process tells, a line each on standard output, before and after everything it
//! does: what was written into a pipe survives the writer.

use std::io::Write;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::history::{Outcome, Read};
use crate::work::What;

/// One thing that is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// Everything is connected and work begins.
    Ready,
    /// An operation is going to be run.
    Began {
        /// Its number.
        operation: u64,
        /// When.
        at: u64,
        /// What it will do.
        what: What,
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
        /// What it read.
        seen: Seen,
    },
    /// No more work comes; the process stays, to finish branches.
    Finished,
}

/// What an operation read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// The sum of all accounts.
    pub total: Option<i64>,
    /// Lists.
    pub lists: Vec<Read>,
}

impl Seen {
    /// Whether a total or a list was read.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.total.is_some() || !self.lists.is_empty()
    }
}

/// Writes the line.
///
/// # Errors
/// When nobody listens.
pub fn tell(told: &Told) -> Result<()> {
    let line = serde_json::to_string(told)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("nobody listens")
}

/// Nanoseconds by a clock that all processes of the machine share and nobody sets.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Unix has this clock");
    let nanoseconds = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    u64::try_from(nanoseconds).expect("the machine has been up for less than 500 years")
}
