//! Health for orchestrators, metrics for Prometheus.

use std::time::Duration;

use axum::extract::{Query, State};
use handfast_core::Coordinator;
use http::StatusCode;
use serde::Deserialize;

use super::AdminState;
use super::caller::Viewer;
use crate::engine::EngineError;
use crate::metrics;

/// How long a metrics request waits for the engine. A healthy engine answers within milliseconds,
/// and Prometheus gives up after ten seconds.
const COUNTS_WITHIN: Duration = Duration::from_secs(1);

/// Answers that the process runs and its async runtime makes progress.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The question of a readiness probe.
#[derive(Debug, Deserialize)]
pub(super) struct ReadinessQuery {
    /// Given, with or without a value: the node that leads, for a load balancer. Otherwise: a node
    /// that leads or follows, for an orchestrator, which would end a follower that is not ready.
    leader: Option<String>,
}

/// Answers whether the coordinator leads, or follows a leader that it knows.
pub(super) async fn ready(
    State(state): State<AdminState>,
    Query(asked): Query<ReadinessQuery>,
) -> (StatusCode, String) {
    let readiness = state.readiness();
    let is_ready = if asked.leader.is_some() { readiness.leads() } else { readiness.is_member() };
    if is_ready {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", readiness.why_not()))
    }
}

/// Answers the health probe of Seata Server
///
/// The body is `ok` if the coordinator leads and accepts requests, and `not_ok` otherwise, with
/// status 200 in either case, as in Seata Server. Probes that check the status use `/livez` and
/// `/readyz`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "overview",
    responses((status = OK, body = String, content_type = "text/plain"))
)]
pub(super) async fn of_seata(State(state): State<AdminState>) -> &'static str {
    if state.readiness().leads() { "ok" } else { "not_ok" }
}

/// Returns the metrics in Prometheus' text format. While the engine does not answer, because the
/// store hangs or its queue is full, and while the coordinator does not lead, the gauges of its
/// state keep their last values.
pub(super) async fn metrics(_viewer: Viewer, State(state): State<AdminState>) -> String {
    metrics::set_processes(state.dispatcher().process_count());
    metrics::set_outboxes(&state.relay_reports().totals());
    let look = |coordinator: &Coordinator| (coordinator.counts(), coordinator.saga_counts());
    let counts = state.engine().view(look);
    match tokio::time::timeout(COUNTS_WITHIN, counts).await {
        Ok(Ok((counts, sagas))) => metrics::set_gauges(&counts, &sagas),
        Ok(Err(EngineError::NotLeading | EngineError::Stopping)) => metrics::set_not_leading(),
        // A full queue does not mean that the lead is lost.
        Ok(Err(EngineError::Busy)) | Err(_) => metrics::set_stuck(),
    }
    metrics::recorder().render()
}
