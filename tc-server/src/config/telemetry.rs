//! Where spans are sent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spans::export::Settings;

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The URL of a collector that takes OTLP over gRPC, such as `http://127.0.0.1:4317`. Unset:
    /// the coordinator makes no spans, and passes its clients' traces on.
    #[serde(with = "super::unset_is_empty")]
    pub otlp_endpoint: Option<String>,
    /// The service that the spans belong to, `service.name`.
    pub service_name: String,
    /// The share of the traces that clients have sampled to which the coordinator adds its spans,
    /// in per cent; the same traces on every node. Too low: most traces lack the coordinator. Too
    /// high: the collector gets more spans than it can take.
    pub sample_percent: u8,
    /// Spans that wait to be sent; a further one is dropped and counted. Too few: a burst is shown
    /// in part. Too many: memory, about a kilobyte each.
    pub queue_max: usize,
    /// How long one batch of spans may take, repeats included, in milliseconds. Too short: spans
    /// are lost when the collector is slow. Too long: spans are dropped behind a batch that fails.
    pub timeout_ms: u64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            service_name: "handfast".to_owned(),
            sample_percent: 100,
            queue_max: 8_192,
            timeout_ms: 5_000,
        }
    }
}

impl TelemetryConfig {
    /// Adds what is wrong with it.
    pub(super) fn check(&self, messages: &mut Vec<String>) {
        if let Some(url) = &self.otlp_endpoint {
            let parsed = reqwest::Url::parse(url);
            if !parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
                messages
                    .push("`telemetry.otlp_endpoint` must begin with http:// or https://".into());
            }
        }
        if self.sample_percent > 100 {
            let percent = self.sample_percent;
            messages.push(format!("`telemetry.sample_percent` ({percent}) is at most 100"));
        }
        let positive = [("queue_max", self.queue_max > 0), ("timeout_ms", self.timeout_ms > 0)];
        let zero = positive.iter().filter(|(_, is_positive)| !is_positive);
        messages.extend(zero.map(|(key, _)| format!("`telemetry.{key}` must be at least 1")));
        if self.service_name.is_empty() {
            messages.push("`telemetry.service_name` must not be empty".to_owned());
        }
    }

    /// Returns how spans of this node are sent, if they are.
    pub(crate) fn settings(&self, node: String) -> Option<Settings> {
        Some(Settings {
            endpoint: self.otlp_endpoint.clone()?,
            service_name: self.service_name.clone(),
            node,
            sample_percent: self.sample_percent,
            queue_max: self.queue_max,
            timeout: Duration::from_millis(self.timeout_ms),
        })
    }
}
