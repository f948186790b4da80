//! `handfast-bench`: repeatable benchmarks, each beside a bound measured in the same run.
//!
//! Every subcommand ends with the same report. The client runs in this process on a runtime of one
//! thread, the server in a child process, so that the cost of each is counted separately. The
//! program does not judge the figures: it shows how busy the machine was.

mod at;
mod bound;
mod child;
mod cli;
mod core;
mod goal;
mod idle;
mod java;
mod load;
mod locks;
mod measure;
mod modes;
mod peers;
mod plot;
mod recovery;
mod report;
mod sample;
mod seata;
mod shared;
mod soak;
mod statistics;
mod table;
mod tc;
mod unary_echo;
mod usage;
mod views;
mod workers;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use mimalloc::MiMalloc;

use crate::cli::{Cli, Command};
use crate::report::Report;

/// The coordinator that is measured has the allocator of the program `handfast`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<ExitCode> {
    let Cli { command, output } = Cli::parse();
    if let Command::Child(role) = command {
        return child::run(role);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(run(&command))?;
    output.show(&report)?;
    Ok(if report.errors_total() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(command: &Command) -> Result<Report> {
    match command {
        Command::Bound(options) => bound::run(options).await,
        Command::Tc(options) => tc::run(options).await,
        Command::At(options) => at::run(options).await,
        Command::Locks(options) => locks::run(options).await,
        Command::Modes(options) => modes::run(options).await,
        Command::Core(options) => core::run(options).await,
        Command::Recovery(options) => recovery::run(options).await,
        Command::Table(options) => Ok(table::run(options).await),
        Command::Peers(options) => peers::run(options).await,
        Command::Shared(options) => shared::run(options).await,
        Command::Views(options) => views::run(options).await,
        Command::Soak(options) => soak::run(options).await,
        Command::Child(_) => bail!("a child is no measurement"),
    }
}
