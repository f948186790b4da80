//! Where alerts are sent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::over_http::Secret;
use crate::webhook::receiver_url;

/// Where alerts are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The URL that alerts are posted to. Unset: alerts are only logged.
    #[serde(with = "super::unset_is_empty")]
    pub url: Option<String>,
    /// A file with at least 32 bytes, the secret that signs alerts.
    #[serde(with = "super::unset_is_empty")]
    pub secret_file: Option<PathBuf>,
    /// How long one attempt may take, in milliseconds. Too short: a slow receiver gets alerts
    /// twice. Too long: a dead receiver is tried rarely.
    pub timeout_ms: u64,
    /// How often an alert is sent at most. Too few: alerts are lost when the receiver restarts. Too
    /// many: alerts wait behind one that cannot be delivered.
    pub attempts_max: u32,
    /// The first pause after a failed attempt, in milliseconds; it doubles with each further one.
    /// Too short: a receiver that starts is hammered. Too long: alerts come late.
    pub retry_delay_ms_min: u64,
    /// The longest pause between attempts, in milliseconds. Too short: as above. Too long: alerts
    /// come late after the receiver is back.
    pub retry_delay_ms_max: u64,
    /// Alerts that wait to be sent; a further one is dropped. Too few: an outage that touches many
    /// transactions is told in part. Too many: memory, about half a kilobyte each.
    pub queue_max: usize,
    /// How long a branch or step may be owed by phase two before that is an alert, in milliseconds.
    /// Too short: each restart of a service is told. Too long: rows stay locked unnoticed.
    pub overdue_ms: u64,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            url: None,
            secret_file: None,
            timeout_ms: 10_000,
            attempts_max: 12,
            retry_delay_ms_min: 1_000,
            retry_delay_ms_max: 300_000,
            queue_max: 1_000,
            overdue_ms: 600_000,
        }
    }
}

impl WebhookConfig {
    /// Adds what is wrong with it.
    pub(super) fn check(&self, messages: &mut Vec<String>) {
        if self.url.is_some() != self.secret_file.is_some() {
            messages.push("`webhook.url` and `webhook.secret_file` go together".to_owned());
        }
        let url = self.url.as_deref().map(receiver_url);
        messages.extend(url.and_then(Result::err).map(|error| format!("`webhook.url`: {error}")));
        let secret = self.secret_file.as_deref().map(Secret::read);
        let unreadable = secret.and_then(Result::err);
        messages.extend(unreadable.map(|error| format!("`webhook.secret_file`: {error}")));
        let positive = [
            ("timeout_ms", self.timeout_ms > 0),
            ("attempts_max", self.attempts_max > 0),
            ("retry_delay_ms_min", self.retry_delay_ms_min > 0),
            ("queue_max", self.queue_max > 0),
            ("overdue_ms", self.overdue_ms > 0),
        ];
        let zero = positive.iter().filter(|(_, is_positive)| !is_positive);
        messages.extend(zero.map(|(key, _)| format!("`webhook.{key}` must be at least 1")));
        let (low, high) = (self.retry_delay_ms_min, self.retry_delay_ms_max);
        if low > high {
            messages.push(format!(
                "`webhook.retry_delay_ms_min` ({low}) is above `webhook.retry_delay_ms_max` \
                 ({high})"
            ));
        }
    }
}
