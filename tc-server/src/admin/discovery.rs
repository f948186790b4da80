//! Discovery for clients of Seata whose registry is `raft`: the address of the leader, and its
//! changes. A single coordinator is a cluster of one node that leads. The leader's epoch is the
//! term. A node names the leader that it knows of and the others that were seen lately, and no node
//! if it knows no leader: a client then asks another. It asks only nodes that were named to it, so
//! a client that knows only the leader is lost when the leader goes.
//!
//! The Java client refuses unknown properties. Sources:
//! `common/.../metadata/MetadataResponse.java`, `Node.java`,
//! `discovery/.../raft/RaftRegistryServiceImpl.java`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::caller::Viewer;
use super::state::SeataAddress;
use super::{AdminState, ApiError};
use crate::engine::Leadership;
use crate::peers::Peers;
use crate::seata::SERVER_VERSION;
use crate::security::{AccessError, Permission};
use crate::store::Leader;

/// The only group.
const GROUP: &str = "default";
/// The roles of nodes.
const LEADER: &str = "LEADER";
const FOLLOWER: &str = "FOLLOWER";
/// How long a node is named after it was last seen: a client tries again and again to connect to
/// each node that is named.
const SEEN_WITHIN: Duration = Duration::from_secs(15);
/// How long a watch request waits by default and at most. The client gives up after 30 seconds.
const WATCH_LIMIT: Duration = Duration::from_secs(28);

/// Returns the routes of the `raft` registry.
pub(super) fn router() -> Router<AdminState> {
    Router::new()
        .route("/metadata/v1/cluster", routing::get(cluster))
        .route("/metadata/v1/watch", routing::post(watch))
        .route("/api/v1/auth/login", routing::post(login))
}

/// The nodes and their addresses.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    nodes: Vec<Node>,
    /// `raft` makes a client send everything to the leader.
    store_mode: &'static str,
    term: u64,
}

#[derive(Debug, Serialize)]
struct Node {
    control: Endpoint,
    transaction: Endpoint,
    /// The endpoint between nodes, which clients do not use.
    internal: Endpoint,
    group: &'static str,
    role: &'static str,
    version: &'static str,
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize)]
struct Endpoint {
    host: String,
    port: u16,
}

async fn cluster(
    _viewer: Viewer,
    State(state): State<AdminState>,
) -> Result<Json<Metadata>, ApiError> {
    let Some(this) = &state.about().seata else { return Err(ApiError::NoRoute) };
    let seen = seen_lately(&state);
    let leadership = state.readiness().leadership();
    let (leader, term) = match &*leadership.borrow() {
        Leadership::Leading(epoch) => (Some(this.clone()), epoch.0),
        Leadership::Following(Leader::Elsewhere { epoch, node }) => {
            (SeataAddress::of(node), epoch.0)
        }
        Leadership::Following(Leader::Unknown | Leader::Here)
        | Leadership::Gaining
        | Leadership::Ended => {
            return Ok(Json(Metadata { nodes: Vec::new(), store_mode: "raft", term: 0 }));
        }
    };
    let followers = followers(leader.as_ref(), this, seen);
    let leader = leader.as_ref().map(|leader| node(leader, LEADER));
    let followers = followers.iter().map(|follower| node(follower, FOLLOWER));
    let nodes = leader.into_iter().chain(followers).collect();
    Ok(Json(Metadata { nodes, store_mode: "raft", term }))
}

/// Returns the nodes that have said lately that they are there.
fn seen_lately(state: &AdminState) -> Vec<SeataAddress> {
    let seen = state.peers().map(Peers::seen).unwrap_or_default();
    let lately = seen.iter().filter(|it| it.seen_at.elapsed() <= SEEN_WITHIN);
    lately.filter_map(|it| SeataAddress::of(&it.node)).collect()
}

/// Returns each node but the leader once, this one among them.
fn followers(
    leader: Option<&SeataAddress>,
    this: &SeataAddress,
    seen: Vec<SeataAddress>,
) -> Vec<SeataAddress> {
    let mut followers = Vec::new();
    for node in seen.into_iter().chain([this.clone()]) {
        if Some(&node) != leader && !followers.contains(&node) {
            followers.push(node);
        }
    }
    followers
}

fn node(address: &SeataAddress, role: &'static str) -> Node {
    let (host, port) = (address.host.clone(), address.port);
    let control = Endpoint { host: host.clone(), port: address.admin_port };
    Node {
        internal: control.clone(),
        control,
        transaction: Endpoint { host, port },
        group: GROUP,
        role,
        version: SERVER_VERSION,
        metadata: BTreeMap::new(),
    }
}

/// Returns the term of the leader that is known, here or elsewhere.
fn term(leadership: &Leadership) -> Option<u64> {
    let elsewhere = || leadership.leader_elsewhere().map(|(epoch, _)| epoch);
    leadership.epoch().or_else(elsewhere).map(|epoch| epoch.0)
}

#[derive(Debug, Deserialize)]
struct Wait {
    /// In milliseconds.
    timeout: Option<u64>,
}

/// Waits for a newer term than the client knows. Answers 200 if there is one, and 304 otherwise.
async fn watch(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(wait): Query<Wait>,
    form: String,
) -> Result<StatusCode, ApiError> {
    if state.about().seata.is_none() {
        return Err(ApiError::NoRoute);
    }
    let known = known_term(&form)?;
    // Shorter than the port's own limit, which would answer with an error.
    let port_limit = Duration::from_millis(state.config().request_timeout_ms) * 9 / 10;
    let asked = wait.timeout.map_or(WATCH_LIMIT, Duration::from_millis);
    let limit = asked.min(WATCH_LIMIT).min(port_limit);
    let mut leadership = state.readiness().leadership();
    let is_newer = |it: &Leadership| term(it).is_some_and(|term| term > known);
    // The current leadership counts too: a client that has missed a change is answered at once.
    Ok(match timeout(limit, leadership.wait_for(is_newer)).await {
        Ok(Ok(_newer)) => StatusCode::OK,
        // The first error means that the engine has ended, as in a shutdown.
        Ok(Err(_)) | Err(_) => StatusCode::NOT_MODIFIED,
    })
}

/// Returns the newest term in a form of groups and terms. A client that knows no term sends a
/// negative one.
fn known_term(form: &str) -> Result<u64, ApiError> {
    let term = |pair: &str| pair.split_once('=').and_then(|(_, term)| term.parse::<i64>().ok());
    let terms: Option<Vec<i64>> = form.split('&').map(term).collect();
    let newest = terms.and_then(|terms| terms.into_iter().max());
    let newest = newest.ok_or_else(|| ApiError::BadRequest("the form is group=term".to_owned()))?;
    Ok(u64::try_from(newest).unwrap_or(0))
}

#[derive(Debug, Deserialize)]
struct Login {
    password: String,
}

/// The answer in the form of Seata's console. A client sends `data` as `Authorization`.
#[derive(Debug, Serialize)]
struct LoggedIn {
    code: &'static str,
    message: &'static str,
    data: Option<String>,
    success: bool,
}

/// Logs a Seata client in. A Seata client has a name and a password; the password is a token of
/// this port.
async fn login(
    State(state): State<AdminState>,
    Json(login): Json<Login>,
) -> Result<Response, ApiError> {
    if state.about().seata.is_none() {
        return Err(ApiError::NoRoute);
    }
    let bearer = format!("Bearer {}", login.password);
    let allowed = || -> Result<(), AccessError> {
        let value = HeaderValue::from_str(&bearer).map_err(|_| AccessError::Unauthenticated)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        state.access().check(&headers, Permission::Read).map(drop)
    };
    let (status, answer) = match allowed() {
        Ok(()) => {
            let (code, message) = ("200", "success");
            (StatusCode::OK, LoggedIn { code, message, data: Some(bearer), success: true })
        }
        Err(_refused) => {
            let (code, message) = ("401", "the password is no token of this port");
            (StatusCode::UNAUTHORIZED, LoggedIn { code, message, data: None, success: false })
        }
    };
    Ok((status, Json(answer)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_named_once() {
        let [one, two, three] = ["one", "two", "three"].map(|host| SeataAddress {
            host: host.to_owned(),
            port: 8_091,
            admin_port: 7_092,
        });
        let all = || vec![one.clone(), two.clone(), three.clone()];
        for (leader, this, seen, expected) in [
            (Some(&one), &one, all(), vec![two.clone(), three.clone()]),
            (Some(&one), &two, all(), vec![two.clone(), three.clone()]),
            (Some(&one), &two, Vec::new(), vec![two.clone()]),
            (Some(&one), &one, Vec::new(), Vec::new()),
            (None, &two, vec![two.clone()], vec![two.clone()]),
        ] {
            assert_eq!(followers(leader, this, seen), expected);
        }
    }

    #[test]
    fn the_newest_term_of_a_form_counts() {
        assert_eq!(known_term("default=3").unwrap(), 3);
        assert_eq!(known_term("a=3&b=7").unwrap(), 7);
        assert_eq!(known_term("default=-1").unwrap(), 0);
        for form in ["", "default", "default=", "default=x"] {
            assert_eq!(known_term(form).unwrap_err().code(), "HF-ADM-BAD-REQUEST", "{form}");
        }
    }
}
