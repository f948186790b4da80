//! `handfast serve`: runs a coordinator until a signal stops it or its store fails.

use std::future;
use std::io::{self, Write as _};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::causes;
use super::greeting::{Addresses, greeting};
use super::{CliFailure, ConfigFlags, Exit};
use crate::config::{Config, LogFormat};
use crate::descriptors;
use crate::engine::EngineFailure;
use crate::security::Reloaded;
use crate::serve::{RunningServer, Server, ShutdownOutcome, StartError};
use crate::telemetry;

/// Runs a coordinator. Engine and gRPC share one thread, because waking a task on another thread
/// costs more than most requests. The store's writer and the audit log have threads of their own.
pub(super) fn run(flags: ConfigFlags) -> Result<(), CliFailure> {
    let config = flags.load(std::env::vars())?;
    let failed = |error: &dyn std::error::Error| {
        CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error.to_string())
    };
    telemetry::start(&config.log).map_err(|error| failed(&error))?;
    if let Err(error) = descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of file descriptors stays as it is");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let ended = runtime.block_on(serve(config));
    // The runtime is not dropped: a thread that hangs in the store, or a task that waits for it in
    // its drop, must not delay the end. Changes that are not synced were not acknowledged
    // (DURABLE-FIRST).
    std::mem::forget(runtime);
    ended
}

async fn serve(config: Config) -> Result<(), CliFailure> {
    tracing::debug!(config = config.to_toml(), "configuration");
    let mut stop = StopSignal::listen().map_err(|error| {
        CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error.to_string())
    })?;
    let mut reload = ReloadSignal::listen(&config).map_err(|error| {
        CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error.to_string())
    })?;
    let Some(mut server) = start(config, &mut stop).await? else { return Ok(()) };
    loop {
        tokio::select! {
            failure = server.failed() => {
                let error = causes(&failure);
                tracing::error!(code = failure.code(), %error, "the engine stopped");
                // The engine's failure is reported, whatever the result of the shutdown.
                let _ = server.shutdown().await;
                return Err(failure.into());
            }
            () = stop.received() => return shut_down(server, stop).await,
            () = reload.received() => reload_tokens(&server),
        }
    }
}

/// Starts the server, unless a signal comes first. The start is a task of its own, which is not
/// dropped in that case: its drop could wait for a disk that hangs.
async fn start(config: Config, stop: &mut StopSignal) -> Result<Option<RunningServer>, CliFailure> {
    tokio::select! {
        started = tokio::spawn(launch(config)) => match started {
            Ok(server) => Ok(Some(server?)),
            Err(error) => {
                let error = error.to_string();
                Err(CliFailure::new(Exit::ServerFailed, "HF-CLI-RUNTIME", error))
            }
        },
        () = stop.received() => {
            tracing::info!("stopped while starting");
            Ok(None)
        }
    }
}

/// Starts the server. A node on a shared store is up while it follows, however long that takes.
async fn launch(config: Config) -> Result<RunningServer, StartError> {
    let is_shared = config.store.is_shared();
    let greeted = config.clone();
    let server =
        if is_shared { Server::launch(config).await? } else { Server::start(config).await? };
    greet(&greeted, &server);
    Ok(server)
}

/// Says what runs where: to people in four lines, to a program that reads the log as an event.
fn greet(config: &Config, server: &RunningServer) {
    match config.log.format {
        LogFormat::Json => server.log_addresses(),
        LogFormat::Text if tracing::enabled!(tracing::Level::INFO) => {
            let addresses = Addresses {
                grpc: server.grpc_address,
                admin: server.admin_address,
                seata: server.seata_address,
            };
            // Standard error may be closed; the coordinator serves all the same.
            let _ = io::stderr().write_all(greeting(config, addresses).as_bytes());
        }
        LogFormat::Text => {}
    }
}

fn reload_tokens(server: &RunningServer) {
    match server.reload_tokens() {
        None => {}
        Some(Ok(Reloaded { tokens, shut_out })) => {
            tracing::info!(tokens, shut_out, "tokens reloaded");
        }
        Some(Err(error)) => {
            let error = StartError::from(error);
            let (code, error) = (error.code(), causes(&error));
            tracing::error!(code, %error, "tokens not reloaded: the old ones stay");
        }
    }
}

/// Shuts the server down. A second signal ends the wait.
async fn shut_down(server: RunningServer, mut stop: StopSignal) -> Result<(), CliFailure> {
    let ended = tokio::select! {
        ended = server.shutdown() => ended?,
        () = stop.received() => ShutdownOutcome::CutShort,
    };
    match ended {
        ShutdownOutcome::Drained => Ok(()),
        ShutdownOutcome::CutShort => {
            let message = "stopped with connections or requests still open";
            Err(CliFailure::new(Exit::CutShort, "HF-CLI-CUT-SHORT", message)
                .advise("nothing that was acknowledged is lost; see shutdown_limit_ms"))
        }
    }
}

/// SIGHUP, if there are tokens to read again. Otherwise the signal keeps its default and ends the
/// process, as expected when a terminal is closed.
struct ReloadSignal(Option<Signal>);

impl ReloadSignal {
    fn listen(config: &Config) -> io::Result<Self> {
        let hangup = config.security.tokens.as_ref().map(|_| signal(SignalKind::hangup()));
        Ok(Self(hangup.transpose()?))
    }

    async fn received(&mut self) {
        match &mut self.0 {
            Some(hangup) => {
                hangup.recv().await;
            }
            None => future::pending().await,
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
            StartError::Tls(_)
            | StartError::Tokens(_)
            | StartError::Http(_)
            | StartError::Webhook(_)
            | StartError::Telemetry(_)
            | StartError::Peers(_) => Self::new(Exit::Configuration, error.code(), causes(&error)),
            StartError::Descriptors(_)
            | StartError::Audit(_)
            | StartError::ConsoleKey { .. }
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
