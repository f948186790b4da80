//! The simulator: coordinators, services and databases on virtual time, from seeds.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;

use crate::interrupt::Interrupts;

/// Runs it; it reports, and shrinks what fails.
pub(crate) fn run_seeds<T: AsRef<OsStr>>(
    interrupts: &Interrupts,
    mut simulator: Command,
    arguments: &[T],
) -> Result<()> {
    interrupts.run(simulator.args(arguments))
}
