//! The commands that relay events from a database to a broker, and that operate its outbox.
//!
//! The library `handfast::outbox` does the work; this has only the command line. It knows the
//! coordinator only as the place that a relay reports to, if it is told to.

mod arguments;
mod command;
mod metrics;
mod telemetry;

use std::io::Write;

use anyhow::Result;

pub use arguments::{DatabaseUrl, OneEvent, OutboxCommand, RelayOptions, StateFilter};

/// Relays events until SIGTERM or SIGINT. `RUST_LOG` says what is logged to standard error, `info`
/// unless set. With `OTEL_EXPORTER_OTLP_ENDPOINT` the spans of what it publishes go there.
///
/// # Errors
/// Whatever keeps the relay from running.
pub fn relay(options: RelayOptions) -> Result<()> {
    runtime()?.block_on(async {
        let tracers = telemetry::start()?;
        let ended = command::relay(options).await;
        telemetry::finish(tracers).await;
        ended
    })
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
