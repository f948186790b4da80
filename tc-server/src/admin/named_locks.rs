//! Views of named locks, and the operator's action that ends leases.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use handfast_core::{Command, Coordinator, LockToken, NamedLockView, Rejection, Reply};

use super::actions::{self, detail_of};
use super::caller::{Operator, Viewer};
use super::extract::{Body, Query};
use super::model::{
    NamedLock, NamedLockPage, NamedLockQuery, OneNamedLockQuery, Problem, ReleaseReply,
    ReleaseRequest,
};
use super::named_lock_view::named_lock;
use super::{AdminState, ApiError, cursor, list};
use crate::audit::Action;

/// Lists named locks that are held or waited for, with their leases, in the order of their names.
#[utoipa::path(
    get,
    path = "/api/v1/named-locks",
    tag = "named locks",
    params(NamedLockQuery),
    responses(
        (status = OK, body = NamedLockPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<NamedLockQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let after = query.cursor.as_deref().map(cursor::read_name).transpose()?.map(Arc::from);
    let look = |coordinator: &Coordinator, after: Option<Arc<str>>, bounds| {
        coordinator.named_locks(after.as_deref(), bounds)
    };
    let page = list::page(&state, after, query.limit, weight, look).await?;
    let now = state.now();
    let make = move || {
        let items = page.items.iter().map(|lock| named_lock(lock, now)).collect();
        NamedLockPage { items, next: page.next.map(|name| cursor::write_name(&name)) }
    };
    permit.answer(make).await
}

fn weight(lock: &NamedLockView) -> usize {
    1 + lock.held.len() + lock.queue.len()
}

/// Shows the holders of a named lock and the requests that wait for it.
#[utoipa::path(
    get,
    path = "/api/v1/named-locks/one",
    tag = "named locks",
    params(OneNamedLockQuery),
    responses(
        (status = OK, body = NamedLock),
        (status = NOT_FOUND, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn one(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<OneNamedLockQuery>,
) -> Result<Json<NamedLock>, ApiError> {
    let _permit = state.begin_view()?;
    let name = query.name.clone();
    let found = state.engine().scan(move |coordinator| coordinator.named_lock(&name)).await?;
    let found = found.ok_or_else(|| Rejection::LockNotHeld { name: query.name.into() })?;
    Ok(Json(named_lock(&found, state.now())))
}

/// Ends all leases of a named lock, or one of them. Waiting requests are granted then. The client
/// of an ended lease learns of it at its next renewal; until then only the fencing token stops it.
#[utoipa::path(
    post,
    path = "/api/v1/named-locks/release",
    tag = "named locks",
    request_body = ReleaseRequest,
    responses(
        (status = OK, body = ReleaseReply),
        (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn release(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Body(request): Body<ReleaseRequest>,
) -> Result<Json<ReleaseReply>, ApiError> {
    let token = request.token.as_deref().map(token).transpose()?;
    let action = Action {
        detail: detail_of(&request.reason),
        lock: Some(request.name.clone()),
        lease: request.token.clone(),
        ..Action::new(&caller.name(), "release")
    };
    let command = Command::BreakLock { name: request.name.into(), token };
    let finished = tokio::spawn(record_and_release(state, action, command)).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn record_and_release(
    state: AdminState,
    action: Action,
    command: Command,
) -> Result<ReleaseReply, ApiError> {
    actions::record_asked(&state, &action).await?;
    let done = break_lock(&state, command).await;
    actions::record_answered(&state, &action, &done).await?;
    done
}

async fn break_lock(state: &AdminState, command: Command) -> Result<ReleaseReply, ApiError> {
    match state.engine().call(command).await? {
        Reply::LockBroken { leases } => Ok(ReleaseReply { leases }),
        Reply::Rejected(rejection) => Err(rejection.into()),
        reply @ (Reply::Begun { .. }
        | Reply::Registered { .. }
        | Reply::Reported
        | Reply::LastReported
        | Reply::Unlocked
        | Reply::Ended(_)
        | Reply::Status(_)
        | Reply::Operated(_)
        | Reply::Saga(_)
        | Reply::LockGranted { .. }
        | Reply::LockBusy { .. }
        | Reply::LockFound { .. }
        | Reply::LocksRenewed { .. }
        | Reply::LockFreed
        | Reply::LockNotHeld { .. }) => Err(ApiError::Unforeseen(format!("{reply:?}"))),
    }
}

/// Parses a token in the form in which it is listed.
fn token(text: &str) -> Result<LockToken, ApiError> {
    let parsed = text.split_once('.').and_then(|(client, number)| {
        let client = u128::from_str_radix(client, 16).ok()?.to_be_bytes();
        Some(LockToken { client, number: number.parse().ok()? })
    });
    parsed.ok_or_else(|| ApiError::BadRequest(format!("`{text}` is no token of a lease")))
}
