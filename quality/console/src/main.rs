//! Drives the console in a browser, at a coordinator with two databases that a service works on.
//!
//! The program sets the stage and does what a service or an accident would do; the script in
//! `browser/` clicks and looks, and asks for such deeds by name. `cargo xtask console-test`
//! installs what is missing, checks types and vendored files, and starts this.

mod approval;
mod browser;
mod by_hand;
mod events;
mod shop;
mod stage;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::stage::Stage;

/// The scenes of a run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask console-test")]
struct Options {
    /// Only scenes whose name contains this, such as `dirty`.
    #[arg(long)]
    scene: Option<String>,
    /// Write the pictures of all screens into this folder.
    #[arg(long)]
    pictures: Option<PathBuf>,
    /// Play no scene: say where the console is, and do what lines of standard input ask for, such
    /// as `dirty 3`, until it ends.
    #[arg(long, conflicts_with_all = ["scene", "pictures"])]
    by_hand: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match play(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every scene went well.
async fn play(options: &Options) -> Result<bool> {
    let mut stage = Stage::set_up().await?;
    if options.by_hand {
        by_hand::play(&mut stage).await?;
        return Ok(true);
    }
    let went_well = browser::play(&mut stage, options).await?;
    if !went_well {
        say(&format!("logs in {}", stage.keep_logs().display()));
    }
    Ok(went_well)
}

/// Writes a line of the result at once.
fn say(line: &str) {
    // A reader that has gone is no reason to stop.
    let _ = writeln!(stdout().lock(), "{line}");
}
