//! The long run of faults over real processes.

use anyhow::Result;
use clap::Args;
use handfast_test_services::ServerKind;

use crate::interrupt::Interrupts;
use crate::services::install;
use crate::test::cargo;

/// How long, and which.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes of faults.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Chooses faults and operations; every further round uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Installs the database servers if need be and runs `handfast-crash-tests`.
pub(crate) fn run_faults(interrupts: &Interrupts, options: &Options) -> Result<()> {
    install(interrupts, &ServerKind::SQL)?;
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "handfast-crash-tests", "--features", "crash-points"]);
    command.args(["--", "run", "--minutes", &options.minutes.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    interrupts.run(&mut command)
}
