//! The commands that relay events from a database to a broker, and that operate its outbox.
//!
//! The library `handfast::outbox` does the work; this has only the command line. It knows the
//! coordinator only as the place that a relay reports to, if it is told to.

mod arguments;
mod command;
mod metrics;

use std::io::{Write, stderr};

use anyhow::Result;
use tracing_subscriber::EnvFilter;

pub use arguments::{DatabaseUrl, OneEvent, OutboxCommand, RelayOptions, StateFilter};

/// Relays events until SIGTERM or SIGINT. `RUST_LOG` says what is logged to standard error, `info`
/// unless set.
///
/// # Errors
/// Whatever keeps the relay from running.
pub fn relay(options: RelayOptions) -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).init();
    runtime()?.block_on(command::relay(options))
}

/// Runs one of the operator's commands.
///
/// # Errors
/// Whatever the database says, or that the event is not in the state that the command needs.
pub fn operate(command: OutboxCommand, output: &mut dyn Write) -> Result<()> {
    runtime()?.block_on(command::operate(command, output))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
