//! The network between clients and coordinators: frames that are lost, doubled, late or out of
//! order, connections that break, and connections that carry nothing one way.
//!
//! It stands for HTTP/2 over TCP and does worse: TCP neither loses nor doubles within a connection.
//! The API promises that every request may come again under its id, in any order and at any time;
//! this network holds it to that.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::stream::{Stream, StreamExt};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{ClientFrame, ServerFrame};
use handfast_rm_core::link::{ConnectionId, Failure};
use handfast_server::grpc::Outbound;
use tonic::Status;

use crate::client::ClientProcess;
use crate::fault::Fault;
use crate::oracle::Observation;
use crate::server::Process;
use crate::world::{MS, Owner, SECOND, World};

/// Every connection that is, or was a moment ago.
pub(crate) struct Network {
    world: Arc<World>,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// One connection, seen from above.
pub(crate) struct Connection {
    world: Arc<World>,
    server: usize,
    client: Arc<ClientProcess>,
    /// What the client calls it.
    id: ConnectionId,
    state: Mutex<State>,
    inbound: Arc<Inbound>,
}

#[derive(Debug)]
struct State {
    client_end: End,
    server_end: End,
    up: Way,
    down: Way,
    /// What the client asked on it, by id.
    asked: BTreeMap<u64, Ask>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Closed,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    /// Nothing arrives.
    dead: bool,
    /// When the newest frame arrives: the next one comes behind it.
    last_at: u64,
}

/// Which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Network {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), connections: Mutex::new(Vec::new()) })
    }

    /// Connects a client to a coordinator's front end.
    ///
    /// # Errors
    /// What the front end says.
    pub(crate) fn connect(
        &self,
        client: &Arc<ClientProcess>,
        id: ConnectionId,
        server: usize,
        process: &Process,
    ) -> Result<Arc<Connection>, Status> {
        let inbound = Arc::new(Inbound::default());
        let reading = Reading { inbound: Arc::clone(&inbound) };
        let peer = format!("client {}", client.index());
        let (reader, frames) = process.front.converse(reading, peer.into())?;
        let state = State {
            client_end: End::Open,
            server_end: End::Open,
            up: Way::default(),
            down: Way::default(),
            asked: BTreeMap::new(),
        };
        let connection = Arc::new(Connection {
            world: Arc::clone(&self.world),
            server,
            client: Arc::clone(client),
            id,
            state: Mutex::new(state),
            inbound,
        });
        self.lock().push(Arc::clone(&connection));
        let owner = Owner::Server(server);
        self.world.spawn(owner, reader);
        self.world.spawn(owner, Arc::clone(&connection).write(frames));
        Ok(connection)
    }

    /// A coordinator's process is dead: its clients notice, soon or late.
    pub(crate) fn server_died(&self, server: usize) {
        for connection in self.open(|connection| connection.server == server) {
            connection.lock().server_end = End::Closed;
            connection.tell_client(self.notice(), "the connection was reset");
        }
    }

    /// A client's process is dead: its coordinator notices, soon or late.
    pub(crate) fn client_died(&self, client: usize) {
        for connection in self.open(|connection| connection.client.index() == client) {
            connection.lock().client_end = End::Closed;
            connection.tell_server(self.notice());
        }
    }

    /// Breaks a connection, drawn from those that are open.
    pub(crate) fn cut(&self) -> bool {
        let Some(connection) = self.pick() else { return false };
        self.world.log(Owner::World, || format!("cuts {connection:?}"));
        connection.tell_client(self.notice(), "the connection was reset");
        connection.tell_server(self.notice());
        true
    }

    /// Makes a connection carry nothing in one direction; its ends notice by their keep-alives.
    pub(crate) fn cut_one_way(&self) -> bool {
        let Some(connection) = self.pick() else { return false };
        let up = self.world.draw(|random| random.happens(500));
        let way = if up { Direction::Up } else { Direction::Down };
        self.world.log(Owner::World, || format!("cuts {connection:?} one way: {way:?}"));
        connection.lock().way(way).dead = true;
        let (client, server) = (self.keep_alive(), self.keep_alive());
        connection.tell_client(client, "no answer to a keep-alive");
        connection.tell_server(server);
        true
    }

    /// Forgets every connection, which keep their clients.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn pick(&self) -> Option<Arc<Connection>> {
        let open = self.open(|_| true);
        if open.is_empty() {
            return None;
        }
        Some(Arc::clone(&open[self.world.draw(|random| random.index(open.len()))]))
    }

    fn open(&self, which: impl Fn(&Connection) -> bool) -> Vec<Arc<Connection>> {
        let mut connections = self.lock();
        let some_end_open = |connection: &Arc<Connection>| {
            let state = connection.lock();
            state.client_end == End::Open || state.server_end == End::Open
        };
        connections.retain(some_end_open);
        connections.iter().filter(|connection| which(connection)).cloned().collect()
    }

    /// Mostly a reset comes at once; a machine that is gone says nothing.
    fn notice(&self) -> u64 {
        self.world.draw(|random| match random.happens(700) {
            true => random.between(100, 5 * MS),
            false => random.between(SECOND, 8 * SECOND),
        })
    }

    fn keep_alive(&self) -> u64 {
        self.world.between(2 * SECOND, 15 * SECOND)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The client sends.
    pub(crate) fn send(self: &Arc<Self>, frame: &ClientFrame) {
        if self.lock().client_end == End::Closed {
            return;
        }
        for at in self.arrivals(Direction::Up) {
            let (connection, frame) = (Arc::clone(self), frame.clone());
            self.world.spawn(Owner::World, async move {
                connection.world.sleep_until(at).await;
                connection.arrive(frame);
            });
        }
    }

    /// The client hangs up; what it has sent may still arrive.
    pub(crate) fn hang_up(self: &Arc<Self>) {
        self.lock().client_end = End::Closed;
        self.tell_server(self.world.between(100, 5 * MS));
    }

    /// The writing side of the coordinator's end.
    async fn write(self: Arc<Self>, mut frames: Outbound) {
        let mut reason = "the coordinator ended the stream".to_owned();
        while let Some(frame) = frames.next().await {
            match frame {
                Ok(frame) => self.answer(&frame),
                Err(status) => reason = status.message().to_owned(),
            }
        }
        self.lock().server_end = End::Closed;
        self.tell_client(self.world.between(100, 5 * MS), &reason);
    }

    fn answer(self: &Arc<Self>, frame: &ServerFrame) {
        self.show(frame);
        for at in self.arrivals(Direction::Down) {
            let (connection, frame) = (Arc::clone(self), frame.clone());
            self.world.spawn(Owner::World, async move {
                connection.world.sleep_until(at).await;
                let state = connection.lock();
                let arrives = state.client_end == End::Open && !state.down.dead;
                drop(state);
                if arrives {
                    connection.client.receive(connection.id, frame);
                }
            });
        }
    }

    /// What leaves the coordinator has been promised, whether it arrives or not.
    fn show(&self, frame: &ServerFrame) {
        for message in &frame.messages {
            let Some(answer) = &message.body else { continue };
            let asked = self.lock().asked.get(&message.id).cloned();
            let (server, ask) = (self.server, asked.as_ref());
            self.world.log(Owner::Server(server), || crate::brief::answer(message.id, answer));
            self.world.observe(&Observation::Answered { ask, answer });
        }
    }

    fn arrive(&self, frame: ClientFrame) {
        let mut state = self.lock();
        if state.server_end == End::Closed || state.up.dead {
            return;
        }
        for message in &frame.messages {
            if let Some(ask) = &message.body {
                state.asked.insert(message.id, ask.clone());
            }
        }
        drop(state);
        for message in &frame.messages {
            let Some(ask) = &message.body else { continue };
            self.world
                .log(Owner::Client(self.client.index()), || crate::brief::ask(message.id, ask));
            self.world.observe(&Observation::Asked { ask });
        }
        self.inbound.push(Some(Ok(frame)));
    }

    /// When a frame arrives: never, once or twice.
    fn arrivals(&self, direction: Direction) -> Vec<u64> {
        let world = &self.world;
        if world.strikes(Fault::MessageLost) {
            world.log(Owner::World, || format!("loses a frame of {self:?} {direction:?}"));
            return Vec::new();
        }
        let copies = if world.strikes(Fault::MessageDoubled) { 2 } else { 1 };
        (0..copies).map(|_| self.arrival(direction)).collect()
    }

    fn arrival(&self, direction: Direction) -> u64 {
        let world = &self.world;
        let mut at = world.now() + world.between(50, 2 * MS);
        if world.strikes(Fault::MessageDelayed) {
            at += world.between(100 * MS, 8 * SECOND);
        }
        if world.strikes(Fault::MessageReordered) {
            return at + world.between(MS, 500 * MS);
        }
        let mut state = self.lock();
        let way = state.way(direction);
        way.last_at = way.last_at.max(at);
        way.last_at
    }

    fn tell_client(self: &Arc<Self>, delay: u64, reason: &str) {
        let (connection, reason) = (Arc::clone(self), Failure::Passing(reason.into()));
        self.world.spawn(Owner::World, async move {
            connection.world.sleep(delay).await;
            connection.lock().client_end = End::Closed;
            connection.client.disconnected(connection.id, reason);
        });
    }

    fn tell_server(self: &Arc<Self>, delay: u64) {
        let connection = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            connection.world.sleep(delay).await;
            connection.lock().server_end = End::Closed;
            connection.inbound.push(Some(Err(Status::unavailable("the connection was reset"))));
            connection.inbound.push(None);
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (self.client.index(), self.server);
        write!(f, "connection {} of client {client} to server {server}", self.id.0)
    }
}

type Received = Option<Result<ClientFrame, Status>>;

/// What has arrived at the coordinator's end and is not read yet; `None` is the end.
#[derive(Debug, Default)]
struct Inbound {
    state: Mutex<(VecDeque<Received>, Option<Waker>)>,
}

impl Inbound {
    fn push(&self, received: Received) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.push_back(received);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The coordinator's view of it.
#[derive(Debug)]
struct Reading {
    inbound: Arc<Inbound>,
}

impl Stream for Reading {
    type Item = Result<ClientFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Received> {
        let mut state = self.inbound.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.pop_front() {
            Some(received) => Poll::Ready(received),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
