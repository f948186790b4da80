//! The native gRPC API: wire messages to requests, replies to wire messages.
//!
//! Most clients use the stream: everything that has arrived in one frame goes to the engine with
//! one wake-up, and everything that is ready for a client leaves in one frame. The unary calls are
//! for clients that want one request per call. The layers around [`GrpcFrontend::routes`] decide
//! which clients may call; nothing here decides anything about a global.

mod bounds;
mod connection;
mod decoder;
mod from_wire;
mod fuzz;
mod lock;
mod outbox;
mod pass_on;
mod refusal;
mod saga;
mod saga_definition;
mod send_queue;
mod to_wire;
mod traced;
mod try_branch;
mod unary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use futures::stream::{BoxStream, Stream};
use handfast_proto::v1 as wire;
use handfast_proto::v1::FILE_DESCRIPTOR_SET;
use handfast_proto::v1::coordinator_server::CoordinatorServer;
use tokio::sync::{Notify, watch};
use tonic::Status;
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::dispatch::Dispatcher;
use crate::engine::{EngineError, EngineHandle, Leadership};
use crate::over_http::HttpCaller;
use crate::peers::Peers;
use crate::presence::Presence;
use crate::relay_reports::RelayReports;
use crate::spans::Spans;
use send_queue::SendQueue;

pub use bounds::{BadRequest, Bounds};
pub(crate) use decoder::Decoder;
pub use fuzz::fuzz_frame;
pub(crate) use pass_on::PassOnLayer;

const SERVICE: &str = "handfast.v1.Coordinator";

/// The server as a whole, and its service.
const HEALTH_OF: [&str; 2] = ["", SERVICE];

/// The frames that are written to a client's stream.
pub type Outbound = BoxStream<'static, Result<wire::ServerFrame, Status>>;

/// The front end: the service and the connections it has open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GrpcFrontend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: EngineHandle,
    dispatcher: Dispatcher,
    leadership: watch::Receiver<Leadership>,
    decoder: Decoder,
    over_http: HttpCaller,
    spans: Spans,
    presence: Presence,
    relay_reports: RelayReports,
    queues: Mutex<Vec<Weak<SendQueue>>>,
    /// Wakes clients that wait for a leader, in their order of arrival. `leadership` would wake
    /// them in any order, and a run of the simulation could not be repeated.
    leader_known: Notify,
    going_away: AtomicBool,
    health: tonic_health::server::HealthReporter,
    /// Whether the final health status has been set.
    health_told: tokio::sync::Mutex<bool>,
}

impl GrpcFrontend {
    /// Creates a front end for this engine and dispatcher, without connections. `over_http` calls
    /// the tries that clients ask for.
    #[must_use]
    pub fn new(
        engine: EngineHandle,
        leadership: watch::Receiver<Leadership>,
        dispatcher: Dispatcher,
        bounds: Bounds,
        over_http: HttpCaller,
    ) -> Self {
        let shared = Shared {
            presence: Presence::new(engine.clone()),
            relay_reports: RelayReports::new(dispatcher.shared_clock()),
            engine,
            // One way out for all spans of a coordinator.
            spans: dispatcher.spans(),
            dispatcher,
            leadership,
            decoder: Decoder { bounds },
            over_http,
            queues: Mutex::default(),
            leader_known: Notify::new(),
            going_away: AtomicBool::new(false),
            health: tonic_health::server::HealthReporter::new(),
            health_told: tokio::sync::Mutex::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the coordinator, reflection and the standard health service, to be layered and
    /// served. The health service reports "serving" while the server leads and is not going away.
    ///
    /// # Errors
    ///
    /// When the reflection service cannot read this build's own descriptors.
    pub fn routes(&self) -> Result<Routes, tonic_reflection::server::Error> {
        let bytes_max = self.shared.decoder.bounds.message_bytes_max;
        let coordinator = CoordinatorServer::new(self.clone())
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(usize::MAX);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let health = tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(self.shared.health.clone()),
        );
        tokio::spawn(self.clone().keep_watch());
        Ok(Routes::new(coordinator).add_service(reflection).add_service(health))
    }

    /// Returns what relays of outboxes report over this front end.
    pub(crate) fn relay_reports(&self) -> &RelayReports {
        &self.shared.relay_reports
    }

    /// Returns the layer that passes unary calls on to the leader while another node leads.
    pub(crate) fn pass_on(&self, peers: Option<Peers>) -> PassOnLayer {
        PassOnLayer::new(self.shared.leadership.clone(), peers)
    }

    /// Asks every client to reconnect elsewhere and takes no further connection; what is under way
    /// goes on.
    pub async fn go_away(&self, reason: &str) {
        self.shared.going_away.store(true, Ordering::Relaxed);
        self.set_health(ServingStatus::NotServing).await;
        let leader = self.leader();
        self.each_queue(|queue| queue.go_away(reason, &leader));
    }

    /// Ends every stream when what is queued for it is written, and asks its client to connect
    /// again.
    pub fn end_streams(&self, reason: &str) {
        let leader = self.leader();
        self.each_queue(|queue| {
            queue.go_away(reason, &leader);
            queue.finish();
        });
    }

    /// Ends every connection when what is queued for it is written.
    pub fn close(&self) {
        self.each_queue(SendQueue::finish);
    }

    /// Closes as [`GrpcFrontend::close`]. Also ends the streams that watch the health, after they
    /// have reported "not serving": their clients would keep them open forever.
    pub async fn close_all(&self) {
        self.close();
        let mut told = self.shared.health_told.lock().await;
        *told = true;
        let mut health = self.shared.health.clone();
        for service in HEALTH_OF {
            health.clear_service_status(service).await;
        }
    }

    /// Serves one client's stream without a transport: returns its reader, to be run, and what is
    /// written to it. A simulator has its own network.
    ///
    /// # Errors
    ///
    /// When the server is going away.
    pub fn serve_connection<I>(
        &self,
        inbound: I,
        peer: Arc<str>,
    ) -> Result<(impl Future<Output = ()> + Send + use<I>, Outbound), Status>
    where
        I: Stream<Item = Result<wire::ClientFrame, Status>> + Send + Unpin,
    {
        connection::connect(self.clone(), inbound, peer)
    }

    fn open_queue(&self) -> Result<Arc<SendQueue>, EngineError> {
        let queue = Arc::new(SendQueue::new(self.shared.decoder.bounds.queue_messages_max));
        {
            let mut queues = self.lock();
            // Ended connections are forgotten here: the list grows with the open ones alone
            // (BOUNDED).
            queues.retain(|other| other.strong_count() > 0);
            queues.push(Arc::downgrade(&queue));
        }
        // Checked after the queue is in the list: `go_away` sets this before it goes through the
        // list, so each connection is either refused here or notified there.
        if self.shared.going_away.load(Ordering::Relaxed) {
            return Err(EngineError::Stopping);
        }
        Ok(queue)
    }

    /// Returns the epoch in which this server leads.
    fn epoch(&self) -> Result<u64, wire::NotLeading> {
        let epoch = self.shared.leadership.borrow().epoch();
        epoch.map(|epoch| epoch.0).ok_or_else(|| self.leader())
    }

    /// Returns what is known of another leader.
    fn leader(&self) -> wire::NotLeading {
        pass_on::leader_of(&self.shared.leadership.borrow())
    }

    /// Returns the status of a call that the engine could not answer. It names the leader.
    fn status_of_engine(&self, error: EngineError) -> Status {
        refusal::status_of_engine(error, self.leader())
    }

    /// Follows the engine's leadership: reports it to the health service, and ends every connection
    /// when the engine does not lead any more. The next leader could not reach a process that
    /// stayed. A connection that waits for a leader is woken, and checks by itself.
    /// [`GrpcFrontend::routes`] starts it; without routes the caller runs it.
    pub async fn keep_watch(self) {
        let mut leadership = self.shared.leadership.clone();
        loop {
            // Marked as seen before it is acted on, so that a change meanwhile is not missed.
            let seen = leadership.borrow_and_update().clone();
            if seen.is_settled() {
                self.shared.leader_known.notify_waiters();
            }
            self.show_health().await;
            if seen.epoch().is_none() {
                self.shared.relay_reports.clear();
                let leader = self.leader();
                self.each_queue(|queue| {
                    if !queue.awaits_leader() {
                        queue.leave_to_the_leader(&leader);
                    }
                });
            }
            if leadership.changed().await.is_err() {
                return self.set_health(ServingStatus::NotServing).await;
            }
        }
    }

    /// Tells the health service whether the server serves: it leads, and is not going away.
    pub(crate) async fn show_health(&self) {
        let leads = self.shared.leadership.borrow().epoch().is_some();
        let serves = leads && !self.shared.going_away.load(Ordering::Relaxed);
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.set_health(status).await;
    }

    async fn set_health(&self, status: ServingStatus) {
        // Held until the status is set, so that none is set after the final one of `close_all`.
        let told = self.shared.health_told.lock().await;
        if *told {
            return;
        }
        for service in HEALTH_OF {
            self.shared.health.set_service_status(service, status).await;
        }
    }

    fn each_queue(&self, act: impl Fn(&SendQueue)) {
        let open: Vec<Arc<SendQueue>> = self.lock().iter().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|queue| act(queue));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<SendQueue>>> {
        self.shared.queues.lock().expect("no holder of the connection list's lock panics")
    }
}
