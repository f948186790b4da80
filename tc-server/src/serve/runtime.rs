//! The parts behind the ports: dispatcher and engine, started in that order.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::dispatch::{self, Dispatcher, EffectSink, ProcessRegistration};
use crate::engine::{self, Engine};
use crate::over_http::HttpCaller;
use crate::seata::NoOpBranches;
use crate::spans::Spans;
use crate::store::{EmbeddedStore, Store, StoreError};

/// A coordinator without ports.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) dispatcher: Dispatcher,
    /// Runs the dispatcher's timer, and reports no-op branches to the engine, until it is aborted.
    pub(crate) background: JoinHandle<()>,
    pub(crate) engine: Engine,
    /// The engine's store, also held here: the end of the engine must not drop the store, and so
    /// wait for the disk, on a thread that serves clients and signals.
    pub(crate) store: Arc<dyn Store>,
    /// The client that calls participants over HTTP.
    pub(crate) over_http: HttpCaller,
    /// The registrations under which that client gets its calls.
    pub(crate) registrations: Vec<ProcessRegistration>,
}

impl Runtime {
    /// Starts the parts. The engine answers when it has gained the lead in the store.
    pub(crate) fn launch(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: engine::Settings,
        dispatch: dispatch::Settings,
        over_http: HttpCaller,
        spans: Spans,
    ) -> Self {
        let (dispatcher, timer) = Dispatcher::prepare(Arc::clone(&clock), dispatch, rand::random());
        dispatcher.export_spans(spans);
        let no_op_branches = Arc::new(NoOpBranches::new(dispatcher.clone()));
        // In front of the dispatcher: calls that need no process must not wait there for one.
        let effects: Arc<dyn EffectSink> = Arc::<NoOpBranches>::clone(&no_op_branches);
        let engine = Engine::launch(Arc::clone(&store), clock, settings, effects);
        let handle = engine.handle.clone();
        let background = tokio::spawn(async move {
            tokio::join!(timer, no_op_branches.report(&handle));
        });
        let registrations = over_http.connect(&dispatcher, &engine.handle);
        Self { dispatcher, background, engine, store, over_http, registrations }
    }

    /// Ends the parts without waiting.
    pub(crate) fn abort(&self) {
        self.engine.ended.abort();
        self.background.abort();
    }
}

/// Opens the embedded store on a blocking thread: opening waits for the disk, which must not block
/// the async runtime of an embedding process.
pub(crate) async fn open_directory(
    directory: PathBuf,
    segment_bytes: u64,
) -> Result<EmbeddedStore, StoreError> {
    let opened = directory.clone();
    let open = move || EmbeddedStore::open_with(&opened, segment_bytes);
    match tokio::task::spawn_blocking(open).await {
        Ok(store) => store,
        // The storage engine may panic if the disk is full. That counts as a failed open.
        Err(error) => Err(StoreError::Open { directory, source: io::Error::other(error) }),
    }
}

/// Drops a store on a blocking thread, since that waits for the disk. If the caller stops waiting,
/// the drop continues; no acknowledged change depends on it.
pub(crate) fn close(store: Option<Arc<dyn Store>>) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || drop(store))
}
