//! The network between clients and coordinators: frames that are lost, duplicated, late or out of
//! order, connections that break, and connections that are silent in one direction.
//!
//! It stands for HTTP/2 over TCP, and is worse: TCP neither loses nor duplicates within a
//! connection. The API promises that every request may arrive again under its id, in any order and
//! at any time, and this network tests that promise.

mod inbound;
mod log_format;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::StreamExt;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::{ClientFrame, ServerFrame};
use handfast_rm_core::link::{ConnectionFailure, ConnectionId};
use handfast_server::grpc::{GrpcFrontend, Outbound};
use tonic::Status;

use super::observation::{Asked, Observation, Observer};
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};
use inbound::{InboundQueue, InboundStream};

/// The client's end of a connection. The network delivers to it and knows nothing else of it.
pub(crate) trait Endpoint: Send + Sync {
    /// Returns the index of the client.
    fn index(&self) -> usize;

    /// Delivers a frame.
    fn receive(self: Arc<Self>, connection: ConnectionId, frame: ServerFrame);

    /// Reports the end of a connection.
    fn disconnected(self: Arc<Self>, connection: ConnectionId, failure: ConnectionFailure);
}

/// Every connection that is open, and some that were.
pub(crate) struct Network {
    world: Arc<World>,
    observer: Arc<dyn Observer>,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// One connection.
pub(crate) struct Connection {
    world: Arc<World>,
    observer: Arc<dyn Observer>,
    server: usize,
    client: Arc<dyn Endpoint>,
    /// The client's id of it.
    id: ConnectionId,
    state: Mutex<State>,
    inbound: Arc<InboundQueue>,
}

#[derive(Debug)]
struct State {
    client_end: End,
    server_end: End,
    up: Channel,
    down: Channel,
    /// The requests that have arrived on it, by message id, and when each first did.
    requests: BTreeMap<u64, (ClientBody, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Closed,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Channel {
    /// No frame arrives any more.
    dead: bool,
    /// When the last frame in order arrives: the next one does not overtake it.
    last_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the client to the coordinator.
    Up,
    /// From the coordinator to the client.
    Down,
}

impl Network {
    pub(crate) fn new(world: &Arc<World>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let (world, connections) = (Arc::clone(world), Mutex::new(Vec::new()));
        Arc::new(Self { world, observer, connections })
    }

    /// Connects a client to a coordinator's front end.
    ///
    /// # Errors
    /// If the front end refuses the connection.
    pub(crate) fn connect(
        &self,
        client: Arc<dyn Endpoint>,
        id: ConnectionId,
        server: usize,
        front: &GrpcFrontend,
    ) -> Result<Arc<Connection>, Status> {
        let inbound = Arc::new(InboundQueue::default());
        let frames = InboundStream::of(&inbound);
        let peer = format!("client {}", client.index());
        let (reader, outbound) = front.serve_connection(frames, peer.into())?;
        let state = State {
            client_end: End::Open,
            server_end: End::Open,
            up: Channel::default(),
            down: Channel::default(),
            requests: BTreeMap::new(),
        };
        let connection = Arc::new(Connection {
            world: Arc::clone(&self.world),
            observer: Arc::clone(&self.observer),
            server,
            client,
            id,
            state: Mutex::new(state),
            inbound,
        });
        self.lock().push(Arc::clone(&connection));
        // Both run in the coordinator's process, and die or freeze with it.
        let owner = Owner::Server(server);
        self.world.spawn(owner, reader);
        self.world.spawn(owner, Arc::clone(&connection).forward(outbound));
        Ok(connection)
    }

    /// Breaks the connections of a coordinator whose process died. Its clients notice at once or
    /// seconds later.
    pub(crate) fn server_died(&self, server: usize) {
        for connection in self.open(|connection| connection.server == server) {
            // At once: what is still on its way does not count as arrived.
            connection.lock().server_end = End::Closed;
            connection.notify_client(self.reset_delay(), "the connection was reset");
        }
    }

    /// Breaks the connections of a client whose process died. Its coordinator notices at once or
    /// seconds later.
    pub(crate) fn client_died(&self, client: usize) {
        for connection in self.open(|connection| connection.client.index() == client) {
            connection.lock().client_end = End::Closed;
            connection.notify_server(self.reset_delay());
        }
    }

    /// Breaks a random open connection. Returns whether there was one.
    pub(crate) fn cut(&self) -> bool {
        let Some(connection) = self.draw_open() else { return false };
        self.world.log(Owner::World, || format!("cuts {connection:?}"));
        connection.notify_client(self.reset_delay(), "the connection was reset");
        connection.notify_server(self.reset_delay());
        true
    }

    /// Silences one direction of a random open connection. Its ends notice by their keep-alives.
    /// Returns whether there was an open connection.
    pub(crate) fn cut_one_way(&self) -> bool {
        let Some(connection) = self.draw_open() else { return false };
        let up = self.world.draw(|random| random.happens(500));
        let direction = if up { Direction::Up } else { Direction::Down };
        self.world.log(Owner::World, || format!("cuts {connection:?} one way: {direction:?}"));
        connection.lock().channel(direction).dead = true;
        // Both ends notice: one direction carries the ping of each, and the other its answer.
        let (client, server) = (self.keep_alive(), self.keep_alive());
        connection.notify_client(client, "no answer to a keep-alive");
        connection.notify_server(server);
        true
    }

    /// Forgets every connection: they hold references to their clients.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn draw_open(&self) -> Option<Arc<Connection>> {
        let open = self.open(|_| true);
        if open.is_empty() {
            return None;
        }
        Some(Arc::clone(&open[self.world.draw(|random| random.index(open.len()))]))
    }

    /// Returns the connections of a kind that have an open end, and forgets those that have none.
    fn open(&self, which: impl Fn(&Connection) -> bool) -> Vec<Arc<Connection>> {
        let mut connections = self.lock();
        let some_end_open = |connection: &Arc<Connection>| {
            let state = connection.lock();
            state.client_end == End::Open || state.server_end == End::Open
        };
        connections.retain(some_end_open);
        connections.iter().filter(|connection| which(connection)).cloned().collect()
    }

    /// Draws how long an end takes to notice that the other is lost: mostly the connection is reset
    /// at once, and sometimes the machine is lost without a word.
    fn reset_delay(&self) -> u64 {
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
    /// Sends a frame of the client.
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

    /// Closes the client's end. Frames that it has sent may still arrive.
    pub(crate) fn hang_up(self: &Arc<Self>) {
        self.lock().client_end = End::Closed;
        self.notify_server(self.world.between(100, 5 * MS));
    }

    /// Sends the coordinator's frames until the stream ends.
    async fn forward(self: Arc<Self>, mut frames: Outbound) {
        let mut reason = "the coordinator ended the stream".to_owned();
        while let Some(frame) = frames.next().await {
            match frame {
                Ok(frame) => self.send_down(&frame),
                Err(status) => reason = status.message().to_owned(),
            }
        }
        self.lock().server_end = End::Closed;
        self.notify_client(self.world.between(100, 5 * MS), &reason);
    }

    fn send_down(self: &Arc<Self>, frame: &ServerFrame) {
        self.observe_sent(frame);
        for at in self.arrivals(Direction::Down) {
            let (connection, frame) = (Arc::clone(self), frame.clone());
            self.world.spawn(Owner::World, async move {
                connection.world.sleep_until(at).await;
                let state = connection.lock();
                let arrives = state.client_end == End::Open && !state.down.dead;
                drop(state);
                if arrives {
                    Arc::clone(&connection.client).receive(connection.id, frame);
                }
            });
        }
    }

    /// Reports a frame when it leaves: its content is promised, whether it arrives or not.
    fn observe_sent(&self, frame: &ServerFrame) {
        for message in &frame.messages {
            let Some(reply) = &message.body else { continue };
            let request = self.lock().requests.get(&message.id).cloned();
            let request = request.as_ref().map(|(body, at)| Asked { body, at: *at });
            let owner = Owner::Server(self.server);
            self.world.log(owner, || log_format::server_message(message.id, reply));
            self.observer.observe(&Observation::ReplySent { server: self.server, request, reply });
        }
    }

    fn arrive(&self, frame: ClientFrame) {
        let now = self.world.now();
        let mut state = self.lock();
        if state.server_end == End::Closed || state.up.dead {
            return;
        }
        for message in &frame.messages {
            if let Some(request) = &message.body {
                state.requests.entry(message.id).or_insert_with(|| (request.clone(), now));
            }
        }
        drop(state);
        for message in &frame.messages {
            let Some(request) = &message.body else { continue };
            let client = Owner::Client(self.client.index());
            self.world.log(client, || log_format::client_message(message.id, request));
            self.observer.observe(&Observation::RequestArrived { request });
        }
        self.inbound.push(Some(Ok(frame)));
    }

    /// Draws when a frame arrives: never, once or twice.
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
            // Not noted as the last of its direction, so that later frames overtake it.
            return at + world.between(MS, 500 * MS);
        }
        let mut state = self.lock();
        let channel = state.channel(direction);
        channel.last_at = channel.last_at.max(at);
        channel.last_at
    }

    fn notify_client(self: &Arc<Self>, delay: u64, reason: &str) {
        let (connection, reason) = (Arc::clone(self), ConnectionFailure::Passing(reason.into()));
        self.world.spawn(Owner::World, async move {
            connection.world.sleep(delay).await;
            connection.lock().client_end = End::Closed;
            Arc::clone(&connection.client).disconnected(connection.id, reason);
        });
    }

    fn notify_server(self: &Arc<Self>, delay: u64) {
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
    fn channel(&mut self, direction: Direction) -> &mut Channel {
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
