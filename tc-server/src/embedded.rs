//! A coordinator inside another process: for tests, examples, and applications of one machine.
//!
//! The same parts as [`serve`](crate::serve) starts, on a store and a clock that are given, with
//! the native API alone: no configuration, no admin port, nothing that is shared with other servers
//! of the process.
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
use crate::over_http::{self, Caller, CallerError};
use crate::security::{Access, Listener};
use crate::serve::ports::{Port, serve_grpc};
use crate::serve::works::{self, Works, open_directory};
use crate::store::{MemoryStore, SEGMENT_BYTES, Store, StoreError};
use crate::turned_away::PortName;

/// Whoever embeds a coordinator connects to it from one machine.
const CONNECTIONS_MAX: usize = 8_192;
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// The coordinator could not start, or ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or the address is not one of this machine.
    #[error("listening on {address} failed")]
    Listen {
        /// Where it was to listen.
        address: String,
        /// What went wrong.
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
    Http(#[from] CallerError),
    /// This build's own API description is unreadable.
    #[error(transparent)]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Entry to the builder.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// What to start.
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
    /// A coordinator on the memory store that listens on a free loopback port.
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

    /// Keeps the records in a directory, which this process alone may use.
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

    /// Where to listen; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// The address part of XIDs; the address listened on, if not given.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// The core's limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bounds of messages and connections.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// How phase two is carried out.
    #[must_use]
    pub fn dispatch(mut self, settings: dispatch::Settings) -> Self {
        self.dispatch = settings;
        self
    }

    /// Which participants are called over HTTP, and how.
    #[must_use]
    pub fn over_http(mut self, settings: over_http::Settings) -> Self {
        self.over_http = settings;
        self
    }

    /// Where time comes from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts the coordinator; it answers when this returns.
    ///
    /// # Errors
    ///
    /// When the port or the store is not to be had.
    pub async fn start(self) -> Result<RunningServer, StartError> {
        let failed = |source| StartError::Listen { address: self.listen.clone(), source };
        let listener = TcpListener::bind(&self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let store = match self.store {
            StoreChoice::Given(store) => store,
            StoreChoice::Directory(directory) => open_directory(directory, SEGMENT_BYTES).await?,
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(WallClock::start()));
        let mut settings = engine::Settings::new(self.advertise.unwrap_or(address.to_string()));
        settings.limits = self.limits;
        let over_http = Caller::new(self.over_http)?;
        let works = Works::start(store, clock, settings, self.dispatch, over_http).await?;
        let Engine { handle, leadership, .. } = &works.engine;
        let dispatcher = works.dispatcher.clone();
        let over_http = works.over_http.clone();
        let front = GrpcFrontend::new(
            handle.clone(),
            leadership.clone(),
            dispatcher,
            self.bounds,
            over_http,
        );
        let connections_max = descriptors::connections_beside(CONNECTIONS_MAX);
        let acceptor = Acceptor::new(listener, connections_max, PortName::Grpc);
        let port = open_port(&front, acceptor).inspect_err(|_| works.abort())?;
        Ok(RunningServer { address, works, front, port })
    }
}

fn open_port(front: &GrpcFrontend, acceptor: Acceptor) -> Result<Port, StartError> {
    let listener = Listener::new(acceptor, None, SILENCE_LIMIT);
    Ok(serve_grpc(listener, front.routes()?, Access::Open, SILENCE_LIMIT))
}

/// A started coordinator. Dropping it is as hard as a crash: clients see broken streams, and what
/// was not durable is lost.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    works: Works,
    front: GrpcFrontend,
    port: Port,
}

impl RunningServer {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The door to its engine.
    #[must_use]
    pub fn engine(&self) -> &EngineHandle {
        &self.works.engine.handle
    }

    /// Who is connected and what phase two is owed.
    #[must_use]
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.works.dispatcher
    }

    /// Waits for the engine to end; an error says why without having been asked to.
    ///
    /// # Errors
    ///
    /// The store failed, or an invariant is broken: nothing is answered any more.
    pub async fn ended(mut self) -> Result<(), EngineFailure> {
        self.engine_ended().await
    }

    /// Ends as hard as a crash: clients see broken streams, and what was not durable is lost.
    /// Returns when the store is let go, so that another server can start from it.
    pub async fn crash(mut self) {
        self.works.abort();
        // However it ended: a crash reports nothing.
        drop(self.engine_ended().await);
    }

    /// Tells the clients, takes no further work, answers what was taken in, and ends.
    ///
    /// # Errors
    ///
    /// When the coordinator had failed before.
    pub async fn stop(mut self) -> Result<(), StartError> {
        self.front.go_away("the coordinator is shutting down").await;
        self.works.engine.handle.stop();
        let ended = self.engine_ended().await;
        self.front.close_all().await;
        self.port.close_all().await;
        Ok(ended?)
    }

    /// To be waited for once.
    async fn engine_ended(&mut self) -> Result<(), EngineFailure> {
        works::ended((&mut self.works.engine.ended).await)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.works.abort();
        self.front.close();
        self.port.abort();
    }
}
