//! A coordinator's process: the real engine, dispatcher and gRPC front end on virtual time.
//!
//! Not in it are the transport (HTTP/2, TLS, tokens), the admin port, the command line and the
//! stores. [`crate::model::network`] stands for the transport, and [`crate::model::store`] for the
//! stores.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use handfast_core::Timestamp;
use handfast_server::clock::Clock;
use handfast_server::dispatch::{self, Dispatcher, EffectSink};
use handfast_server::engine::{self, Engine, EngineFailure, EngineHandle};
use handfast_server::grpc::{Bounds, GrpcFrontend};
use handfast_server::over_http::HttpCaller;
use handfast_server::store::Store;

use crate::judge::Judge;
use crate::model::network::Network;
use crate::model::store::{SimStore, StoreHost, address_of};
use crate::plan::{Mode, Plan};
use crate::random::Random;
use crate::world::{MS, Owner, SECOND, World};

/// The coordinators' wall clocks at the start, in milliseconds: late enough that epochs begin where
/// the clock stands, and early enough that they do not with a clock that was set back.
const STARTED_AT_MS: u64 = 1_775_000_000_000;

/// The limit of unfinished globals, and so of XIDs that are lent, of coordinators that have few. A
/// loan is then never as long as what clients keep in stock.
const FEW_GLOBALS: usize = 31;

/// A machine that a coordinator runs on.
pub(crate) struct Server {
    world: Arc<World>,
    judge: Arc<Judge>,
    index: usize,
    store: Arc<StoreHost>,
    network: Arc<Network>,
    /// The wall clock's offset from virtual time, in milliseconds.
    clock_offset_ms: AtomicI64,
    process: Mutex<Option<ServerProcess>>,
}

/// A coordinator's process that accepts connections.
#[derive(Clone, Debug)]
pub(crate) struct ServerProcess {
    pub(crate) front: GrpcFrontend,
    pub(crate) engine: EngineHandle,
}

impl Server {
    pub(crate) fn new(
        world: &Arc<World>,
        judge: &Arc<Judge>,
        index: usize,
        store: &Arc<StoreHost>,
        network: &Arc<Network>,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            judge: Arc::clone(judge),
            index,
            store: Arc::clone(store),
            network: Arc::clone(network),
            clock_offset_ms: AtomicI64::new(0),
            process: Mutex::new(None),
        })
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Server(self.index)
    }

    /// Returns the process, if it accepts connections.
    pub(crate) fn process(&self) -> Option<ServerProcess> {
        self.lock().clone()
    }

    /// Starts the process.
    pub(crate) fn start(self: &Arc<Self>) {
        let server = Arc::clone(self);
        self.world.log(self.owner(), || "starts".to_owned());
        self.world.spawn(self.owner(), async move {
            match Box::pin(server.serve()).await {
                Ok(()) => server.exit().await,
                Err(failure) => server.fail(&failure),
            }
        });
    }

    /// Kills the process, and breaks its connections. Another process starts after `down_for`.
    pub(crate) fn crash(self: &Arc<Self>, down_for: u64) {
        self.world.log(self.owner(), || "crashes".to_owned());
        *self.lock() = None;
        self.world.kill(self.owner());
        self.network.server_died(self.index);
        let server = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            server.world.sleep(down_for).await;
            server.start();
        });
    }

    /// Asks the process to stop, as a signal does. Returns whether there is one.
    pub(crate) fn stop(&self) -> bool {
        let Some(process) = self.process() else { return false };
        self.world.spawn(self.owner(), async move {
            process.front.go_away("the coordinator is shutting down").await;
            process.engine.stop();
        });
        true
    }

    /// Ends the process because its engine has stopped, when what is queued for clients has left.
    async fn exit(self: &Arc<Self>) {
        if let Some(process) = self.process() {
            process.front.close_all().await;
        }
        self.world.sleep(self.world.between(MS, 20 * MS)).await;
        self.crash(self.world.between(10 * MS, 4 * SECOND));
    }

    /// Drops the process.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    /// Sets the wall clock of the machine. A process reads it only when it starts.
    pub(crate) fn set_clock(&self, offset_ms: i64) {
        self.clock_offset_ms.store(offset_ms, Ordering::Relaxed);
    }

    async fn serve(&self) -> Result<(), EngineFailure> {
        let world = &self.world;
        let offset_ms = self.clock_offset_ms.load(Ordering::Relaxed);
        let clock: Arc<dyn Clock> = Arc::new(SimClock { world: Arc::clone(world), offset_ms });
        let seed = world.draw(Random::draw);
        let (dispatcher, timer) =
            Dispatcher::prepare(Arc::clone(&clock), dispatch_settings(), seed);
        world.spawn(self.owner(), timer);
        let store: Arc<dyn Store> = Arc::new(SimStore::open(&self.store, self.index));
        let phase_two: Arc<dyn EffectSink> = Arc::new(dispatcher.clone());
        let settings = engine_settings(&address_of(self.index), &world.plan);
        let prepared = Engine::prepare(store, clock, settings, phase_two);
        let engine = prepared.handle;
        let (bounds, no_http) = (Bounds::default(), HttpCaller::disabled());
        let front =
            GrpcFrontend::new(engine.clone(), prepared.leadership, dispatcher, bounds, no_http);
        self.world.spawn(self.owner(), front.clone().keep_watch());
        // Clients reach the process before its engine leads, as they do the ports of the product.
        *self.lock() = Some(ServerProcess { front, engine });
        prepared.run.await
    }

    /// Ends the process because its engine has ended, as the product does.
    fn fail(self: &Arc<Self>, failure: &EngineFailure) {
        self.world.log(self.owner(), || format!("stops: {failure}"));
        match failure {
            EngineFailure::Store(_) => {}
            EngineFailure::Load(error) => {
                self.judge.report("recorded", format!("{} cannot load: {error}", self.owner()));
            }
            EngineFailure::Closed(closure) => {
                self.judge.report("recorded", format!("{} finds: {closure}", self.owner()));
            }
            EngineFailure::Invariant(what) => {
                self.judge.report("total", format!("{}: {what}", self.owner()));
            }
        }
        self.crash(self.world.between(100 * MS, SECOND));
    }

    fn lock(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("index", &self.index).finish_non_exhaustive()
    }
}

fn engine_settings(address: &str, plan: &Plan) -> engine::Settings {
    let mut settings = engine::Settings { batch_max: 64, ..engine::Settings::new(address) };
    if plan.modes.contains(&Mode::FewXids) {
        settings.limits.globals_max = FEW_GLOBALS;
    }
    settings
}

fn dispatch_settings() -> dispatch::Settings {
    dispatch::Settings {
        retry_delay_ms_min: 50,
        retry_delay_ms_max: 2_000,
        answer_timeout_ms: 3_000,
        batch_branches_max: 8,
        ..dispatch::Settings::default()
    }
}

/// The clock of a process. As the product's, it reads the machine's clock once, at the start, and
/// runs on from there.
struct SimClock {
    world: Arc<World>,
    offset_ms: i64,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let true_ms = STARTED_AT_MS + self.world.now() / MS;
        Timestamp(true_ms.saturating_add_signed(self.offset_ms))
    }

    fn reach(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = at.0.saturating_sub(self.now().0);
        self.world.sleep(wait.saturating_mul(MS)).boxed()
    }
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Duration::from_micros(self.world.now());
        f.debug_struct("SimClock").field("now", &now).finish_non_exhaustive()
    }
}
