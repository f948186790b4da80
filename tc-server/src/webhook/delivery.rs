//! Sends alerts to their receiver, one after the other.
//!
//! A receiver that is down holds up the alerts behind the first, which is all that waits for it. No
//! redirect is followed and no proxy is used; the answer's body is not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::event::{AlertEvent, CONTENT_TYPE};
use super::{Origin, Settings};
use crate::audit::{Action, ActionStage, AuditLog};
use crate::clock::millis;
use crate::dispatch::Backoff;
use crate::metrics::{AlertResult, count_alert};
use crate::over_http::{SignedRequest, with_causes};

/// The operation that the signature is for.
const OPERATION: &str = "alert";
/// The name of the operator in the audit log.
const OPERATOR: &str = "coordinator";
/// The outcome of an alert that no attempt has delivered.
const UNDELIVERED: &str = "HF-TC-ALERT-UNDELIVERED";
/// The outcome of alerts that found no room in the queue.
const DROPPED: &str = "HF-TC-ALERTS-DROPPED";

/// Why alerts cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The URL is none that can be signed for.
    #[error("`{url}` {reason}")]
    Url {
        /// The URL.
        url: String,
        /// The fault of it.
        reason: String,
    },
    /// The HTTP client cannot be set up.
    #[error("HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// The task that sends alerts.
#[derive(Debug)]
pub(super) struct Delivery {
    http: reqwest::Client,
    url: Url,
    settings: Settings,
    origin: Origin,
    audit: AuditLog,
    dropped: Arc<AtomicU64>,
}

/// Reads the URL of a receiver.
///
/// # Errors
///
/// It is no URL, or has parts that the signature does not cover.
pub(crate) fn receiver_url(text: &str) -> Result<Url, ReceiverError> {
    let wrong = |reason: String| ReceiverError::Url { url: text.to_owned(), reason };
    let url = Url::parse(text).map_err(|error| wrong(format!("is no URL: {error}")))?;
    let reason = if !matches!(url.scheme(), "http" | "https") {
        "must begin with http:// or https://"
    } else if !url.username().is_empty() || url.password().is_some() {
        "must not name a user: alerts are signed instead"
    } else if url.query().is_some() || url.fragment().is_some() {
        "must have no query and no fragment, which the signature does not cover"
    } else {
        return Ok(url);
    };
    Err(wrong(reason.to_owned()))
}

impl Delivery {
    pub(super) fn new(
        settings: Settings,
        origin: Origin,
        audit: AuditLog,
        dropped: Arc<AtomicU64>,
    ) -> Result<Self, ReceiverError> {
        let url = receiver_url(&settings.url)?;
        // Fails only if a provider is already installed, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(Duration::from_millis(settings.timeout_ms))
            // Either would take a signed request to where no operator has allowed it to go.
            .redirect(Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self { http, url, settings, origin, audit, dropped })
    }

    /// Sends what comes, until nothing more can come.
    pub(super) async fn run(self, mut alerts: mpsc::Receiver<AlertEvent>) {
        while let Some(alert) = alerts.recv().await {
            self.deliver(&alert).await;
            self.record_dropped().await;
        }
    }

    async fn deliver(&self, alert: &AlertEvent) {
        let action = self.action(alert);
        self.record(&action, ActionStage::Asked).await;
        let outcome = match self.send(alert).await {
            Ok(()) => {
                count_alert(AlertResult::Delivered);
                "done"
            }
            Err(error) => {
                count_alert(AlertResult::GivenUp);
                tracing::error!(
                    id = alert.id, subject = alert.subject, %error,
                    "an alert is given up: look at its receiver, and at its subject"
                );
                UNDELIVERED
            }
        };
        self.record(&action, ActionStage::Answered(outcome)).await;
    }

    /// Sends an alert as often as it may be sent. Returns the last error.
    async fn send(&self, alert: &AlertEvent) -> Result<(), String> {
        let Settings { retry_delay_ms_min, retry_delay_ms_max, attempts_max, .. } = self.settings;
        let mut backoff = Backoff::new(retry_delay_ms_min, retry_delay_ms_max, rand::random());
        let mut failures = 0;
        loop {
            let Err(error) = self.post(alert).await else { return Ok(()) };
            failures += 1;
            if failures >= attempts_max {
                return Err(error);
            }
            tracing::warn!(id = alert.id, failures, error, "an alert is to be sent again");
            sleep(Duration::from_millis(backoff.delay_ms(failures))).await;
        }
    }

    async fn post(&self, alert: &AlertEvent) -> Result<(), String> {
        let body = alert.to_json(&self.origin.address).map_err(|error| error.to_string())?;
        // The machine's clock as it stands, since the receiver compares the age with its own.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp_ms = millis(since_epoch);
        let signed = SignedRequest {
            method: "POST",
            path: self.url.path(),
            xid: &alert.subject,
            branch: alert.branch.0,
            operation: OPERATION,
            timestamp_ms,
            body: &body,
        };
        let signature = signed.by(&self.settings.secret);
        let post = self
            .http
            .post(self.url.clone())
            .header(reqwest::header::CONTENT_TYPE, CONTENT_TYPE)
            .header("handfast-xid", &alert.subject)
            .header("handfast-branch", alert.branch.to_string())
            .header("handfast-operation", OPERATION)
            .header("handfast-timestamp", timestamp_ms.to_string())
            .header("handfast-signature", signature)
            .body(body);
        let response = post.send().await.map_err(with_causes)?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("the receiver answers {status}")) }
    }

    /// Records that alerts were dropped, if some were since this was last recorded.
    async fn record_dropped(&self) {
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if count == 0 {
            return;
        }
        tracing::error!(count, "alerts found no room in the queue: look at their receiver");
        let detail = Some(format!("{count} alerts found no room in the queue"));
        let action = Action { detail, node: self.origin.node.clone(), ..self.own_action() };
        self.record(&action, ActionStage::Answered(DROPPED)).await;
    }

    fn own_action(&self) -> Action {
        Action::new(OPERATOR, "alert")
    }

    fn action(&self, alert: &AlertEvent) -> Action {
        let (xid, event) = alert.target();
        Action {
            branch: xid.is_some().then(|| alert.branch.to_string()),
            xid,
            event,
            detail: Some(alert.kind.name().to_owned()),
            node: self.origin.node.clone(),
            ..self.own_action()
        }
    }

    async fn record(&self, action: &Action, stage: ActionStage<'_>) {
        // An alert says that something is wrong, and is sent although this is wrong too.
        if let Err(error) = self.audit.record(action, stage).await {
            tracing::error!(%error, "the audit log cannot be written, so an alert is missing in it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_a_url_that_the_signature_covers() {
        for good in ["https://alerts.internal/handfast", "http://[::1]:8080/a/b", "http://a"] {
            assert!(receiver_url(good).is_ok(), "{good}");
        }
        for bad in ["", "alerts:8080", "ftp://a/", "http://u@a/", "http://a/?k=1", "http://a/#x"] {
            assert!(receiver_url(bad).is_err(), "{bad}");
        }
    }
}
