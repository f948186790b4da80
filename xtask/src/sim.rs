//! The simulator: coordinators, services and databases on virtual time, from seeds.

use anyhow::Result;

use crate::interrupt::Interrupts;
use crate::test::cargo;

/// Runs it; it reports, and shrinks what fails.
pub(crate) fn run_seeds(interrupts: &Interrupts, arguments: &[String]) -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "handfast-sim", "--"]).args(arguments);
    interrupts.run(&mut command)
}
