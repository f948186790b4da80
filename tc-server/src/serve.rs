//! Runs a coordinator from its configuration to its end: starts the parts in order, and stops them
//! in reverse order.
//!
//! The binary and the tests use the same entry point: [`Server::start`] returns a [`RunningServer`]
//! with the addresses that it listens on.

mod alerts;
mod listeners;
pub(crate) mod ports;
mod preface_timeout;
pub(crate) mod runtime;
mod start_error;
pub(crate) mod stores;
mod telemetry;
pub(crate) mod write_timeout;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::admin::{self, About, AdminState, Readiness, SeataAddress};
use crate::clock::{Clock, WallClock};
use crate::config::{Config, ConfigError, StoreKind};
use crate::descriptors;
use crate::dispatch::{Dispatcher, ProcessRegistration};
use crate::engine::{self, Engine, EngineFailure, Leadership};
use crate::grpc::{self, GrpcFrontend};
use crate::metrics;
use crate::over_http::{self, HttpCaller, Participant, Prefix, Secret};
use crate::peers::Peers;
use crate::seata;
use crate::security::{Access, Reloaded, TokensError};
use crate::spans::Spans;
use crate::spans::export::{Export, ExportTask};
use crate::store::Store;
use crate::turned_away;
use crate::webhook::Alerts;
use listeners::Listeners;
use ports::{Port, serve_admin, serve_grpc, serve_seata};
use runtime::Runtime;
use stores::OpenedStore;

pub use start_error::StartError;

/// A coordinator that has not been started.
#[derive(Debug)]
pub struct Server;

/// A coordinator that listens on its ports. Dropping it has the effect of a crash; to stop it call
/// [`shutdown`](Self::shutdown).
#[derive(Debug)]
#[must_use]
pub struct RunningServer {
    /// The address of the native API.
    pub grpc_address: SocketAddr,
    /// The address of REST, health and metrics.
    pub admin_address: SocketAddr,
    /// The address for clients of Seata, if that port is enabled.
    pub seata_address: Option<SocketAddr>,
    /// `None` once its end has been awaited.
    engine: Option<Engine>,
    /// `None` once it is closed.
    store: Option<Arc<dyn Store>>,
    store_name: &'static str,
    front: GrpcFrontend,
    readiness: Readiness,
    access: Access,
    grpc: Port,
    admin: Port,
    seata: Option<Port>,
    background: Vec<JoinHandle<()>>,
    /// The sending of spans, if any are sent.
    export: Option<ExportTask>,
    /// The registrations of participants over HTTP, which are called for as long as these live.
    _registrations: Vec<ProcessRegistration>,
    shutdown_limit: Duration,
}

/// How a shutdown ended. In either case no acknowledged change is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// Every accepted request was answered.
    Drained,
    /// The time limit passed with connections or requests still open.
    CutShort,
}

impl Server {
    /// Starts a coordinator on the current runtime, and waits until it answers.
    ///
    /// # Errors
    ///
    /// The error names the part that did not start. Nothing is left running.
    pub async fn start(config: Config) -> Result<RunningServer, StartError> {
        let mut server = Self::launch(config).await?;
        server.until_leading().await?;
        Ok(server)
    }

    /// Starts a coordinator on the current runtime. Its ports are served when this returns. Until
    /// the coordinator has gained the lead in its store, they answer only with its leadership.
    ///
    /// The ports are bound first, so that XIDs carry the actual port where port 0 was configured.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], but for a store that cannot be led: see [`RunningServer::failed`].
    pub async fn launch(config: Config) -> Result<RunningServer, StartError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(ConfigError { problems }.into());
        }
        let config = descriptors::fit(config)?;
        let listeners = Listeners::open(&config).await?;
        let advertised = config.advertised_address.clone();
        let advertised = advertised.unwrap_or_else(|| listeners.grpc_address.to_string());
        // Deadlines follow this reading of the wall clock, and no later one (GRACE).
        let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
        // Before the runtime, whose parts look up their metrics when they start.
        metrics::recorder();
        let node = stores::node(&config, listeners.listening());
        let OpenedStore { store, records } = stores::open(&config, node.clone()).await?;
        let (seeing, seen) = watch::channel(Vec::new());
        let announce = store.announce(seeing);
        let peers = || Peers::new(&config, seen);
        let peers = config.store.is_shared().then(peers).transpose()?;
        let sending = alerts::open(&config, &listeners.audit, &advertised, &node)?;
        let (spans, export) = telemetry::open(&config, &advertised, &node)?;
        let out = (sending.alerts(), spans);
        let runtime = launch_runtime(&config, store, &clock, &advertised, out)?;
        let dispatcher = runtime.dispatcher.clone();
        let store = config.store.name();
        let seata = if config.store.is_shared() {
            SeataAddress::of(&node)
        } else {
            listeners.seata_address(&advertised)
        };
        let started_at = clock.now();
        let advertised_address = advertised;
        let is_encrypted = config.tls.certificate.is_some();
        let about = About {
            node,
            store,
            records,
            advertised_address,
            started_at,
            seata,
            peers,
            is_encrypted,
        };
        let mut running = serve(runtime, listeners, &config, clock, about)?;
        running.export = export.map(Export::start);
        running.background.push(tokio::spawn(announce));
        let sending = sending.start(&dispatcher, running.front.relay_reports(), &config);
        running.background.extend(sending);
        Ok(running)
    }
}

fn launch_runtime(
    config: &Config,
    store: Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    advertised_address: &str,
    (alerts, spans): (Alerts, Spans),
) -> Result<Runtime, StartError> {
    let settings = engine::Settings {
        limits: config.limits.clone(),
        queue_max: config.engine.queue_max,
        batch_max: config.engine.batch_max,
        alerts,
        ..engine::Settings::new(advertised_address)
    };
    let dispatch = (&config.dispatch).into();
    let over_http = open_caller(config)?;
    Ok(Runtime::launch(store, Arc::clone(clock), settings, dispatch, over_http, spans))
}

fn open_caller(config: &Config) -> Result<HttpCaller, StartError> {
    let wrong = |error: &dyn std::error::Error| StartError::Http(error.to_string());
    let participants = config.http.participants.iter().map(|it| {
        let prefix = Prefix::parse(&it.prefix).map_err(|error| wrong(&error))?;
        let secret = Secret::read(&it.secret_file).map_err(|error| wrong(&error))?;
        Ok(Participant { prefix, secret })
    });
    let settings = over_http::Settings {
        participants: participants.collect::<Result<_, StartError>>()?,
        timeout: Duration::from_millis(config.http.timeout_ms),
        response_bytes_max: config.http.response_bytes_max,
        calls_max: config.http.calls_max,
    };
    HttpCaller::new(settings).map_err(|error| wrong(&error))
}

/// Starts serving the ports.
fn serve(
    runtime: Runtime,
    listeners: Listeners,
    config: &Config,
    clock: Arc<dyn Clock>,
    about: About,
) -> Result<RunningServer, StartError> {
    let Listeners { access, audit, cookie_seal, grpc, grpc_address, admin, admin_address, seata } =
        listeners;
    let seata_address = seata.as_ref().map(|(_, address, _)| *address);
    let Runtime { dispatcher, background, engine, store, over_http, registrations } = runtime;
    let (handle, leadership) = (engine.handle.clone(), engine.leadership.clone());
    let readiness = Readiness::new(leadership.clone());
    let (engine_handle, seen) = (handle.clone(), leadership.clone());
    let front =
        GrpcFrontend::new(engine_handle, seen, dispatcher.clone(), bounds(config), over_http);
    let routes = front.routes().map_err(|error| {
        engine.ended.abort();
        background.abort();
        StartError::Grpc(error.to_string())
    })?;
    let seata = seata.map(|(acceptor, _, members)| {
        let front = seata_frontend(config, &engine, &dispatcher, members);
        serve_seata(acceptor, opened(config.store, leadership.clone()), front)
    });
    let is_opened = opened(config.store, leadership);
    let (store_name, pass_on) = (about.store, front.pass_on(about.peers.clone()));
    let grpc_silence_limit = Duration::from_millis(config.grpc.silence_timeout_ms);
    let admin_silence_limit = Duration::from_millis(config.admin.silence_timeout_ms);
    let state = AdminState::new(
        handle,
        dispatcher,
        Arc::clone(&clock),
        (access.clone(), audit, cookie_seal),
        readiness.clone(),
        config.admin.clone(),
        about,
    )
    .with_relays_of(&front);
    let observing = tokio::spawn(readiness.clone().observe(clock));
    Ok(RunningServer {
        grpc_address,
        admin_address,
        seata_address,
        engine: Some(engine),
        store: Some(store),
        store_name,
        front,
        readiness,
        grpc: serve_grpc(grpc, is_opened, routes, access.clone(), pass_on, grpc_silence_limit),
        admin: serve_admin(admin, admin::router(state.clone()), admin_silence_limit),
        seata,
        access,
        _registrations: registrations,
        background: vec![
            background,
            tokio::spawn(metrics::keep_up(metrics::recorder())),
            tokio::spawn(turned_away::log_periodically()),
            observing,
            tokio::spawn(admin::keep_recent(state)),
        ],
        export: None,
        shutdown_limit: Duration::from_millis(config.shutdown_limit_ms),
    })
}

fn seata_frontend(
    config: &Config,
    engine: &Engine,
    dispatcher: &Dispatcher,
    members: Option<seata::Members>,
) -> seata::SeataFrontend {
    let rows_max = config.limits.rows_per_request_max;
    let settings = seata::Settings { rows_max, ..(&config.seata).into() };
    let (handle, leadership) = (engine.handle.clone(), engine.leadership.clone());
    seata::SeataFrontend::new(handle, leadership, dispatcher.clone(), settings, members)
}

/// Completes when clients can be served. On a shared store they are at once: a node that follows
/// sends them to the leader. On a store of this machine alone a connection waits, for as long as
/// the records are read: a client that is told to go elsewhere has nowhere to go.
async fn opened(store: StoreKind, mut leadership: watch::Receiver<Leadership>) {
    if !store.is_shared() {
        // An error means that the engine has ended, and the port is closed.
        let _ = leadership.wait_for(|it| *it != Leadership::Gaining).await;
    }
}

fn bounds(config: &Config) -> grpc::Bounds {
    grpc::Bounds {
        message_bytes_max: config.grpc.message_bytes_max,
        queue_messages_max: config.grpc.queue_messages_max,
        rows_max: config.limits.rows_per_request_max,
        ..grpc::Bounds::default()
    }
}

impl RunningServer {
    /// Waits until the coordinator leads, and so answers.
    ///
    /// # Errors
    ///
    /// The store cannot be led, or its records cannot be loaded.
    pub async fn until_leading(&mut self) -> Result<(), EngineFailure> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let leads = engine.until_leading().await;
        if leads.is_err() {
            self.engine = None;
        }
        // Not left to the task that follows the leadership: a probe may come before that task runs.
        self.front.show_health().await;
        leads
    }

    /// Logs the addresses that the server listens on.
    pub fn log_addresses(&self) {
        let Self { grpc_address, admin_address, seata_address, store_name, .. } = self;
        tracing::info!(
            %grpc_address, %admin_address, ?seata_address, store = store_name, "listening"
        );
    }

    /// Waits for the engine to end on its own, because the store failed. The caller must then shut
    /// the server down and stop the process.
    pub async fn failed(&mut self) -> EngineFailure {
        let ended = match &mut self.engine {
            Some(engine) => (&mut engine.ended).await,
            None => return std::future::pending().await,
        };
        self.engine = None;
        match engine::ended(ended) {
            // The engine was asked to end, and the shutdown that asked reports how.
            Ok(()) => std::future::pending().await,
            Err(failure) => failure,
        }
    }

    /// Reads the tokens file again. Returns `None` if none is configured. If a token is no longer
    /// valid, waiting calls made with it end, and every stream is ended, so that no stream opened
    /// with it continues: clients reconnect on their own and repeat unanswered requests.
    ///
    /// # Errors
    ///
    /// The file cannot be used; the tokens stay as they were.
    pub fn reload_tokens(&self) -> Option<Result<Reloaded, TokensError>> {
        let Access::Tokens(tokens) = &self.access else { return None };
        let reloaded = tokens.reload();
        if reloaded.as_ref().is_ok_and(|reloaded| reloaded.shut_out > 0) {
            self.front.end_streams("the tokens have changed");
        }
        Some(reloaded)
    }

    /// Stops the server: accepts no more work, answers the accepted requests, disconnects the
    /// clients, and ends within the configured limit.
    ///
    /// # Errors
    ///
    /// The store failed meanwhile. Changes that it did not store were not acknowledged.
    pub async fn shutdown(mut self) -> Result<ShutdownOutcome, EngineFailure> {
        let limit = Instant::now() + self.shutdown_limit;
        tracing::info!(limit_ms = self.shutdown_limit.as_millis(), "shutting down");
        // Probes fail and clients are sent away while the engine still takes requests in.
        self.readiness.stop();
        self.front.go_away("the coordinator is shutting down").await;
        self.engine.iter().for_each(|engine| engine.handle.stop());
        let drained = self.drain(limit).await;
        // Closed while the ports are: the disk and the clients may each take up to the limit.
        let store = runtime::close(self.store.take());
        // After the engine, so that the replies to everything it has taken in are queued already.
        self.front.close_all().await;
        let grpc_closed = self.grpc.close(limit).await;
        let admin_closed = self.admin.close(limit).await;
        let seata_closed = match &mut self.seata {
            Some(seata) => seata.close(limit).await,
            None => true,
        };
        let store_closed = timeout_at(limit, store).await.is_ok();
        // Last, with the spans of all that was answered. Spans that are lost are no work cut short.
        if let Some(export) = &mut self.export
            && !export.finish(limit).await
        {
            tracing::warn!("spans not exported within the limit of the shutdown");
        }
        // A failure of the engine is returned only here: the ports are closed in any case.
        let all = drained? && grpc_closed && admin_closed && seata_closed && store_closed;
        let ended = if all { ShutdownOutcome::Drained } else { ShutdownOutcome::CutShort };
        tracing::info!(?ended, "shut down");
        Ok(ended)
    }

    /// Returns whether the engine has answered everything within the limit. If not, the engine is
    /// not dropped: that could wait for a disk that hangs.
    async fn drain(&mut self, limit: Instant) -> Result<bool, EngineFailure> {
        let Some(engine) = &mut self.engine else { return Ok(true) };
        match timeout_at(limit, &mut engine.ended).await {
            Ok(ended) => engine::ended(ended).map(|()| true),
            Err(_elapsed) => Ok(false),
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.front.close();
        self.engine.iter().for_each(|engine| engine.ended.abort());
        [&self.grpc, &self.admin].into_iter().chain(&self.seata).for_each(Port::abort);
        self.background.iter().for_each(JoinHandle::abort);
    }
}
