//! A coordinator inside another process: for tests, examples, and applications of one machine.
//!
//! It has the same parts as one that [`serve`](crate::serve) starts, on a given store and clock,
//! and serves only the native API. It has no configuration and no admin port, and shares nothing
//! with other servers of the process.
//!
//! ```
//! use handfast_server::embedded::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), handfast_server::embedded::StartError> {
//! let server = Server::builder().memory().listen("127.0.0.1:0").start().await?;
//! println!("coordinator at http://{}", server.address());
//! server.stop().await?;
//! # Ok(())
//! # }
//! ```

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handfast_core::Limits;
use tokio::net::TcpListener;

use crate::accept::Acceptor;
use crate::clock::{Clock, WallClock};
use crate::descriptors;
use crate::dispatch::{self, Dispatcher};
use crate::engine::{self, Engine, EngineFailure, EngineHandle};
use crate::grpc::{Bounds, GrpcFrontend};
use crate::over_http::{self, HttpCaller, HttpCallerError};
use crate::security::{Access, Listener};
use crate::serve::ports::{Port, serve_grpc};
use crate::serve::runtime::{Runtime, open_directory};
use crate::spans::Spans;
use crate::store::{MemoryStore, SEGMENT_BYTES, Store, StoreError};
use crate::turned_away::PortName;

/// The limit of connections. Clients of an embedded coordinator are on one machine.
const CONNECTIONS_MAX: usize = 8_192;
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// The coordinator could not start, or ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or the address is not one of this machine.
    #[error("listening on {address} failed")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The store cannot be led, or failed.
    #[error(transparent)]
    Engine(#[from] EngineFailure),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Participants cannot be called over HTTP.
    #[error(transparent)]
    Http(#[from] HttpCallerError),
    /// This build's own API description is unreadable.
    #[error(transparent)]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Entry to the builder.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// Builds an embedded coordinator.
#[derive(Debug)]
pub struct Builder {
    store: StoreChoice,
    listen: String,
    advertise: Option<String>,
    limits: Limits,
    bounds: Bounds,
    dispatch: dispatch::Settings,
    over_http: over_http::Settings,
    clock: Option<Arc<dyn Clock>>,
}

#[derive(Debug)]
enum StoreChoice {
    Given(Arc<dyn Store>),
    Directory(PathBuf),
}

impl Server {
    /// Returns a builder for a coordinator on the memory store, on a free loopback port.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            store: StoreChoice::Given(Arc::new(MemoryStore::new())),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            limits: Limits::default(),
            bounds: Bounds::default(),
            dispatch: dispatch::Settings::default(),
            over_http: over_http::Settings::default(),
            clock: None,
        }
    }
}

impl Builder {
    /// Keeps the records in memory.
    #[must_use]
    pub fn memory(self) -> Self {
        self.store(Arc::new(MemoryStore::new()))
    }

    /// Keeps the records in a directory, which only this process may use.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.store = StoreChoice::Directory(directory.into());
        self
    }

    /// Keeps the records in this store.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = StoreChoice::Given(store);
        self
    }

    /// Sets the address to listen on. Port 0 takes a free port.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Sets the address part of XIDs. The default is the address listened on.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// Sets the core's limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the bounds of messages and connections.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the limits and pauses of phase two.
    #[must_use]
    pub fn dispatch(mut self, settings: dispatch::Settings) -> Self {
        self.dispatch = settings;
        self
    }

    /// Sets the participants that are called over HTTP.
    #[must_use]
    pub fn over_http(mut self, settings: over_http::Settings) -> Self {
        self.over_http = settings;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts the coordinator. It answers when this returns.
    ///
    /// # Errors
    ///
    /// When the port cannot be bound or the store cannot be opened.
    pub async fn start(self) -> Result<RunningServer, StartError> {
        let failed = |source| StartError::Listen { address: self.listen.clone(), source };
        let listener = TcpListener::bind(&self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let store = match self.store {
            StoreChoice::Given(store) => store,
            StoreChoice::Directory(directory) => {
                Arc::new(open_directory(directory, SEGMENT_BYTES).await?)
            }
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(WallClock::start()));
        let mut settings = engine::Settings::new(self.advertise.unwrap_or(address.to_string()));
        settings.limits = self.limits;
        let over_http = HttpCaller::new(self.over_http)?;
        let (dispatch, spans) = (self.dispatch, Spans::default());
        let mut runtime = Runtime::launch(store, clock, settings, dispatch, over_http, spans);
        runtime.engine.until_leading().await.inspect_err(|_| runtime.abort())?;
        let Engine { handle, leadership, .. } = &runtime.engine;
        let dispatcher = runtime.dispatcher.clone();
        let over_http = runtime.over_http.clone();
        let front = GrpcFrontend::new(
            handle.clone(),
            leadership.clone(),
            dispatcher,
            self.bounds,
            over_http,
        );
        let connections_max = descriptors::connections_beside(CONNECTIONS_MAX);
        let acceptor = Acceptor::new(listener, connections_max, PortName::Grpc);
        let port = open_port(&front, acceptor).inspect_err(|_| runtime.abort())?;
        // Not left to `keep_watch`: a probe may come before it.
        front.show_health().await;
        Ok(RunningServer { address, runtime, front, port })
    }
}

fn open_port(front: &GrpcFrontend, acceptor: Acceptor) -> Result<Port, StartError> {
    let listener = Listener::new(acceptor, None, SILENCE_LIMIT);
    let (routes, pass_on) = (front.routes()?, front.pass_on(None));
    Ok(serve_grpc(listener, ready(()), routes, Access::Open, pass_on, SILENCE_LIMIT))
}

/// A started coordinator. Dropping it has the effect of a crash: clients see broken streams, and
/// changes that were not durable are lost.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    runtime: Runtime,
    front: GrpcFrontend,
    port: Port,
}

impl RunningServer {
    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the handle of its engine.
    #[must_use]
    pub fn engine(&self) -> &EngineHandle {
        &self.runtime.engine.handle
    }

    /// Returns the dispatcher, which knows the connected processes and the owed calls.
    #[must_use]
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.runtime.dispatcher
    }

    /// Waits for the engine to end. An error is the reason for which it ended on its own.
    ///
    /// # Errors
    ///
    /// The store failed, or an invariant is broken. Nothing more is answered.
    pub async fn ended(mut self) -> Result<(), EngineFailure> {
        self.engine_ended().await
    }

    /// Ends with the effect of a crash: clients see broken streams, and changes that were not
    /// durable are lost. Returns when the store is released, so that another server can start from
    /// it.
    pub async fn crash(mut self) {
        self.runtime.abort();
        // The result is dropped, because a crash reports nothing.
        drop(self.engine_ended().await);
    }

    /// Notifies the clients, accepts no more work, answers the accepted requests, and ends.
    ///
    /// # Errors
    ///
    /// When the coordinator had failed before.
    pub async fn stop(mut self) -> Result<(), StartError> {
        self.front.go_away("the coordinator is shutting down").await;
        self.runtime.engine.handle.stop();
        // The engine first, so that its last replies are queued when the streams are finished.
        let ended = self.engine_ended().await;
        self.front.close_all().await;
        self.port.close_all().await;
        Ok(ended?)
    }

    /// Waits for the engine. Must be called only once.
    async fn engine_ended(&mut self) -> Result<(), EngineFailure> {
        engine::ended((&mut self.runtime.engine.ended).await)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.runtime.abort();
        self.front.close();
        self.port.abort();
    }
}
