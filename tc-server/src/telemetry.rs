//! The log: structured events on standard error, as text or as JSON lines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// Sends this process's events to standard error. For the binary only: a process that embeds a
/// coordinator configures its own log.
///
/// # Errors
///
/// The process already has a log.
pub fn start(config: &LogConfig) -> Result<(), TryInitError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&config.filter))
        .with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    }
}
