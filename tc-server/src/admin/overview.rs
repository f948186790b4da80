//! Views of connected processes, their resources, and the coordinator's status.

use axum::Json;
use axum::extract::State;

use super::caller::Viewer;
use super::model::{ClientProcess, Processes, Resource, Resources, ServerStatus};
use super::{AdminState, ApiError, view};
use crate::dispatch::{ProcessView, RegisteredResource, ResourceLoad};
use crate::time_format;

/// The most resources or processes in one answer (BOUNDED).
const ITEMS_SHOWN_MAX: usize = 1_000;
/// The most resources of one process in an answer.
const RESOURCES_SHOWN_MAX: usize = 100;

/// Lists the resources that connected processes serve.
#[utoipa::path(
    get,
    path = "/api/v1/resources",
    tag = "overview",
    responses((status = OK, body = Resources)),
    security(("token" = []))
)]
pub(super) async fn resources(_viewer: Viewer, State(state): State<AdminState>) -> Json<Resources> {
    let dispatcher = state.dispatcher();
    let resource = |load: ResourceLoad| {
        let label = dispatcher.label(&load.resource);
        let (waiting_branches, asked_branches) = (load.due + load.delayed, load.in_flight);
        // A resource without a label may contain a password, so it is listed only if it is in use.
        let is_listed = label.is_some() || waiting_branches + asked_branches > 0;
        is_listed.then(|| Resource {
            id: load.resource.id.to_string(),
            label: label.map_or_else(String::new, |label| label.to_string()),
            mode: view::mode(load.resource.mode),
            processes: load.processes,
            waiting_branches,
            asked_branches,
        })
    };
    let loads = dispatcher.loads();
    let count = loads.len();
    let items = loads.into_iter().filter_map(resource).take(ITEMS_SHOWN_MAX).collect();
    Json(Resources { items, count })
}

/// Lists the connected client processes.
#[utoipa::path(
    get,
    path = "/api/v1/processes",
    tag = "overview",
    responses((status = OK, body = Processes)),
    security(("token" = []))
)]
pub(super) async fn processes(_viewer: Viewer, State(state): State<AdminState>) -> Json<Processes> {
    let dispatcher = state.dispatcher();
    let connected = dispatcher.processes_within(ITEMS_SHOWN_MAX, RESOURCES_SHOWN_MAX);
    let items = connected.into_iter().map(shown).collect();
    Json(Processes { items, count: dispatcher.process_count() })
}

fn shown(connected: ProcessView) -> ClientProcess {
    let ProcessView { process, since, resources, resource_count, in_flight } = connected;
    ClientProcess {
        client_id: process.client_id.to_string(),
        application: process.application.to_string(),
        agent: process.agent.to_string(),
        peer: process.peer.to_string(),
        connected_at: time_format::rfc3339(since),
        asked_branches: in_flight,
        resources: resources.iter().filter_map(listed).collect(),
        resource_count,
    }
}

fn listed(served: &RegisteredResource) -> Option<String> {
    served.label.as_ref().map(|_| served.key.id.to_string())
}

/// Shows the status of the coordinator.
#[utoipa::path(
    get,
    path = "/api/v1/status",
    tag = "overview",
    responses((status = OK, body = ServerStatus)),
    security(("token" = []))
)]
pub(super) async fn status(
    _viewer: Viewer,
    State(state): State<AdminState>,
) -> Result<Json<ServerStatus>, ApiError> {
    let counts = state.engine().view(|coordinator| coordinator.counts()).await?;
    let about = state.about();
    let outboxes = state.relay_reports().totals();
    Ok(Json(ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: about.store.to_owned(),
        advertised_address: about.advertised_address.clone(),
        started_at: time_format::rfc3339(about.started_at),
        uptime_ms: state.now().0.saturating_sub(about.started_at.0),
        active: counts.active,
        committing: counts.committing,
        rolling_back: counts.rolling_back,
        needs_operator: counts.needs_operator,
        remembered: counts.remembered,
        locks: counts.locks,
        waiters: counts.waiters,
        pending_branches: counts.pending_branches,
        processes: state.dispatcher().process_count(),
        relays: outboxes.reporting,
        parked_events: outboxes.parked,
    }))
}
