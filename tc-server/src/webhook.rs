//! Alerts for those who operate a coordinator, sent to one URL of theirs.
//!
//! An alert is raised when a transaction or saga begins to need an operator, when a step of a saga
//! is given up, when phase two of a resource is owed for too long (`overdue`), and when an event of
//! an outbox is parked (`parked`). It is a CloudEvent (`event`) and goes out one after the other,
//! signed as calls of participants are, until the receiver takes it or the attempts are used up
//! (`delivery`).
//!
//! Alerts live in memory alone. They are sent at least once for as long as their cause stands: each
//! leader raises them again when it takes the lead, under the same ids. The queue is bounded, and
//! an alert that finds no room is dropped and counted (BOUNDED). The engine never waits here.

mod delivery;
mod event;
mod overdue;
mod parked;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_core::{Alert, Coordinator};
use tokio::sync::mpsc;

use crate::audit::AuditLog;
use crate::metrics::{AlertResult, count_alert};
use crate::over_http::Secret;
use delivery::Delivery;
use event::AlertEvent;

pub use delivery::ReceiverError;
pub(crate) use delivery::receiver_url;
pub(crate) use overdue::watch;
pub(crate) use parked::watch_parked;

/// The receiver of alerts, and the limits of sending to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL that alerts are posted to.
    pub url: String,
    /// The secret that signs them.
    pub secret: Secret,
    /// How long one attempt may take, in milliseconds.
    pub timeout_ms: u64,
    /// After this many failed attempts an alert is given up.
    pub attempts_max: u32,
    /// The first pause after a failed attempt, in milliseconds; it doubles with each further one.
    pub retry_delay_ms_min: u64,
    /// The longest pause between attempts, in milliseconds.
    pub retry_delay_ms_max: u64,
    /// Alerts that wait to be sent.
    pub queue_max: usize,
}

/// Where an alert comes from: the address of the coordinator, and the node if there are several.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The address in the text form of XIDs.
    pub address: Arc<str>,
    /// This node of those that share the store.
    pub node: Option<String>,
}

/// Raises alerts. Cheap to clone. Without a receiver they are not sent anywhere.
#[derive(Clone, Debug, Default)]
pub struct Alerts {
    queue: Option<AlertQueue>,
}

#[derive(Clone, Debug)]
struct AlertQueue {
    sender: mpsc::Sender<AlertEvent>,
    /// Alerts that found no room and are not in the audit log yet.
    dropped: Arc<AtomicU64>,
}

impl Alerts {
    /// Creates the queue, and the task that sends what is in it.
    ///
    /// # Errors
    ///
    /// The URL or the HTTP client cannot be used.
    pub fn prepare(
        settings: Settings,
        origin: Origin,
        audit: AuditLog,
    ) -> Result<(Self, impl Future<Output = ()> + Send), ReceiverError> {
        let (sender, receiver) = mpsc::channel(settings.queue_max);
        let dropped = Arc::new(AtomicU64::new(0));
        let delivery = Delivery::new(settings, origin, audit, Arc::clone(&dropped))?;
        let queue = Some(AlertQueue { sender, dropped });
        Ok((Self { queue }, delivery.run(receiver)))
    }

    /// Raises an alert of the core.
    pub(crate) fn raise(&self, alert: &Alert) {
        if self.queue.is_some() {
            self.enqueue(AlertEvent::of_core(alert));
        }
    }

    /// Raises every alert whose cause stands, for a coordinator that has just taken the lead: a
    /// crash may have lost them.
    pub(crate) fn raise_standing(&self, coordinator: &Coordinator) {
        if self.queue.is_some() {
            coordinator.alerts().for_each(|alert| self.raise(&alert));
        }
    }

    fn enqueue(&self, event: AlertEvent) {
        let Some(AlertQueue { sender, dropped }) = &self.queue else { return };
        if sender.try_send(event).is_err() {
            dropped.fetch_add(1, Ordering::Relaxed);
            count_alert(AlertResult::Dropped);
        }
    }
}
