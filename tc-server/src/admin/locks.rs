//! Views of global locks.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use handfast_core::{Coordinator, LockFilter, LockView};

use super::caller::Viewer;
use super::extract::{self, Query};
use super::model::{Lock, LockPage, LockQuery, OneLockQuery, Problem};
use super::{AdminState, ApiError, cursor, list, row_key, view};

/// Lists locked rows with their holders and queues.
#[utoipa::path(
    get,
    path = "/api/v1/locks",
    tag = "locks",
    params(LockQuery),
    responses(
        (status = OK, body = LockPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<LockQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let filter = LockFilter {
        resource: query.resource,
        table: query.table,
        key: query.key.as_deref().map(|typed| row_key::from_typed(typed).into()),
        holder: query.holder.as_deref().map(extract::xid).transpose()?,
    };
    let after = query.cursor.as_deref().map(cursor::read).transpose()?;
    let look =
        move |coordinator: &Coordinator, after, bounds| coordinator.locks(&filter, after, bounds);
    let page = list::page(&state, after, query.limit, weight, look).await?;
    let now = state.now();
    let make = move || {
        let items = page.items.iter().map(|lock| view::lock(lock, now)).collect();
        LockPage { items, next: page.next.map(cursor::write) }
    };
    permit.answer(make).await
}

fn weight(lock: &LockView) -> usize {
    1 + lock.holders.len() + lock.queue.len()
}

/// Shows the holders of a row's lock and the requests that wait for it.
#[utoipa::path(
    get,
    path = "/api/v1/locks/one",
    tag = "locks",
    params(OneLockQuery),
    responses(
        (status = OK, body = Lock),
        (status = NOT_FOUND, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn one(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<OneLockQuery>,
) -> Result<Json<Lock>, ApiError> {
    let _permit = state.begin_view()?;
    let OneLockQuery { resource, table, key } = query;
    let filter = LockFilter {
        resource: Some(resource.clone()),
        table: Some(table.clone()),
        key: Some(row_key::from_typed(&key).into()),
        holder: None,
    };
    let look = move |coordinator: &Coordinator| coordinator.locks(&filter, None, list::TURN);
    let locks = state.engine().scan(look).await?;
    let lock = locks.items.first().ok_or(ApiError::NotLocked { resource, table, key })?;
    Ok(Json(view::lock(lock, state.now())))
}
