//! The common part of the order/payment examples, so that each of them shows its mode alone.
//!
//! A shop takes orders: its order service writes them down, its stock service deducts their lines,
//! its account service debits the customer; a refusal anywhere undoes everything. Here are the
//! orders, the coordinator, the databases, the load and the proof that nothing was lost, and the
//! services in ordinary SQL. How a service takes part in the order is what an [`Example`] says.

mod cli;
mod client;
mod coordinator;
mod crash;
pub mod database;
pub mod dialect;
mod example;
mod input;
mod money;
mod proof;
mod report;
mod run;
pub mod services;
mod telemetry;
pub mod traced;
pub mod trial;
mod worker;

pub use cli::Arguments;
pub use example::{Books, Example, Leftover, Site};
pub use input::{Customer, Order, OrderLine, Product};
pub use worker::Worker;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};

use crate::cli::Task;
use crate::telemetry::Telemetry;

/// Orders went through, but the proof does not hold.
const EXIT_DISPROVED: u8 = 2;

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The proof holds, or there was nothing to prove: this was a child process.
    Proven,
    /// The proof does not hold.
    Disproved,
}

/// Runs the whole program: reads the command line, runs the orders, prints the results. The exit
/// code says whether the proof holds.
pub async fn main<E: Example>(mut example: E) -> ExitCode {
    let arguments = read_arguments(&mut example).unwrap_or_else(|error| error.exit());
    match observed(Box::pin(run(&example, &arguments))).await {
        Ok(Ended::Proven) => ExitCode::SUCCESS,
        Ok(Ended::Disproved) => ExitCode::from(EXIT_DISPROVED),
        Err(error) => {
            // Standard error may be closed; the exit code still reports the failure.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what the command line asks for, and prints the results.
///
/// # Errors
/// Whatever keeps the orders from being run.
pub async fn run(example: &impl Example, arguments: &Arguments) -> Result<Ended> {
    match &arguments.task {
        Some(Task::Coordinator(child)) => coordinator::serve_as_child(child).await?,
        Some(Task::Worker) => worker::work_as_child(example).await?,
        None => return Box::pin(run_orders(example, arguments)).await,
    }
    Ok(Ended::Proven)
}

/// Does the work of a program with a coordinator in it, with a log and traces as the environment
/// asks for them.
///
/// # Errors
/// Those of the work; or the spans that it leaves are not taken.
pub async fn observed<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // The coordinator's crate builds reqwest with TLS and leaves the choice of a provider to the
    // program. An error says that it is chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let telemetry = Telemetry::start()?;
    let ended = work.await;
    let told = telemetry.finish().await;
    let ended = ended?;
    told?;
    Ok(ended)
}

/// Most flags are the same for all examples; name and description are the example's own.
fn read_arguments<E: Example>(example: &mut E) -> Result<Arguments, clap::Error> {
    let command = Arguments::command().name(E::NAME).about(E::ABOUT);
    let matches = E::add_flags(command).get_matches();
    example.read_flags(&matches)?;
    Arguments::from_arg_matches(&matches)
}

async fn run_orders(example: &impl Example, arguments: &Arguments) -> Result<Ended> {
    let report = run::run(example, &arguments.options).await?;
    let text = if arguments.options.json { report.to_json()? } else { report.to_tables() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(if report.holds() { Ended::Proven } else { Ended::Disproved })
}
