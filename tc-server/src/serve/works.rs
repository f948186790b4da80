//! What works behind the ports: dispatcher and engine, started in that order.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::{JoinError, JoinHandle};

use crate::clock::Clock;
use crate::dispatch::{self, Dispatcher, PhaseTwo, ProcessRegistration};
use crate::engine::{self, Engine, EngineFailure};
use crate::over_http::Caller;
use crate::seata::Uncalled;
use crate::store::{EmbeddedStore, Store, StoreError};

/// A coordinator without ports.
#[derive(Debug)]
pub(crate) struct Works {
    pub(crate) dispatcher: Dispatcher,
    /// Lets time pass for the dispatcher, and tells the engine of branches that are asked nothing,
    /// until it is aborted.
    pub(crate) background: JoinHandle<()>,
    pub(crate) engine: Engine,
    /// The engine's, held here as well: its end must not wait for the store's, on a thread that has
    /// clients and signals to listen to.
    pub(crate) store: Arc<dyn Store>,
    /// Calls participants over HTTP.
    pub(crate) over_http: Caller,
    /// Where it takes its calls.
    pub(crate) seats: Vec<ProcessRegistration>,
}

impl Works {
    /// Takes the lead in the store; it answers when this returns.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: engine::Settings,
        dispatch: dispatch::Settings,
        over_http: Caller,
    ) -> Result<Self, EngineFailure> {
        let (dispatcher, timer) = Dispatcher::prepare(Arc::clone(&clock), dispatch, rand::random());
        let uncalled = Arc::new(Uncalled::before(dispatcher.clone()));
        let phase_two: Arc<dyn EffectSink> = Arc::<Uncalled>::clone(&uncalled);
        let engine = Engine::start(Arc::clone(&store), clock, settings, phase_two).await?;
        let handle = engine.handle.clone();
        let background = tokio::spawn(async move {
            tokio::join!(timer, uncalled.tell(&handle));
        });
        let seats = over_http.connect(&dispatcher, &engine.handle);
        Ok(Self { dispatcher, background, engine, store, over_http, seats })
    }

    /// Ends without waiting for anything.
    pub(crate) fn abort(&self) {
        self.engine.ended.abort();
        self.background.abort();
    }
}

/// Opens the embedded store. Opening waits for the disk, which must not hold up the runtime of
/// whoever embeds us.
pub(crate) async fn open_directory(
    directory: PathBuf,
    segment_bytes: u64,
) -> Result<Arc<dyn Store>, StoreError> {
    let opened = directory.clone();
    let open = move || EmbeddedStore::open_with(&opened, segment_bytes);
    match tokio::task::spawn_blocking(open).await {
        Ok(store) => Ok(Arc::new(store?)),
        // The storage engine may panic where the disk is full: that is its way to fail.
        Err(error) => Err(StoreError::Open { directory, source: io::Error::other(error) }),
    }
}

/// Lets go of a store, which waits for the disk, on a thread where nobody minds. What is not waited
/// for any more goes on; nothing that was acknowledged depends on it.
pub(crate) fn close(store: Option<Arc<dyn Store>>) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || drop(store))
}

/// How the engine's task ended. A panic is a broken invariant: the state that met it is dropped
/// with the task, and nothing is answered from it.
pub(crate) fn ended(
    joined: Result<Result<(), EngineFailure>, JoinError>,
) -> Result<(), EngineFailure> {
    match joined {
        Ok(ended) => ended,
        Err(error) if error.is_panic() => {
            Err(EngineFailure::Invariant(message_of(&*error.into_panic())))
        }
        Err(_cancelled) => Ok(()),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it says nothing more").to_owned()
}
