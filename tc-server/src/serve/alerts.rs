//! Opens the way on which alerts leave, if one is configured.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use super::StartError;
use crate::audit::AuditLog;
use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::over_http::Secret;
use crate::relay_reports::RelayReports;
use crate::store::CoordinatorNode;
use crate::webhook::{self, Alerts, Origin};

/// The sending of alerts, before it is started.
pub(super) struct Sending {
    alerts: Alerts,
    delivery: Option<BoxFuture<'static, ()>>,
}

pub(super) fn open(
    config: &Config,
    audit: &AuditLog,
    advertised_address: &str,
    node: &CoordinatorNode,
) -> Result<Sending, StartError> {
    let webhook = &config.webhook;
    let (Some(url), Some(secret)) = (&webhook.url, &webhook.secret_file) else {
        return Ok(Sending { alerts: Alerts::default(), delivery: None });
    };
    let wrong = |error: &dyn std::error::Error| StartError::Webhook(error.to_string());
    let settings = webhook::Settings {
        url: url.clone(),
        secret: Secret::read(secret).map_err(|error| wrong(&error))?,
        timeout_ms: webhook.timeout_ms,
        attempts_max: webhook.attempts_max,
        retry_delay_ms_min: webhook.retry_delay_ms_min,
        retry_delay_ms_max: webhook.retry_delay_ms_max,
        queue_max: webhook.queue_max,
    };
    let node = config.store.is_shared().then(|| node.id.clone());
    let origin = Origin { address: advertised_address.into(), node };
    let prepared = Alerts::prepare(settings, origin, audit.clone());
    let (alerts, delivery) = prepared.map_err(|error| wrong(&error))?;
    Ok(Sending { alerts, delivery: Some(delivery.boxed()) })
}

impl Sending {
    pub(super) fn alerts(&self) -> Alerts {
        self.alerts.clone()
    }

    /// Starts sending, and looking at the dispatcher's calls and at what relays report.
    pub(super) fn start(
        self,
        dispatcher: &Dispatcher,
        relays: &RelayReports,
        config: &Config,
    ) -> Vec<JoinHandle<()>> {
        let Some(delivery) = self.delivery else { return Vec::new() };
        let parked = webhook::watch_parked(relays.clone(), self.alerts.clone());
        let watch = webhook::watch(dispatcher.clone(), self.alerts, config.webhook.overdue_ms);
        vec![tokio::spawn(delivery), tokio::spawn(watch), tokio::spawn(parked)]
    }
}
