//! The state that the admin API's handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_core::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::ApiError;
use super::view_permit::ViewPermit;
use crate::audit::AuditLog;
use crate::clock::Clock;
use crate::config::AdminConfig;
use crate::dispatch::Dispatcher;
use crate::engine::{EngineHandle, Leadership};
use crate::security::Access;

/// The shared state. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    engine: EngineHandle,
    dispatcher: Dispatcher,
    clock: Arc<dyn Clock>,
    access: Access,
    audit: AuditLog,
    readiness: Readiness,
    config: AdminConfig,
    about: About,
    views: Arc<Semaphore>,
}

/// Facts about the server that do not change while it runs.
#[derive(Clone, Debug)]
pub struct About {
    /// The name of the store.
    pub store: &'static str,
    /// The address in the text form of XIDs.
    pub advertised_address: String,
    /// When the server started.
    pub started_at: Timestamp,
    /// The address for clients of Seata, if that port is enabled.
    pub seata: Option<SeataAddress>,
}

/// The address at which clients of Seata find the coordinator.
#[derive(Clone, Debug)]
pub struct SeataAddress {
    /// Its host.
    pub host: String,
    /// The port for their requests.
    pub port: u16,
    /// The port of the admin API.
    pub admin_port: u16,
}

/// Whether the server accepts requests: it leads, and is not shutting down.
#[derive(Clone, Debug)]
pub struct Readiness {
    stopping: Arc<AtomicBool>,
    standing: watch::Receiver<Leadership>,
}

impl Readiness {
    /// Creates a state that is ready for as long as the engine leads.
    #[must_use]
    pub fn new(standing: watch::Receiver<Leadership>) -> Self {
        Self { stopping: Arc::default(), standing }
    }

    /// Marks the beginning of a shutdown.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
            && matches!(*self.standing.borrow(), Leadership::Leading(_))
    }

    /// Returns a receiver of the engine's leadership.
    pub(super) fn standing(&self) -> watch::Receiver<Leadership> {
        self.standing.clone()
    }
}

impl AdminState {
    /// Creates the state from its parts.
    #[must_use]
    pub fn new(
        engine: EngineHandle,
        dispatcher: Dispatcher,
        clock: Arc<dyn Clock>,
        (access, audit): (Access, AuditLog),
        readiness: Readiness,
        config: AdminConfig,
        about: About,
    ) -> Self {
        let views = Arc::new(Semaphore::new(config.views_max.min(Semaphore::MAX_PERMITS)));
        let parts =
            Parts { engine, dispatcher, clock, access, audit, readiness, config, about, views };
        Self { parts: Arc::new(parts) }
    }

    pub(super) fn engine(&self) -> &EngineHandle {
        &self.parts.engine
    }

    /// Returns a permit for a view, if one is free.
    pub(super) fn begin_view(&self) -> Result<ViewPermit, ApiError> {
        let place = Arc::clone(&self.parts.views).try_acquire_owned();
        place.map(ViewPermit::new).map_err(|_| ApiError::TooManyViews)
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

    pub(super) fn readiness(&self) -> &Readiness {
        &self.parts.readiness
    }

    pub(super) fn config(&self) -> &AdminConfig {
        &self.parts.config
    }

    pub(super) fn about(&self) -> &About {
        &self.parts.about
    }

    /// Returns the requested page size, within the limit.
    pub(super) fn page_items(&self, asked: Option<usize>) -> usize {
        let max = self.config().page_items_max;
        asked.unwrap_or(100).clamp(1, max)
    }
}
