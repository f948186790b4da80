//! Runs the examples in other languages against `handfast serve`, and judges what they did.
//!
//! The programs are those that users read (`examples/python`, `examples/typescript`); they take the
//! same arguments and say the same words, so that each scenario is written once. `cargo xtask
//! languages` installs what is missing and starts this.

mod coordinator;
mod http;
mod language;
mod program;
mod scenarios;
mod stage;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;

use crate::language::Language;
use crate::scenarios::SCENARIOS;
use crate::stage::Stage;

/// The languages and scenarios of a run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask languages")]
struct Options {
    /// Only this language: python or typescript.
    #[arg(long)]
    language: Option<String>,
    /// Only scenarios whose name contains this, such as `saga`.
    #[arg(long)]
    scenario: Option<String>,
}

fn main() -> ExitCode {
    match play_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn play_all(options: &Options) -> Result<()> {
    let is_wanted = |wanted: &Option<String>, name: &str| {
        wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str()))
    };
    let (mut passed, mut failed) = (0, 0);
    for language in Language::ALL {
        if !is_wanted(&options.language, language.name()) {
            continue;
        }
        language.prepare()?;
        let mut stage = Stage::set_up(language)?;
        for (name, play) in SCENARIOS {
            if !is_wanted(&options.scenario, name) {
                continue;
            }
            let started = Instant::now();
            let played = play(&mut stage);
            let took = started.elapsed().as_secs_f64();
            match played {
                Ok(()) => {
                    passed += 1;
                    say(&format!("{} {name} ... ok ({took:.1} s)", language.name()));
                }
                Err(error) => {
                    failed += 1;
                    say(&format!("{} {name} ... FAILED ({took:.1} s): {error:#}", language.name()));
                }
            }
        }
        if failed > 0 {
            say(&format!("logs in {}", stage.keep_logs().display()));
        }
    }
    say(&format!("{passed} passed, {failed} failed"));
    anyhow::ensure!(failed == 0 && passed > 0, "not all scenarios passed");
    Ok(())
}

/// Writes a line of the result at once.
fn say(line: &str) {
    // A reader that has gone is no reason to stop.
    let _ = writeln!(stdout().lock(), "{line}");
}
