//! Runs unmodified clients of Apache Seata against `handfast serve`, and judges what they did to
//! real databases.
//!
//! The clients are in services of their own (`java/`, `go/`), which do what they are asked to and
//! judge nothing. What is said to them, and what must come of it, is in `scenarios/`, once for all
//! clients. `cargo xtask interop` installs what is missing and starts this.

mod client;
mod cluster;
mod coordinator;
mod database;
mod go;
mod java;
mod line;
mod play;
mod scenarios;
mod service;
mod stage;
mod wait;

use std::process::ExitCode;

use clap::Parser;

/// The clients and scenarios of a run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask interop")]
pub(crate) struct Options {
    /// Only the newest release in Java and the one in Go, on MariaDB, and the most important
    /// scenarios.
    #[arg(long)]
    short: bool,
    /// Only clients whose names contain this, such as `java-2.6.0`.
    #[arg(long)]
    client: Option<String>,
    /// Only this database: mariadb or postgresql.
    #[arg(long)]
    database: Option<String>,
    /// Only scenarios whose mode and name, such as `at commit`, contain this.
    #[arg(long)]
    scenario: Option<String>,
    /// The number of stages played at a time; each mostly waits.
    #[arg(long, default_value_t = 3)]
    stages: usize,
}

fn main() -> ExitCode {
    match play::play_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            play::say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
