//! The coverage of AT mode by the statements of `quality/corpus`, and the page that shows it. The
//! same program is part of the tests, which hold the page.

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupts;
use crate::services::RunningServers;
use crate::test::cargo;

/// The part that runs, and whether the page is written.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// One application alone, by its folder's name. The page is left alone.
    #[arg(long)]
    application: Option<String>,
    /// One database alone: postgres, mariadb or sqlite. The page is left alone.
    #[arg(long)]
    only: Option<String>,
    /// Write the page again where it does not show what the run finds.
    #[arg(long, conflicts_with_all = ["application", "only"])]
    update: bool,
}

/// Runs the statements, with servers of its own if it needs any.
pub(crate) fn run_statements(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let services = RunningServers::start(interrupts)?;
    let mut test = cargo();
    // The whole workspace, so that nothing is built a second time with other features.
    test.args(["test", "--workspace", "--test", "corpus", "--", "--nocapture"]);
    test.envs(services.variables().iter().cloned());
    test.envs(options.application.as_ref().map(|name| ("HANDFAST_CORPUS_APPLICATION", name)));
    test.envs(options.only.as_ref().map(|name| ("HANDFAST_CORPUS_DATABASE", name)));
    if options.update {
        test.env("UPDATE_EXPECT", "1");
    }
    interrupts.run(&mut test)
}
