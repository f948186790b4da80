//! Fourteen recipes for distributed locks that are in circulation, each with a defect. Every recipe
//! is played step by step until it visibly fails. This project's locks go through the same steps
//! and do not fail.
//!
//! No step here depends on a race: the order of steps is fixed, and if a recipe's background task
//! matters, the next step waits for what that task does. SQL runs on SQLite, the scripts of Redis
//! on a Redis, the sequential nodes on a ZooKeeper.

mod cli;
mod ground;
mod recipes;
mod report;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::cli::Options;
use crate::ground::Ground;
use crate::report::Report;

/// A recipe did not fail, or a lock of this project did.
const EXIT_DISPROVED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    match play(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DISPROVED),
        Err(error) => {
            // If standard error is closed, the error cannot be reported.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the chosen recipes, prints what was seen, and returns whether it is as it must be.
async fn play(options: &Options) -> Result<bool> {
    let recipes = options.recipe.recipes();
    let ground = Ground::new(options, &recipes)?;
    let report = Report::of(&ground, &recipes).await?;
    let text = if options.json { report.to_json()? } else { report.to_table() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.is_as_it_must_be())
}
