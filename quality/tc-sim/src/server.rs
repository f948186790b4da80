//! A coordinator's process: the real engine, dispatcher and gRPC front end on virtual time.
//!
//! Left out of the product's process are what carries bytes (HTTP/2, TLS, tokens), the admin port,
//! the command line and the embedded store; [`crate::network`] and [`crate::store`] stand for the
//! first and the last.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use handfast_core::Timestamp;
use handfast_server::clock::Clock;
use handfast_server::dispatch::{self, Dispatcher, PhaseTwo};
use handfast_server::engine::{self, Engine, EngineFailure, EngineHandle};
use handfast_server::grpc::{Bounds, GrpcFrontend};
use handfast_server::over_http::Caller;
use handfast_server::store::Store;

use crate::network::Network;
use crate::store::{Disk, SimStore};
use crate::world::{MS, Owner, SECOND, World};

/// What the coordinators' clocks say at the start, in milliseconds.
const STARTED_AT_MS: u64 = 1_700_000_000_000;

/// A machine that a coordinator runs on.
pub(crate) struct Server {
    world: Arc<World>,
    index: usize,
    disk: Arc<Disk>,
    network: Arc<Network>,
    /// How far its wall clock is ahead of virtual time, in milliseconds; behind if below 0.
    ahead_ms: AtomicI64,
    process: Mutex<Option<Process>>,
}

/// A coordinator that answers.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) front: GrpcFrontend,
    pub(crate) engine: EngineHandle,
}

impl Server {
    pub(crate) fn new(
        world: &Arc<World>,
        index: usize,
        disk: &Arc<Disk>,
        network: &Arc<Network>,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            index,
            disk: Arc::clone(disk),
            network: Arc::clone(network),
            ahead_ms: AtomicI64::new(0),
            process: Mutex::new(None),
        })
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Server(self.index)
    }

    /// The process, if it listens.
    pub(crate) fn process(&self) -> Option<Process> {
        self.lock().clone()
    }

    /// Starts the process.
    pub(crate) fn start(self: &Arc<Self>) {
        let server = Arc::clone(self);
        self.world.log(self.owner(), || "starts".to_owned());
        self.world.spawn(self.owner(), async move {
            if let Err(failure) = server.serve().await {
                server.stopped(&failure);
            }
        });
    }

    /// Kills the process; its connections break. The supervisor starts another one after a while.
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

    /// Lets go of the process.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    /// Sets the wall clock of the machine, which a process looks at when it starts.
    pub(crate) fn set_clock(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    async fn serve(&self) -> Result<(), EngineFailure> {
        let world = &self.world;
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        let clock: Arc<dyn Clock> = Arc::new(SimClock { world: Arc::clone(world), ahead_ms });
        let seed = world.draw(crate::random::Random::draw);
        let (dispatcher, timer) = Dispatcher::prepare(Arc::clone(&clock), dispatching(), seed);
        world.spawn(self.owner(), timer);
        let (world, disk) = (Arc::clone(world), Arc::clone(&self.disk));
        let store: Arc<dyn Store> = Arc::new(SimStore::new(world, disk, self.index));
        let phase_two: Arc<dyn PhaseTwo> = Arc::new(dispatcher.clone());
        let prepared = Engine::prepare(store, clock, deciding(), phase_two).await?;
        let engine = prepared.handle;
        let (bounds, nobody) = (Bounds::default(), Caller::nobody());
        let front =
            GrpcFrontend::new(engine.clone(), prepared.leadership, dispatcher, bounds, nobody);
        self.world.spawn(self.owner(), front.clone().keep_watch());
        *self.lock() = Some(Process { front, engine });
        prepared.run.await
    }

    /// The engine has ended: as the product does, the process ends with it.
    fn stopped(self: &Arc<Self>, failure: &EngineFailure) {
        self.world.log(self.owner(), || format!("stops: {failure}"));
        match failure {
            EngineFailure::Store(_) => {}
            EngineFailure::Load(error) => {
                self.world.violate("recorded", format!("{} cannot load: {error}", self.owner()));
            }
            EngineFailure::Invariant(what) => {
                self.world.violate("total", format!("{}: {what}", self.owner()));
            }
        }
        self.crash(self.world.between(100 * MS, SECOND));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("index", &self.index).finish_non_exhaustive()
    }
}

fn deciding() -> engine::Settings {
    engine::Settings { batch_max: 64, ..engine::Settings::new("sim:1") }
}

fn dispatching() -> dispatch::Settings {
    dispatch::Settings {
        retry_delay_ms_min: 50,
        retry_delay_ms_max: 2_000,
        answer_timeout_ms: 3_000,
        batch_branches_max: 8,
        ..dispatch::Settings::default()
    }
}

/// A process's clock, as the product's: the machine's as it stood at the start, and on from there.
struct SimClock {
    world: Arc<World>,
    ahead_ms: i64,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let shown = (STARTED_AT_MS + self.world.now() / MS).saturating_add_signed(self.ahead_ms);
        Timestamp(shown)
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
