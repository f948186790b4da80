//! `handfast serve`: a coordinator until it is told to stop, or cannot go on.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::causes;
use super::{CliFailure, ConfigFlags, Exit};
use crate::config::Config;
use crate::engine::EngineFailure;
use crate::serve::{Ended, RunningServer, Server, StartError};
use crate::telemetry;

/// Engine and gRPC share one thread: waking a task on another one costs more than most requests.
/// The store's writer and the audit log have threads of their own.
pub(super) fn run(flags: ConfigFlags) -> Result<(), CliFailure> {
    let config = flags.load(std::env::vars())?;
    let failed = |error: &dyn std::error::Error| {
        CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error.to_string())
    };
    telemetry::start(&config.log).map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let ended = runtime.block_on(serve(config));
    // A thread that hangs in the store must not hold up the end: what it has not synced was not
    // acknowledged (DURABLE-FIRST).
    runtime.shutdown_background();
    ended
}

async fn serve(config: Config) -> Result<(), CliFailure> {
    tracing::info!(config = config.to_toml(), "configuration");
    let mut stop = StopSignal::listen().map_err(|error| {
        CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error.to_string())
    })?;
    let mut server = Server::start(config).await?;
    tokio::select! {
        failure = server.failed() => {
            tracing::error!(code = failure.code(), error = %causes(&failure), "the engine stopped");
            // The failure is the reason for the exit, whatever the shutdown meets on the way.
            let _ = server.shutdown().await;
            return Err(failure.into());
        }
        () = stop.received() => {}
    }
    shut_down(server, stop).await
}

/// A second signal ends the wait.
async fn shut_down(server: RunningServer, mut stop: StopSignal) -> Result<(), CliFailure> {
    let ended = tokio::select! {
        ended = server.shutdown() => ended?,
        () = stop.received() => Ended::CutShort,
    };
    match ended {
        Ended::Drained => Ok(()),
        Ended::CutShort => {
            let message = "stopped with connections or requests still open";
            Err(CliFailure::new(Exit::CutShort, "HF-CLI-CUT-SHORT", message)
                .advise("nothing that was acknowledged is lost; see shutdown_limit_ms"))
        }
    }
}

/// SIGTERM or SIGINT.
struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl From<StartError> for CliFailure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(error) => error.into(),
            StartError::Tls(_) | StartError::Tokens(_) => {
                Self::new(Exit::Configuration, error.code(), causes(&error))
            }
            StartError::Audit(_)
            | StartError::DataDir { .. }
            | StartError::Listen { .. }
            | StartError::Grpc(_)
            | StartError::Engine(_) => Self::new(Exit::ServerFailed, error.code(), causes(&error)),
        }
    }
}

impl From<EngineFailure> for CliFailure {
    fn from(failure: EngineFailure) -> Self {
        Self::new(Exit::ServerFailed, failure.code(), causes(&failure))
    }
}
