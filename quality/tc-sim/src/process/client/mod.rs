//! A service's process: the real link protocol, and around it models of the parts that need
//! sockets, sqlx or tokio in the product.
//!
//! | here | stands for |
//! | --- | --- |
//! | this file | `link/driver.rs`: executes what the real `Protocol` decides |
//! | [`at`] | `phase_one/commit.rs`, `phase_one/attempts.rs`, `at/running_branches.rs` |
//! | [`phase_two`] | `link/resource_queues.rs`, `at/phase_two/`: `rollback.rs`, `restore.rs` |
//! | [`guarded`] | `at/guarded/mod.rs`, the age of descriptions in `at/database/catalogue.rs` |
//! | [`fenced`] | `tcc/resource.rs`, `tcc/phase_two.rs`, `fence/local.rs` |
//! | [`xa`], [`sweep`] | `twophase/phase_one.rs`, `finish.rs`, `held_sessions.rs`, `sweep.rs` |
//! | [`relay`] | `outbox/relay/mod.rs`, `settle.rs`, `lanes.rs`, `outbox/table.rs` |
//! | [`consumer`] | `outbox/inbox.rs` |
//! | [`saga`] | `saga/participant.rs`, `saga/started.rs` |
//! | [`global`] | `tm/global.rs`, `coordinator.rs`, `link/begin.rs` |
//! | [`application`] | the application, and calls from service to service |
//! | [`services`] | the supervisor that starts processes again |

mod application;
mod at;
mod consumer;
mod fenced;
mod global;
mod guarded;
mod phase_two;
mod relay;
mod saga;
mod services;
mod sweep;
mod xa;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use handfast::Error;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{BranchOutcome, Mode, Resource, ServerFrame};
use handfast_rm_core::link::{
    ConnectionFailure, ConnectionId, Event, Moment, Protocol, RequestId, Settings,
};

use super::installation::Installation;
use crate::judge::Judge;
use crate::model::database::{Database, HeldConnection};
use crate::model::network::{Connection, Endpoint};
use crate::model::store::address_of;
use crate::model::values::{self, EventId};
use crate::plan::{self, Fault};
use crate::random::Random;
use crate::workload::edit::EventDraft;
use crate::workload::points::tcc_resource_id;
use crate::workload::saga::saga_resource_id;
use crate::workload::transfers::xa_resource_id;
use crate::world::{MS, Owner, World};
use at::AtResource;
use phase_two::{CallQueue, ResourceMode};

pub(crate) use services::ClientServices;

/// How long a request may stay unanswered.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// The answer to a request, or why there is none.
type Answered = Result<ServerBody, Error>;

/// One life of a service's process.
pub(crate) struct ClientProcess {
    world: Arc<World>,
    judge: Arc<Judge>,
    installation: Arc<Installation>,
    services: Arc<ClientServices>,
    index: usize,
    /// Counts the processes of all services, so that no two have the same client id.
    life: u64,
    started_at: u64,
    alive: AtomicBool,
    resources: Vec<Arc<AtResource>>,
    call_queues: Vec<CallQueue>,
    /// Sessions that stay with the branches that they have prepared, by the branch's name.
    held_sessions: Mutex<BTreeMap<String, HeldConnection>>,
    state: Mutex<State>,
}

struct State {
    protocol: Protocol,
    waiters: BTreeMap<RequestId, oneshot::Sender<Answered>>,
    /// The connection, or the attempts to open one.
    connections: BTreeMap<ConnectionId, Arc<Connection>>,
    /// When the next tick of the protocol is due.
    next_tick: Option<u64>,
}

impl ClientProcess {
    /// Starts a process that registers every database as a resource, and connects.
    fn start(services: &Arc<ClientServices>, index: usize, life: u64) -> Arc<Self> {
        let installation = &services.installation;
        let world = &installation.world;
        let settings = Settings {
            client_id: format!("client-{index}-{life}"),
            application: format!("service-{index}"),
            endpoints: (0..installation.servers.len()).map(address_of).collect(),
            connect_timeout: Duration::from_secs(2),
            back_off_base: Duration::from_millis(50),
            back_off_max: Duration::from_secs(1),
            requests_max: 1_000,
        };
        let seed = world.draw(Random::draw);
        let databases = installation.databases.iter();
        let resources = databases.map(|it| AtResource::new(world, it, index, life));
        let state = State {
            protocol: Protocol::new(settings, seed),
            waiters: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_tick: None,
        };
        let process = Arc::new(Self {
            world: Arc::clone(world),
            judge: Arc::clone(&installation.judge),
            installation: Arc::clone(installation),
            services: Arc::clone(services),
            index,
            life,
            started_at: world.now(),
            alive: AtomicBool::new(true),
            resources: resources.collect(),
            call_queues: call_queues(installation),
            held_sessions: Mutex::default(),
            state: Mutex::new(state),
        });
        process.world.log(process.owner(), || format!("starts, life {life}"));
        for resource in &process.resources {
            let id = resource.database.resource_id();
            let label = format!("{:?}", resource.database.flavour);
            let wire = Resource { id, mode: Mode::At.into(), label };
            process.drive(|protocol, _| protocol.register_resource(wire));
        }
        for queue in process.call_queues.iter().filter(|queue| queue.mode() != ResourceMode::At) {
            let wire = queue.resource();
            process.drive(|protocol, _| protocol.register_resource(wire));
        }
        process.drive(|protocol, now| protocol.tick(now));
        process
    }

    fn owner(&self) -> Owner {
        Owner::Client(self.index)
    }

    /// Ends the process: it ignores whatever arrives from here on. The caller kills its tasks.
    fn die(&self) {
        self.alive.store(false, Ordering::Relaxed);
        let mut state = self.lock();
        state.next_tick = None;
        drop(std::mem::take(&mut state.connections));
        drop(std::mem::take(&mut state.waiters));
        drop(state);
        // Its prepared branches are bound to no session then, and another process can end them.
        drop(std::mem::take(&mut *self.sessions()));
    }

    /// Marks a point between two steps at which the process may die.
    async fn crash_point(self: &Arc<Self>, name: &str) {
        if self.world.strikes(Fault::ClientCrashAtPoint) {
            self.world.log(self.owner(), || format!("dies at {name}"));
            self.services.crash(self.index, self.world.between(10 * MS, 5_000 * MS));
            // The task is dropped before anything else is polled.
            std::future::pending().await
        }
    }

    /// Gives an event its id.
    fn event(&self, draft: EventDraft) -> values::Event {
        let id = EventId(self.world.between(1, u64::MAX));
        values::Event { id, key: draft.key, units: draft.units }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, HeldConnection>> {
        self.held_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its reply, for the request deadline plus `wait`.
    ///
    /// # Errors
    /// As the product's: no reply in time, or a rejection.
    async fn request(
        self: &Arc<Self>,
        name: &'static str,
        body: ClientBody,
        wait: Duration,
    ) -> Result<ServerBody, Error> {
        let (waiter, reply) = oneshot::channel();
        let timeout = REQUEST_DEADLINE.saturating_add(wait);
        let id =
            self.drive(|protocol, now| protocol.submit(now, name, body, now.after(timeout)))?;
        self.lock().waiters.insert(id, waiter);
        answered(reply.await)
    }

    /// Sends the coordinator the outcomes of phase two.
    fn report_outcomes(self: &Arc<Self>, outcomes: Vec<BranchOutcome>) {
        self.drive(|protocol, _| protocol.finished(outcomes));
    }

    /// Runs what the network delivers on a task of the process, so that a frozen process notices it
    /// only when it goes on.
    fn on_own_task(self: &Arc<Self>, act: impl FnOnce(&Arc<Self>) + Send + 'static) {
        if self.alive.load(Ordering::Relaxed) {
            let process = Arc::clone(self);
            self.world.spawn(self.owner(), async move { act(&process) });
        }
    }

    /// Gives the protocol an input, then executes its events and sends its frames.
    fn drive<R>(self: &Arc<Self>, input: impl FnOnce(&mut Protocol, Moment) -> R) -> R {
        let now = Moment(Duration::from_micros(self.world.now() - self.started_at));
        let result = input(&mut self.lock().protocol, now);
        loop {
            let Some(event) = self.lock().protocol.next_event() else { break };
            self.execute(event);
        }
        self.send();
        self.schedule_tick();
        result
    }

    fn execute(self: &Arc<Self>, event: Event) {
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
                    // The caller may have been dropped.
                    let _gone = waiter.send(result.map_err(Error::from));
                }
            }
            Event::PhaseTwo(call) => self.enqueue_call(call),
            Event::ResourceRefused { refusal, .. } => {
                self.judge.report("total", format!("resource refused: {}", refusal.message));
            }
        }
    }

    async fn dial(self: Arc<Self>, connection: ConnectionId, endpoint: usize) {
        self.world.sleep(self.world.between(100, 3 * MS)).await;
        let server = self.installation.servers[endpoint].process();
        let refused = || tonic::Status::unavailable("connection refused");
        let connected = server.ok_or_else(refused).and_then(|server| {
            let client: Arc<dyn Endpoint> = Arc::clone(&self) as _;
            self.installation.network.connect(client, connection, endpoint, &server.front)
        });
        match connected {
            Ok(wire) => {
                self.lock().connections.insert(connection, Arc::clone(&wire));
                if !self.drive(|protocol, _| protocol.connected(connection)) {
                    // Another attempt has completed its handshake meanwhile.
                    self.lock().connections.remove(&connection);
                    wire.hang_up();
                }
            }
            Err(status) => {
                let failure = ConnectionFailure::Passing(status.message().into());
                self.drive(|protocol, now| protocol.disconnected(now, connection, failure));
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

    /// Schedules the tick that the protocol needs next.
    fn schedule_tick(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some(Moment(next)) = state.protocol.next_deadline() else { return };
        // Rounded up: a tick that is too early would find nothing due.
        let next = u64::try_from(next.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let at = self.started_at.saturating_add(next);
        if state.next_tick.is_some_and(|tick| tick <= at) {
            return;
        }
        state.next_tick = Some(at);
        drop(state);
        let process = Arc::clone(self);
        let sleep = self.world.sleep_until(at);
        self.world.spawn(self.owner(), async move {
            sleep.await;
            process.lock().next_tick.take_if(|tick| *tick == at);
            process.drive(|protocol, now| protocol.tick(now));
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint for ClientProcess {
    fn index(&self) -> usize {
        self.index
    }

    fn receive(self: Arc<Self>, connection: ConnectionId, frame: ServerFrame) {
        self.on_own_task(move |process| {
            process.drive(|protocol, now| protocol.receive(now, connection, frame.messages));
        });
    }

    fn disconnected(self: Arc<Self>, connection: ConnectionId, failure: ConnectionFailure) {
        self.on_own_task(move |process| {
            process.lock().connections.remove(&connection);
            process.drive(|protocol, now| protocol.disconnected(now, connection, failure));
        });
    }
}

/// Returns the answer to a request, or why there is none.
fn answered(reply: Result<Answered, oneshot::Canceled>) -> Answered {
    let reply = reply.unwrap_or(Err(Error::Closed))?;
    if let ServerBody::Rejected(rejection) = reply {
        return Err(handfast::Rejection::from(rejection).into());
    }
    Ok(reply)
}

/// Returns a queue for each database and mode.
fn call_queues(installation: &Installation) -> Vec<CallQueue> {
    let modes = &installation.world.plan.modes;
    let databases = || installation.databases.iter().map(|database| &**database);
    let of = |mode, resource_id: fn(usize) -> String| {
        move |database: &Database| CallQueue::new(resource_id(database.index), mode, database.index)
    };
    let at = databases()
        .map(|database| CallQueue::new(database.resource_id(), ResourceMode::At, database.index));
    let has_tcc = modes.contains(&plan::Mode::Tcc);
    let tcc = databases().filter(|_| has_tcc).map(of(ResourceMode::Tcc, tcc_resource_id));
    let has_sagas = modes.contains(&plan::Mode::Saga);
    let sagas = databases().filter(|_| has_sagas).map(of(ResourceMode::Saga, saga_resource_id));
    let has_xa = modes.contains(&plan::Mode::Xa);
    let xa = databases()
        .filter(|database| has_xa && database.can_prepare())
        .map(of(ResourceMode::Xa, xa_resource_id));
    at.chain(tcc).chain(sagas).chain(xa).collect()
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, life) = (self.index, self.life);
        write!(f, "client {index}, life {life}")
    }
}
