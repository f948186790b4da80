//! A coordinator inside another process: for tests, examples, and applications of one machine.
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

use handfast_core::Limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::{Clock, WallClock};
use crate::dispatch::{self, Dispatcher};
use crate::engine::{self, Engine, EngineFailure, EngineHandle};
use crate::grpc::{self, Bounds, Front, ServeError};
use crate::store::{EmbeddedStore, MemoryStore, Store, StoreError};

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
    /// The listener failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
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
            StoreChoice::Directory(directory) => open(directory).await?,
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(WallClock::start()));
        let seed = clock.now().0;
        let (dispatcher, timer) = Dispatcher::start(Arc::clone(&clock), self.dispatch, seed);
        let mut settings = engine::Settings::new(self.advertise.unwrap_or(address.to_string()));
        settings.limits = self.limits;
        let engine = Engine::start(store, clock, settings, Arc::new(dispatcher.clone())).await?;
        let front =
            Front::new(engine.handle.clone(), engine.standing, dispatcher.clone(), self.bounds);
        let routes = front.routes()?;
        let (shutdown, asked) = oneshot::channel::<()>();
        let served = tokio::spawn(grpc::serve(listener, routes, async move {
            // A dropped sender asks for it as well.
            drop(asked.await);
        }));
        let engine_ended = engine.ended;
        let parts = Parts { shutdown, served, engine_ended, timer };
        Ok(RunningServer { address, engine: engine.handle, dispatcher, front, parts: Some(parts) })
    }
}

/// A started coordinator. Dropping it is as hard as a crash: clients see broken streams, and what
/// was not durable is lost.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    engine: EngineHandle,
    dispatcher: Dispatcher,
    front: Front,
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    shutdown: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    engine_ended: JoinHandle<Result<(), EngineFailure>>,
    timer: JoinHandle<()>,
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
        &self.engine
    }

    /// Who is connected and what phase two is owed.
    #[must_use]
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Ends as hard as a crash: clients see broken streams, and what was not durable is lost.
    /// Returns when the store is let go, so that another server can start from it.
    pub async fn crash(mut self) {
        let Some(parts) = self.parts.take() else { return };
        parts.engine_ended.abort();
        drop(joined(parts.engine_ended.await));
        self.front.close();
        parts.timer.abort();
        parts.served.abort();
    }

    /// Tells the clients, takes no further work, answers what was taken in, and ends.
    ///
    /// # Errors
    ///
    /// When the coordinator had failed before.
    pub async fn stop(mut self) -> Result<(), StartError> {
        let Some(parts) = self.parts.take() else { return Ok(()) };
        self.front.go_away("the coordinator is shutting down").await;
        self.engine.stop();
        let ended = joined(parts.engine_ended.await);
        self.front.close();
        drop(parts.shutdown);
        let served = joined(parts.served.await);
        parts.timer.abort();
        ended.unwrap_or(Ok(()))?;
        Ok(served.unwrap_or(Ok(()))?)
    }
}

/// Opens the embedded store without blocking the runtime.
async fn open(directory: PathBuf) -> Result<Arc<dyn Store>, StoreError> {
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&directory)).await;
    match opened {
        Ok(store) => Ok(Arc::new(store?)),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A task's result; `None` when it was aborted. A panic goes on here.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        parts.engine_ended.abort();
        self.front.close();
        parts.timer.abort();
        parts.served.abort();
    }
}
