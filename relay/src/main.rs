//! The program that relays events from a database to a broker, and the tool for its outbox.
//!
//! The library `handfast::outbox` does the work; this program has only the command line. It does
//! not know the coordinator.

mod arguments;
mod command;
mod metrics;

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).init();
    match command::run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If this cannot be written, the exit code still reports the failure.
            drop(writeln!(stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
