//! Passes requests of the admin API on to the leader while another node leads.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName};

use super::{AdminState, ApiError};
use crate::engine::EngineError;
use crate::peers::{PASSED_ON, Peers};
use crate::store::CoordinatorNode;

/// The longest answer of the leader that is passed back (BOUNDED).
const ANSWER_BYTES_MAX: usize = 16 << 20;
const REQUEST_HEADERS: [HeaderName; 3] = [ACCEPT, AUTHORIZATION, CONTENT_TYPE];
const ANSWER_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE];

pub(super) async fn to_the_leader(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let leader = state.readiness().leader_elsewhere();
    let (Some(leader), Some(peers)) = (leader, state.peers()) else {
        return Ok(next.run(request).await);
    };
    if request.headers().contains_key(PASSED_ON) {
        return Err(EngineError::NotLeading.into());
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, state.config().body_bytes_max).await;
    ask(peers, &leader, parts, body.map_err(|_| ApiError::BodyTooLarge)?).await
}

async fn ask(
    peers: &Peers,
    leader: &CoordinatorNode,
    parts: Parts,
    body: Bytes,
) -> Result<Response, ApiError> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let request = peers.http().request(parts.method, peers.url(&leader.admin, path));
    // The other headers belong to this connection, such as its host and length.
    let request = request.headers(picked(&parts.headers, &REQUEST_HEADERS));
    let answer = request.header(PASSED_ON, "1").body(body).send().await;
    let answer = answer.map_err(|error| unreachable(leader, &error))?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        *headers = picked(answer.headers(), &ANSWER_HEADERS);
    }
    let body = read(answer).await.map_err(|error| unreachable(leader, &error))?;
    response.body(Body::from(body)).map_err(|error| ApiError::Unforeseen(error.to_string()))
}

/// Reads an answer as far as it is passed back.
async fn read(mut answer: reqwest::Response) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err("its answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn picked(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let found = names.iter().filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    found.collect()
}

fn unreachable(leader: &CoordinatorNode, error: &dyn std::fmt::Display) -> ApiError {
    tracing::debug!(leader = leader.id, %error, "a request did not reach the leader");
    ApiError::LeaderUnreachable { leader: leader.admin.clone() }
}
