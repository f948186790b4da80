//! The long run of AT mode against the databases themselves, and the run against SQLite's
//! pre-update hook. The short run without the hook is part of the tests.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupts;
use crate::libclang;
use crate::services::RunningServers;
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
    /// SQLite alone, which reports every row that changes. Installs libclang, to build that.
    #[arg(long, conflicts_with = "only")]
    pre_update_hook: bool,
}

/// The whole workspace, so that only SQLite's driver and its dependents are built again: a single
/// package would build its dependencies with other features.
const WITH_HOOK: [&str; 5] =
    ["--workspace", "--features", "handfast/pre-update-hook", "--test", "differential"];

/// Runs it, with servers of its own if it needs any.
pub(crate) fn run_statements(interrupts: &Interrupts, options: &Options) -> Result<()> {
    if options.pre_update_hook {
        return run(interrupts, options, with_hook(interrupts, "test")?.args(["--", "sqlite"]));
    }
    let services = RunningServers::start(interrupts)?;
    let mut command = cargo();
    command.args(["test", "-p", "handfast", "--test", "differential", "--"]);
    command.args(&options.only);
    command.envs(services.variables().iter().cloned());
    run(interrupts, options, &mut command)
}

/// Runs the short run with the hook, for CI.
pub(crate) fn run_with_hook(interrupts: &Interrupts, cases: usize) -> Result<()> {
    let mut clippy = with_hook(interrupts, "clippy")?;
    interrupts.run(clippy.args(["--", "-D", "warnings"]))?;
    let options = Options { cases, seed: 1, set: None, only: None, pre_update_hook: true };
    run_statements(interrupts, &options)
}

fn with_hook(interrupts: &Interrupts, verb: &str) -> Result<Command> {
    let mut command = cargo();
    command.arg(verb).args(WITH_HOOK).envs(libclang::install(interrupts)?);
    Ok(command)
}

fn run(interrupts: &Interrupts, options: &Options, test: &mut Command) -> Result<()> {
    test.arg("--nocapture");
    test.env("HANDFAST_DIFFERENTIAL_CASES", options.cases.to_string());
    test.env("HANDFAST_DIFFERENTIAL_SEED", options.seed.to_string());
    if let Some(set) = options.set {
        test.env("HANDFAST_DIFFERENTIAL_SET", set.to_string());
    }
    interrupts.run(test)
}
