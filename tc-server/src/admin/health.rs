//! Health for orchestrators, metrics for Prometheus.

use axum::extract::State;
use http::StatusCode;

use super::AdminState;
use super::caller::Viewer;
use crate::metrics;

/// The process runs and its loop turns.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The coordinator leads and takes requests.
pub(super) async fn ready(State(state): State<AdminState>) -> (StatusCode, &'static str) {
    if state.readiness().is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: not leading, or shutting down\n")
    }
}

/// Metrics in Prometheus' text form. While the coordinator does not lead, `handfast_leading` is 0
/// and the other gauges stay as they were last seen.
pub(super) async fn metrics(_viewer: Viewer, State(state): State<AdminState>) -> String {
    match state.engine().view(|coordinator| coordinator.counts()).await {
        Ok(counts) => metrics::set_gauges(&counts),
        Err(_not_leading) => metrics::set_not_leading(),
    }
    metrics::recorder().render()
}
