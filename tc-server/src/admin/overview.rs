//! Who is connected, what they serve, and how the coordinator stands.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;

use super::caller::Viewer;
use super::model::{Process, Processes, Resource, Resources, ServerStatus};
use super::{AdminState, ApiError, view};
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
    let mut by_id: BTreeMap<String, Resource> = BTreeMap::new();
    for process in state.dispatcher().processes() {
        for served in process.resources {
            let id = served.id.to_string();
            let resource = by_id.entry(id.clone()).or_insert_with(|| Resource {
                id,
                label: served.label.to_string(),
                mode: view::mode(served.mode),
                processes: 0,
            });
            resource.processes += 1;
        }
    }
    Json(Resources { items: by_id.into_values().collect() })
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
    let mut items: Vec<_> = connected
        .map(|process| Process {
            client_id: process.client_id.to_string(),
            application: process.application.to_string(),
            agent: process.agent.to_string(),
            resources: process.resources.iter().map(|served| served.id.to_string()).collect(),
        })
        .collect();
    items.sort_by(|a, b| (&a.application, &a.client_id).cmp(&(&b.application, &b.client_id)));
    Json(Processes { items })
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
