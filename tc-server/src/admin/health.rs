//! Health for orchestrators, metrics for Prometheus.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;

use super::AdminState;
use super::caller::Viewer;
use crate::engine::EngineError;
use crate::metrics;

/// A healthy engine answers within milliseconds; Prometheus gives up after ten seconds.
const COUNTS_WITHIN: Duration = Duration::from_secs(1);

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

/// The question of Seata Server's probes
///
/// Says `ok` when the coordinator leads and takes requests, and `not_ok` otherwise, with status 200
/// in either case, as Seata Server does. Probes that go by the status ask `/livez` and `/readyz`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "overview",
    responses((status = OK, body = String, content_type = "text/plain"))
)]
pub(super) async fn of_seata(State(state): State<AdminState>) -> &'static str {
    if state.readiness().is_ready() { "ok" } else { "not_ok" }
}

/// Metrics in Prometheus' text form. While the engine does not answer, because the store hangs or
/// its queue is full, and while the coordinator does not lead, the gauges of what it holds stay as
/// they were last seen.
pub(super) async fn metrics(_viewer: Viewer, State(state): State<AdminState>) -> String {
    let counts = state.engine().view(|coordinator| coordinator.counts());
    match tokio::time::timeout(COUNTS_WITHIN, counts).await {
        Ok(Ok(counts)) => metrics::set_gauges(&counts),
        Ok(Err(EngineError::NotLeading | EngineError::Stopping)) => metrics::set_not_leading(),
        // Too much to do is no loss of the lead.
        Ok(Err(EngineError::Busy)) | Err(_) => metrics::set_stuck(),
    }
    metrics::recorder().render()
}
