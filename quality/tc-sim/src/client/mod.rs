//! A service's process: the real link protocol, and around it models of what needs sockets, sqlx
//! or tokio in the product.
//!
//! | here | stands for |
//! | --- | --- |
//! | this file | `link/shell.rs`: carries out what the real `Protocol` decides |
//! | [`at`] | `at/commit.rs`, `at/replay.rs`, `at/running.rs` |
//! | [`phase_two`] | `link/lanes.rs`, `at/phase_two.rs`, `at/rollback.rs`, `at/restore.rs` |
//! | [`fenced`] | `tcc/resource.rs`, `tcc/phase_two.rs`, `fence/local.rs` |
//! | [`xa`], [`sweep`] | `twophase/phase_one.rs`, `finish.rs`, `hold.rs`, `sweep.rs` |
//! | [`relay`] | `outbox/relay/mod.rs`, `settle.rs`, `lanes.rs`, `outbox/table.rs` |
//! | [`consumer`] | `outbox/inbox.rs` |
//! | [`saga`] | `saga/participant.rs`, `saga/started.rs` |
//! | [`global`] | `tm/global.rs`, `coordinator.rs` |
//! | [`business`] | the application, and calls from service to service |

mod at;
mod business;
mod consumer;
mod fenced;
mod global;
mod phase_two;
mod relay;
mod saga;
mod sweep;
mod xa;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use handfast::Error;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{BranchOutcome, Mode, Resource, ServerFrame};
use handfast_rm_core::link::{ConnectionId, Event, Failure, Moment, Protocol, RequestId, Settings};

use crate::cluster::Cluster;
use crate::database::{Event as Told, EventId, Held};
use crate::fault::Fault;
use crate::network::Connection;
use crate::world::{MS, Owner, World};
use at::AtResource;
use fenced::tcc_resource_of;
use phase_two::{Lane, LaneMode};
use xa::xa_resource_of;

pub(crate) use at::{BranchError, Edit, Tell};
pub(crate) use business::Shop;
pub(crate) use fenced::Try;
pub(crate) use saga::saga_resource_of;

/// How long a request may go unanswered.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// One life of a service's process.
pub(crate) struct ClientProcess {
    world: Arc<World>,
    cluster: Arc<Cluster>,
    index: usize,
    /// Which life of this service it is.
    life: u64,
    started_at: u64,
    alive: AtomicBool,
    resources: Vec<Arc<AtResource>>,
    lanes: Vec<Lane>,
    /// Sessions that stay with branches that they have prepared.
    held: Mutex<BTreeMap<String, Held>>,
    state: Mutex<State>,
}

struct State {
    protocol: Protocol,
    waiters: BTreeMap<RequestId, oneshot::Sender<Result<Answer, Error>>>,
    /// The connection, or the attempts to make one.
    connections: BTreeMap<ConnectionId, Arc<Connection>>,
    /// When the protocol is ticked next.
    alarm: Option<u64>,
}

impl ClientProcess {
    /// A process that wants to connect, with every database as its resource.
    pub(crate) fn start(cluster: &Arc<Cluster>, index: usize, life: u64) -> Arc<Self> {
        let world = &cluster.world;
        let settings = Settings {
            client_id: format!("client-{index}-{life}"),
            application: format!("service-{index}"),
            endpoints: (0..cluster.servers.len()).map(|server| format!("sim:{server}")).collect(),
            connect_timeout: Duration::from_secs(2),
            back_off_base: Duration::from_millis(50),
            back_off_max: Duration::from_secs(1),
            requests_max: 1_000,
        };
        let seed = world.draw(crate::random::Random::draw);
        let resources = cluster.databases.iter().map(|it| AtResource::new(it, index, life));
        let state = State {
            protocol: Protocol::new(settings, seed),
            waiters: BTreeMap::new(),
            connections: BTreeMap::new(),
            alarm: None,
        };
        let process = Arc::new(Self {
            world: Arc::clone(world),
            cluster: Arc::clone(cluster),
            index,
            life,
            started_at: world.now(),
            alive: AtomicBool::new(true),
            resources: resources.collect(),
            lanes: lanes(cluster),
            held: Mutex::default(),
            state: Mutex::new(state),
        });
        process.world.log(process.owner(), || format!("starts, life {life}"));
        for resource in &process.resources {
            let id = resource.database.resource_id();
            let label = format!("{:?}", resource.database.flavour);
            let wire = Resource { id, mode: Mode::At.into(), label };
            process.step(|protocol, _| protocol.register_resource(wire));
        }
        for lane in process.lanes.iter().filter(|lane| lane.mode() != LaneMode::At) {
            let wire = lane.resource();
            process.step(|protocol, _| protocol.register_resource(wire));
        }
        process.step(|protocol, now| protocol.tick(now));
        process
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Client(self.index)
    }

    /// The process is no more: nothing that arrives finds it. Its tasks are killed by its owner.
    pub(crate) fn die(&self) {
        self.alive.store(false, Ordering::Relaxed);
        let mut state = self.lock();
        state.alarm = None;
        drop(std::mem::take(&mut state.connections));
        drop(std::mem::take(&mut state.waiters));
        drop(state);
        drop(std::mem::take(&mut *self.sessions()));
    }

    /// A point between two steps, at which the process may die.
    pub(crate) async fn crash_point(self: &Arc<Self>, name: &str) {
        if self.world.strikes(Fault::ClientCrashAtPoint) {
            self.world.log(self.owner(), || format!("dies at {name}"));
            self.cluster.crash_client(self.index, self.world.between(10 * MS, 5_000 * MS));
            // Dropped before anything else is polled.
            std::future::pending().await
        }
    }

    /// An event that tells that, under an id of its own.
    fn event_of(&self, tell: Tell) -> Told {
        let id = EventId(self.world.between(1, u64::MAX));
        Told { id, key: tell.key, units: tell.units }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame has arrived.
    pub(crate) fn receive(self: &Arc<Self>, connection: ConnectionId, frame: ServerFrame) {
        self.on_own_task(move |process| {
            process.step(|protocol, now| protocol.receive(now, connection, frame.messages));
        });
    }

    /// A connection is gone.
    pub(crate) fn disconnected(self: &Arc<Self>, connection: ConnectionId, failure: Failure) {
        self.on_own_task(move |process| {
            process.lock().connections.remove(&connection);
            process.step(|protocol, now| protocol.disconnected(now, connection, failure));
        });
    }

    /// Sends a request and waits for its answer, for the request deadline plus `wait`.
    ///
    /// # Errors
    /// As the product's: no answer, or a refusal.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        name: &'static str,
        ask: Ask,
        wait: Duration,
    ) -> Result<Answer, Error> {
        let (waiter, answer) = oneshot::channel();
        let patience = REQUEST_DEADLINE.saturating_add(wait);
        let id = self.step(|protocol, now| protocol.submit(now, name, ask, now.after(patience)))?;
        self.lock().waiters.insert(id, waiter);
        let answer = answer.await.unwrap_or(Err(Error::Closed))?;
        if let Answer::Rejected(rejection) = answer {
            return Err(handfast::Rejection::from(rejection).into());
        }
        Ok(answer)
    }

    /// Tells the coordinator what became of branches in phase two.
    fn finished(self: &Arc<Self>, outcomes: Vec<BranchOutcome>) {
        self.step(|protocol, _| protocol.finished(outcomes));
    }

    /// What the world does to a process happens on a task of that process, so that a frozen one
    /// notices when it goes on.
    fn on_own_task(self: &Arc<Self>, act: impl FnOnce(&Arc<Self>) + Send + 'static) {
        if self.alive.load(Ordering::Relaxed) {
            let process = Arc::clone(self);
            self.world.spawn(self.owner(), async move { act(&process) });
        }
    }

    /// One step of the protocol, and everything that follows from it at once.
    fn step<R>(self: &Arc<Self>, step: impl FnOnce(&mut Protocol, Moment) -> R) -> R {
        let now = Moment(Duration::from_micros(self.world.now() - self.started_at));
        let result = step(&mut self.lock().protocol, now);
        loop {
            let Some(event) = self.lock().protocol.next_event() else { break };
            self.carry_out(event);
        }
        self.send();
        self.set_alarm();
        result
    }

    fn carry_out(self: &Arc<Self>, event: Event) {
        match event {
            Event::Dial { connection, target } => {
                let dialling = Arc::clone(self).dial(connection, target.endpoint);
                self.world.spawn(self.owner(), dialling);
            }
            Event::HangUp { connection } => {
                let hung_up = self.lock().connections.remove(&connection);
                if let Some(connection) = hung_up {
                    connection.hang_up();
                }
            }
            Event::Greeted { hello, .. } => {
                self.world.log(self.owner(), || format!("greeted, epoch {}", hello.epoch));
            }
            Event::AttemptFailed { failure } => {
                self.world.log(self.owner(), || format!("not greeted: {failure:?}"));
            }
            Event::Disconnected { failure, .. } => {
                self.world.log(self.owner(), || format!("parted: {failure:?}"));
            }
            Event::Complete { id, result } => {
                let waiter = self.lock().waiters.remove(&id);
                if let Some(waiter) = waiter {
                    // Whoever asked may have given up.
                    let _gone = waiter.send(result.map_err(Error::from));
                }
            }
            Event::PhaseTwo(call) => self.put_in_lane(call),
            Event::ResourceRefused { refusal, .. } => {
                self.world.violate("total", format!("resource refused: {}", refusal.message));
            }
        }
    }

    async fn dial(self: Arc<Self>, connection: ConnectionId, endpoint: usize) {
        self.world.sleep(self.world.between(100, 3 * MS)).await;
        let process = self.cluster.servers[endpoint].process();
        let refused = || tonic::Status::unavailable("connection refused");
        let connected = process.ok_or_else(refused).and_then(|process| {
            self.cluster.network.connect(&self, connection, endpoint, &process)
        });
        match connected {
            Ok(wire) => {
                self.lock().connections.insert(connection, Arc::clone(&wire));
                if !self.step(|protocol, _| protocol.connected(connection)) {
                    // Another attempt was greeted meanwhile.
                    self.lock().connections.remove(&connection);
                    wire.hang_up();
                }
            }
            Err(status) => {
                let failure = Failure::Passing(status.message().into());
                self.step(|protocol, now| protocol.disconnected(now, connection, failure));
            }
        }
    }

    fn send(&self) {
        loop {
            let mut state = self.lock();
            let State { protocol, connections, .. } = &mut *state;
            let mut due = connections.iter().map(|(id, it)| (protocol.next_frame(*id), it));
            let due = due.find_map(|(frame, it)| Some((frame?, Arc::clone(it))));
            let Some((frame, connection)) = due else { return };
            drop(state);
            connection.send(&frame.decoded());
        }
    }

    /// Wakes the protocol when it wants to be.
    fn set_alarm(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some(Moment(next)) = state.protocol.next_deadline() else { return };
        // Rounded up: a tick a moment too early would find nothing due.
        let next = u64::try_from(next.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let at = self.started_at.saturating_add(next);
        if state.alarm.is_some_and(|alarm| alarm <= at) {
            return;
        }
        state.alarm = Some(at);
        drop(state);
        let process = Arc::clone(self);
        let sleep = self.world.sleep_until(at);
        self.world.spawn(self.owner(), async move {
            sleep.await;
            process.lock().alarm.take_if(|alarm| *alarm == at);
            process.step(|protocol, now| protocol.tick(now));
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One for each database and mode.
fn lanes(cluster: &Cluster) -> Vec<Lane> {
    let of_at = cluster
        .databases
        .iter()
        .map(|database| Lane::new(database.resource_id(), LaneMode::At, database.index));
    let modes = &cluster.world.plan.modes;
    let (has_tcc, has_sagas) =
        (modes.contains(&crate::Mode::Tcc), modes.contains(&crate::Mode::Saga));
    let of_tcc = cluster
        .databases
        .iter()
        .filter(|_| has_tcc)
        .map(|database| Lane::new(tcc_resource_of(database), LaneMode::Tcc, database.index));
    let of_sagas = cluster.databases.iter().filter(|_| has_sagas).map(|database| {
        Lane::new(saga_resource_of(database.index), LaneMode::Saga, database.index)
    });
    let has_xa = modes.contains(&crate::Mode::Xa);
    let of_xa = cluster
        .databases
        .iter()
        .filter(|database| has_xa && database.can_prepare())
        .map(|database| Lane::new(xa_resource_of(database), LaneMode::Xa, database.index));
    of_at.chain(of_tcc).chain(of_sagas).chain(of_xa).collect()
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, life) = (self.index, self.life);
        write!(f, "client {index}, life {life}")
    }
}
