//! Health for orchestrators, metrics for Prometheus.

use axum::extract::State;
use http::StatusCode;

use super::caller::Viewer;
use super::{AdminState, ApiError};
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

/// Metrics in Prometheus' text form.
pub(super) async fn metrics(
    _viewer: Viewer,
    State(_state): State<AdminState>,
) -> Result<String, ApiError> {
    Ok(metrics::recorder().render())
}
