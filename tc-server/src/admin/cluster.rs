//! The view of the nodes that share a store. Every node answers it, from what it knows.

use axum::Json;
use axum::extract::State;

use super::AdminState;
use super::caller::Viewer;
use super::model::{Cluster, ClusterNode, NodeStanding};
use crate::engine::Standing;
use crate::store::CoordinatorNode;
use crate::time_format;

/// Shows which node leads, and where the asked node stands
///
/// Every node answers this itself; other requests are passed on to the leader.
#[utoipa::path(
    get,
    path = "/api/v1/cluster",
    tag = "overview",
    responses((status = OK, body = Cluster)),
    security(("token" = []))
)]
pub(super) async fn show(_viewer: Viewer, State(state): State<AdminState>) -> Json<Cluster> {
    let standing = state.readiness().standing().borrow().clone();
    let this = &state.about().node;
    let elsewhere = standing.leader_elsewhere();
    let leader = if standing.epoch().is_some() { Some(this) } else { elsewhere.map(|it| it.1) };
    let epoch = standing.epoch().or(elsewhere.map(|it| it.0));
    Json(Cluster {
        node: shown(this),
        standing: standing_of(&standing),
        since: time_format::rfc3339(state.readiness().since()),
        store: state.about().store.to_owned(),
        leader: leader.map(shown),
        epoch: epoch.map(|epoch| epoch.0),
    })
}

fn standing_of(standing: &Standing) -> NodeStanding {
    match standing {
        Standing::Following(_) => NodeStanding::Following,
        Standing::Gaining => NodeStanding::Gaining,
        Standing::Leading(_) => NodeStanding::Leading,
        Standing::Ended => NodeStanding::Ended,
    }
}

fn shown(node: &CoordinatorNode) -> ClusterNode {
    let CoordinatorNode { id, version, grpc, admin, seata } = node.clone();
    ClusterNode { id, version, grpc, admin, seata }
}
