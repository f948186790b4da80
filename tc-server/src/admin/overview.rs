//! Who is connected, what they serve, and how the coordinator stands.

use axum::Json;
use axum::extract::State;

use super::caller::Viewer;
use super::model::{ClientProcess, Processes, Resource, Resources, ServerStatus};
use super::{AdminState, ApiError, view};
use crate::dispatch::{ProcessView, RegisteredResource, ResourceKey, ResourceLoad};
use crate::moment;

/// Lists the resources that connected processes serve.
#[utoipa::path(
    get,
    path = "/api/v1/resources",
    tag = "overview",
    responses((status = OK, body = Resources)),
    security(("token" = []))
)]
pub(super) async fn resources(_viewer: Viewer, State(state): State<AdminState>) -> Json<Resources> {
    let processes = state.dispatcher().processes();
    let label = |key: &ResourceKey| {
        let served = processes.iter().flat_map(|process| &process.resources);
        served.filter(|served| served.key == *key).find_map(|served| served.label.clone())
    };
    let resource = |load: ResourceLoad| {
        let label = label(&load.resource);
        let (waiting_branches, asked_branches) = (load.due + load.delayed, load.in_flight);
        // Of what nobody is to see unless it is used.
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
    Json(Resources { items: state.dispatcher().loads().into_iter().filter_map(resource).collect() })
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
    let connected = state.dispatcher().processes().into_iter();
    let process = |ProcessView { process, since, resources, in_flight }| ClientProcess {
        client_id: process.client_id.to_string(),
        application: process.application.to_string(),
        agent: process.agent.to_string(),
        peer: process.peer.to_string(),
        connected_at: moment::rfc3339(since),
        asked_branches: in_flight,
        resources: resources.iter().filter_map(listed).collect(),
    };
    Json(Processes { items: connected.map(process).collect() })
}

fn listed(served: &RegisteredResource) -> Option<String> {
    served.label.as_ref().map(|_| served.key.id.to_string())
}

/// Shows how the coordinator stands.
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
    Ok(Json(ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: about.store.to_owned(),
        advertised_address: about.advertised_address.clone(),
        started_at: moment::rfc3339(about.started_at),
        uptime_ms: state.now().0.saturating_sub(about.started_at.0),
        active: counts.active,
        committing: counts.committing,
        rolling_back: counts.rolling_back,
        needs_operator: counts.needs_operator,
        remembered: counts.remembered,
        locks: counts.locks,
        waiters: counts.waiters,
        pending_branches: counts.pending_branches,
        processes: state.dispatcher().processes().len(),
    }))
}
