//! A coordinator from its configuration to its end: the parts started in order, and stopped in the
//! reverse.
//!
//! The binary and tests use the same door: [`Server::start`] gives a [`RunningServer`] with the
//! addresses that it listens on.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, About, AdminState, Readiness};
use crate::audit::{AuditError, AuditLog};
use crate::clock::{Clock, WallClock};
use crate::config::{Config, ConfigError, StoreKind};
use crate::dispatch::Dispatcher;
use crate::engine::{self, Engine, EngineFailure};
use crate::metrics;
use crate::security::{
    Access, AdminListener, GrpcAccessLayer, TlsError, Tokens, TokensError, admin_acceptor, grpc_tls,
};
use crate::store::{EmbeddedStore, MemoryStore, Store};
