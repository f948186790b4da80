//! Real orders through global transactions: three services, three databases, one coordinator.
//!
//! The order service begins one global transaction per order, writes the order, has the stock
//! service deduct the lines and the account service debit the customer, all over HTTP; a refusal
//! anywhere rolls everything back. At the end the run proves that nothing was lost. It uses the
//! public API of the client library and starts the coordinator as an embedder would.

mod cli;
mod client;
mod coordinator;
mod crash;
mod database;
mod input;
mod proof;
mod report;
mod run;
mod services;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::cli::{Arguments, Task};

/// Orders went through, but the proof does not hold.
const EXIT_DISPROVED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // The coordinator's crate builds reqwest with TLS and leaves the choice of a provider to the
    // program. An error says that it is chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = match arguments.task {
        Some(Task::Coordinator(child)) => coordinator::serve_as_child(child).await,
        None => Box::pin(run_orders(&arguments)).await,
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_orders(arguments: &Arguments) -> Result<ExitCode> {
    let report = run::run(&arguments.options).await?;
    let text = if arguments.options.json { report.to_json()? } else { report.to_tables() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DISPROVED) })
}
