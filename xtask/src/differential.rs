//! The long run of AT mode against the databases themselves. The short one is part of the tests.

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupts;
use crate::services::Services;
use crate::test::cargo;

/// How much is tried, and what.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Statements for each database, at least. A few thousand take a minute.
    #[arg(long, default_value_t = 100_000)]
    cases: usize,
    /// Where the choices begin; the same seed makes the same choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This set of tables alone, as a finding names it.
    #[arg(long)]
    set: Option<u64>,
    /// One database alone: sqlite, postgres or mysql.
    #[arg(long)]
    only: Option<String>,
}

/// Runs it with servers of its own.
pub(crate) fn run_statements(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let services = Services::start(interrupts)?;
    let mut command = cargo();
    command.args(["test", "-p", "handfast", "--test", "differential", "--"]);
    command.args(&options.only).arg("--nocapture");
    command.envs(services.variables().iter().cloned());
    command.env("HANDFAST_DIFFERENTIAL_CASES", options.cases.to_string());
    command.env("HANDFAST_DIFFERENTIAL_SEED", options.seed.to_string());
    if let Some(set) = options.set {
        command.env("HANDFAST_DIFFERENTIAL_SET", set.to_string());
    }
    interrupts.run(&mut command)
}
