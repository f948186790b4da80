//! The command line: what to measure and how to show it.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use crate::report::Report;
use crate::{
    at, bound, child, core, locks, modes, peers, plot, recovery, shared, soak, table, tc, views,
};

/// Repeatable benchmarks of Handfast, each beside a bound measured in the same run.
#[derive(Debug, Parser)]
#[command(name = "handfast-bench", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The limits of the machine: echoes of the coordinator's frames, and `fdatasync` alone.
    Bound(bound::Options),
    /// Globals against a coordinator: begin, branches, commit or rollback, phase two.
    Tc(tc::Options),
    /// Global transactions over real databases beside the same statements without them.
    At(at::Options),
    /// Locks of every backend beside the plain recipe of that backend.
    Locks(locks::Options),
    /// The same business action in every mode, beside plain local transactions.
    Modes(modes::Options),
    /// Deciding and encoding in this process, and the memory of open globals.
    Core(core::Options),
    /// From `kill -9` to the first new transaction.
    Recovery(recovery::Options),
    /// Coordinators on a shared database, beside bare inserts, and how long clients wait when the
    /// leader changes.
    Shared(shared::Options),
    /// First pages of the admin API's lists beside many globals, and what a console costs a load.
    Views(views::Options),
    /// A steady load for a long time.
    Soak(soak::Options),
    /// Every row of the goals beside its bound, measured in the same run.
    Table(table::Options),
    /// Handfast beside Seata Server, Seata's Java client, Redisson and Curator, in turns. Needs a
    /// JDK and Maven, which fetches them.
    Peers(peers::Options),
    /// A server in a child process.
    #[command(subcommand, hide = true)]
    Child(child::Role),
}

/// How to show it.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Prints the report as JSON instead of as a table.
    #[arg(long, global = true)]
    json: bool,
    /// Also draws it, as SVG.
    #[arg(long, global = true, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Output {
    /// Shows the report.
    pub(crate) fn show(&self, report: &Report) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, report).context("writing the report")?;
            writeln!(out)?;
        } else {
            write!(out, "{report}")?;
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::svg(report)).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}
