//! The state that the admin API's handlers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use handfast_core::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::ApiError;
use super::view_permit::ViewPermit;
use crate::audit::AuditLog;
use crate::clock::Clock;
use crate::config::AdminConfig;
use crate::dispatch::Dispatcher;
use crate::engine::{EngineHandle, Leadership, changed};
use crate::grpc::GrpcFrontend;
use crate::metrics;
use crate::peers::Peers;
use crate::recent::RecentSteps;
use crate::relay_reports::RelayReports;
use crate::security::{Access, CookieSeal};
use crate::store::{CoordinatorNode, Leader, RecordSource};

/// The shared state. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    parts: Arc<Parts>,
    relay_reports: RelayReports,
}

#[derive(Debug)]
struct Parts {
    engine: EngineHandle,
    dispatcher: Dispatcher,
    clock: Arc<dyn Clock>,
    access: Access,
    audit: AuditLog,
    cookie_seal: CookieSeal,
    readiness: Readiness,
    config: AdminConfig,
    about: About,
    views: Arc<Semaphore>,
    live: Arc<Semaphore>,
    recent: RecentSteps,
}

/// Facts about the server that do not change while it runs.
#[derive(Clone, Debug)]
pub struct About {
    /// This node of those that share the store.
    pub node: CoordinatorNode,
    /// The name of the store.
    pub store: &'static str,
    /// The store's records, for as long as the store is open.
    pub records: Weak<dyn RecordSource>,
    /// The address in the text form of XIDs.
    pub advertised_address: String,
    /// When the server started.
    pub started_at: Timestamp,
    /// The address for clients of Seata, if that port is enabled.
    pub seata: Option<SeataAddress>,
    /// The way to the other nodes, where others can lead.
    pub peers: Option<Peers>,
    /// Whether the admin port is encrypted.
    pub is_encrypted: bool,
}

/// The address at which clients of Seata find the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeataAddress {
    /// Its host.
    pub host: String,
    /// The port for their requests.
    pub port: u16,
    /// The port of the admin API.
    pub admin_port: u16,
}

impl SeataAddress {
    /// Returns the address of a node, if that port is enabled there.
    pub(crate) fn of(node: &CoordinatorNode) -> Option<Self> {
        let (host, port) = node.seata.as_deref()?.rsplit_once(':')?;
        let (_, admin_port) = node.admin.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        Some(Self { host, port, admin_port: admin_port.parse().ok()? })
    }
}

/// Whether the server accepts requests: it leads, and is not shutting down.
#[derive(Clone, Debug)]
pub struct Readiness {
    stopping: CancellationToken,
    since_ms: Arc<AtomicU64>,
    leadership: watch::Receiver<Leadership>,
}

impl Readiness {
    /// Creates a state that is ready for as long as the engine leads.
    #[must_use]
    pub fn new(leadership: watch::Receiver<Leadership>) -> Self {
        Self { stopping: CancellationToken::new(), since_ms: Arc::default(), leadership }
    }

    /// Marks the beginning of a shutdown.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Waits for the beginning of a shutdown.
    pub(super) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Returns whether the server leads, and so answers requests itself.
    pub(super) fn leads(&self) -> bool {
        !self.is_stopping() && self.leadership.borrow().epoch().is_some()
    }

    /// Returns whether the server leads, or knows which node does.
    pub(super) fn is_member(&self) -> bool {
        let leadership = self.leadership.borrow();
        let knows = leadership.epoch().is_some() || leadership.leader_elsewhere().is_some();
        !self.is_stopping() && knows
    }

    /// Returns why the server does not answer requests itself.
    pub(super) fn why_not(&self) -> &'static str {
        match *self.leadership.borrow() {
            _ if self.is_stopping() => "shutting down",
            Leadership::Following(Leader::Elsewhere { .. }) => "another node leads",
            Leadership::Following(Leader::Unknown | Leader::Here) => "no node is known to lead",
            Leadership::Gaining => "gaining the lead",
            Leadership::Leading(_) => "leading",
            Leadership::Ended => "the engine has ended",
        }
    }

    /// Returns the leader, if another node leads.
    pub(super) fn leader_elsewhere(&self) -> Option<CoordinatorNode> {
        self.leadership.borrow().leader_elsewhere().map(|(_, node)| node.clone())
    }

    /// Returns since when the server stands as it does.
    pub(super) fn since(&self) -> Timestamp {
        Timestamp(self.since_ms.load(Ordering::Relaxed))
    }

    /// Notes and counts the changes of the server's leadership, for as long as it runs.
    pub async fn observe(self, clock: Arc<dyn Clock>) {
        let mut leadership = self.leadership.clone();
        let mut leader = None;
        loop {
            self.since_ms.store(clock.now().0, Ordering::Relaxed);
            let elsewhere = |it: &Leadership| it.leader_elsewhere().map(|(epoch, _)| epoch);
            let epoch = {
                let leadership = leadership.borrow_and_update();
                leadership.epoch().or_else(|| elsewhere(&leadership))
            };
            if let Some(epoch) = epoch.filter(|epoch| leader != Some(*epoch)) {
                metrics::set_epoch(epoch, leader.replace(epoch).is_some());
            }
            changed(&mut leadership).await;
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Returns a receiver of the engine's leadership.
    pub(super) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }
}

impl AdminState {
    /// Creates the state from its parts.
    #[must_use]
    pub fn new(
        engine: EngineHandle,
        dispatcher: Dispatcher,
        clock: Arc<dyn Clock>,
        (access, audit, cookie_seal): (Access, AuditLog, CookieSeal),
        readiness: Readiness,
        config: AdminConfig,
        about: About,
    ) -> Self {
        let places = |max: usize| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        let (views, live) = (places(config.views_max), places(config.live_max));
        let relay_reports = RelayReports::new(Arc::clone(&clock));
        let parts = Parts {
            engine,
            dispatcher,
            clock,
            access,
            audit,
            cookie_seal,
            readiness,
            config,
            about,
            views,
            live,
            recent: RecentSteps::new(),
        };
        Self { parts: Arc::new(parts), relay_reports }
    }

    /// Shows what relays of outboxes report to this front end.
    #[must_use]
    pub(crate) fn with_relays_of(self, front: &GrpcFrontend) -> Self {
        Self { relay_reports: front.relay_reports().clone(), ..self }
    }

    /// Returns what relays of outboxes report.
    pub(super) fn relay_reports(&self) -> &RelayReports {
        &self.relay_reports
    }

    pub(super) fn engine(&self) -> &EngineHandle {
        &self.parts.engine
    }

    /// Returns a permit for a view, if one is free.
    pub(super) fn begin_view(&self) -> Result<ViewPermit, ApiError> {
        // Refused at once: waiting views would take memory too (BOUNDED).
        let place = Arc::clone(&self.parts.views).try_acquire_owned();
        place.map(ViewPermit::new).map_err(|_| ApiError::TooManyViews)
    }

    /// Returns the place of a live view, if one is free.
    pub(super) fn begin_live(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let place = Arc::clone(&self.parts.live).try_acquire_owned();
        place.map_err(|_| ApiError::TooManyLiveViews)
    }

    pub(super) fn dispatcher(&self) -> &Dispatcher {
        &self.parts.dispatcher
    }

    pub(super) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(super) fn access(&self) -> &Access {
        &self.parts.access
    }

    pub(super) fn audit(&self) -> &AuditLog {
        &self.parts.audit
    }

    pub(super) fn cookie_seal(&self) -> &CookieSeal {
        &self.parts.cookie_seal
    }

    pub(super) fn recent(&self) -> &RecentSteps {
        &self.parts.recent
    }

    pub(super) fn readiness(&self) -> &Readiness {
        &self.parts.readiness
    }

    pub(super) fn config(&self) -> &AdminConfig {
        &self.parts.config
    }

    pub(super) fn about(&self) -> &About {
        &self.parts.about
    }

    /// Returns the way to other nodes, where others can lead.
    pub(super) fn peers(&self) -> Option<&Peers> {
        self.about().peers.as_ref()
    }

    /// Returns the requested page size, within the limit.
    pub(super) fn page_items(&self, asked: Option<usize>) -> usize {
        let max = self.config().page_items_max;
        asked.unwrap_or(100).clamp(1, max)
    }
}
