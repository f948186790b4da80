//! The nodes that share a store, and the transfer of the lead.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use handfast_core::Epoch;
use tokio::time::timeout;

use super::actions::{cut, located, record_answered, record_asked};
use super::caller::{Operator, Viewer};
use super::extract::Reason;
use super::model::{
    ActionRequest, Cluster, ClusterNode, NodeStanding, Problem, SeenClusterNode, TransferReply,
};
use super::{AdminState, ApiError};
use crate::audit::Action;
use crate::engine::{EngineError, Leadership};
use crate::peers::Peers;
use crate::store::{CoordinatorNode, SeenNode};
use crate::time_format;

/// How long another node may take to gain the lead that this one has given up.
const TRANSFER_LIMIT: Duration = Duration::from_secs(5);

/// Shows which node leads, where the asked node stands, and which nodes are there
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
    let leadership = state.readiness().leadership().borrow().clone();
    let this = &state.about().node;
    let elsewhere = leadership.leader_elsewhere();
    let leader = if leadership.epoch().is_some() { Some(this) } else { elsewhere.map(|it| it.1) };
    let epoch = leadership.epoch().or(elsewhere.map(|it| it.0));
    Json(Cluster {
        node: shown(this),
        standing: standing_of(&leadership),
        since: time_format::rfc3339(state.readiness().since()),
        store: state.about().store.to_owned(),
        leader: leader.map(shown),
        epoch: epoch.map(|epoch| epoch.0),
        nodes: state.peers().map(seen_nodes),
    })
}

fn seen_nodes(peers: &Peers) -> Vec<SeenClusterNode> {
    let shown = |SeenNode { node, seen_at }| SeenClusterNode {
        node: shown(&node),
        seen_ms_ago: u64::try_from(seen_at.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    peers.seen().into_iter().map(shown).collect()
}

/// Hands the lead over to another node
///
/// The node that leads gives up the lead once everything that it has taken in is durable and
/// answered. The answer comes when another node leads.
#[utoipa::path(
    post,
    path = "/api/v1/cluster/transfer",
    tag = "actions",
    request_body = ActionRequest,
    responses((status = OK, body = TransferReply), (status = CONFLICT, body = Problem)),
    security(("token" = []))
)]
pub(super) async fn transfer(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Reason(request): Reason,
) -> Result<Json<TransferReply>, ApiError> {
    let action = Action {
        detail: Some(cut(&request.reason)).filter(|reason| !reason.is_empty()),
        ..Action::new(&caller.name(), "transfer")
    };
    let finished = tokio::spawn(record_and_transfer(state, action)).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn record_and_transfer(state: AdminState, action: Action) -> Result<TransferReply, ApiError> {
    // Both lines of the log name the epoch that is given up.
    let action = located(&state, &action);
    record_asked(&state, &action).await?;
    let done = hand_over(&state).await;
    record_answered(&state, &action, &done).await?;
    done
}

async fn hand_over(state: &AdminState) -> Result<TransferReply, ApiError> {
    let mut leadership = state.readiness().leadership();
    let given_up = leadership.borrow_and_update().epoch().ok_or(EngineError::NotLeading)?;
    // Without another node the lead would only be interrupted.
    if state.peers().is_none() {
        return Err(ApiError::NoOtherNode);
    }
    state.engine().hand_over();
    let changed = leadership.wait_for(|leadership| is_settled(leadership, given_up));
    let settled = timeout(TRANSFER_LIMIT, changed).await.map_err(|_elapsed| ApiError::Timeout)?;
    let settled = settled.map_err(|_ended| EngineError::Stopping)?;
    let (epoch, leader) = settled.leader_elsewhere().ok_or(ApiError::NoOtherNode)?;
    Ok(TransferReply { leader: shown(leader), epoch: epoch.0 })
}

/// Returns whether it is known which node leads after the epoch that was given up.
fn is_settled(leadership: &Leadership, given_up: Epoch) -> bool {
    let leads_again = leadership.epoch().is_some_and(|epoch| epoch > given_up);
    leads_again || leadership.leader_elsewhere().is_some() || *leadership == Leadership::Ended
}

fn standing_of(leadership: &Leadership) -> NodeStanding {
    match leadership {
        Leadership::Following(_) => NodeStanding::Following,
        Leadership::Gaining => NodeStanding::Gaining,
        Leadership::Leading(_) => NodeStanding::Leading,
        Leadership::Ended => NodeStanding::Ended,
    }
}

fn shown(node: &CoordinatorNode) -> ClusterNode {
    let CoordinatorNode { id, version, grpc, admin, seata } = node.clone();
    ClusterNode { id, version, grpc, admin, seata }
}
