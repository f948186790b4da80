//! The long run in which holders of locks are stopped for longer than their lease.

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupts;
use crate::services::RunningServers;
use crate::test::cargo;

/// How many.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Pauses on each backend, with claims and again without.
    #[arg(long, default_value_t = 10_000)]
    pauses: u32,
}

/// Starts the servers and runs the test that `cargo xtask test` runs short.
pub(crate) fn run_pauses(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let services = RunningServers::start(interrupts)?;
    let mut command = cargo();
    command.args(["test", "-p", "handfast-locks", "--test", "pauses", "--", "--nocapture"]);
    command.env("HANDFAST_TEST_PAUSES", options.pauses.to_string());
    command.envs(services.variables().iter().cloned());
    interrupts.run(&mut command)
}
