//! Why a coordinator did not start, with a stable code for each reason.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::audit::AuditError;
use crate::config::ConfigError;
use crate::descriptors::TooFewDescriptors;
use crate::engine::EngineFailure;
use crate::peers::PeersError;
use crate::security::{TlsError, TokensError};
use crate::store::StoreError;

/// Why a coordinator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The process may have too few file descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// A TLS file cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The tokens file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The key of the console's cookies cannot be used.
    #[error("key of the console's cookies {path}: {source}")]
    ConsoleKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The data directory cannot be created.
    #[error("data directory {directory}: {source}")]
    DataDir {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// Other nodes cannot be reached as configured.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The gRPC server cannot be set up.
    #[error("grpc: {0}")]
    Grpc(String),
    /// Participants cannot be called over HTTP as configured.
    #[error("http: {0}")]
    Http(String),
    /// Spans cannot be sent as configured.
    #[error("telemetry: {0}")]
    Telemetry(String),
    /// Alerts cannot be sent as configured.
    #[error("webhook: {0}")]
    Webhook(String),
    /// The store cannot be led, or its records cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineFailure),
}

impl StartError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Config(error) => error.code(),
            Self::Descriptors(_) => "HF-CFG-DESCRIPTORS",
            Self::Tls(_) => "HF-CFG-TLS",
            Self::Tokens(_) => "HF-CFG-TOKENS",
            Self::Audit(_) => "HF-CFG-AUDIT-LOG",
            Self::ConsoleKey { .. } => "HF-CFG-CONSOLE-KEY",
            Self::DataDir { .. } => "HF-CFG-DATA-DIR",
            Self::Listen { .. } => "HF-CFG-LISTEN",
            Self::Peers(_) => "HF-CFG-PEERS",
            Self::Grpc(_) => "HF-CFG-GRPC",
            Self::Http(_) => "HF-CFG-HTTP",
            Self::Telemetry(_) => "HF-CFG-TELEMETRY",
            Self::Webhook(_) => "HF-CFG-WEBHOOK",
            Self::Engine(failure) => failure.code(),
        }
    }
}

impl StartError {
    /// Returns the store's error, if it is one.
    pub(crate) fn into_store_error(self) -> Result<StoreError, Self> {
        if let Self::Engine(EngineFailure::Store(error)) = self { Ok(error) } else { Err(self) }
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}
