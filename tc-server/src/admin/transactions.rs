//! Looking at transactions.

use axum::Json;
use axum::extract::State;
use handfast_core::{Coordinator, GlobalFilter, Rejection, Timestamp};

use super::caller::Viewer;
use super::model::{Problem, TransactionDetail, TransactionPage, TransactionQuery};
use super::read::{self, Path, Query};
use super::{AdminState, ApiError, list, view};
use crate::moment;

/// Lists transactions, youngest first.
#[utoipa::path(
    get,
    path = "/api/v1/transactions",
    tag = "transactions",
    params(TransactionQuery),
    responses((status = OK, body = TransactionPage), (status = BAD_REQUEST, body = Problem)),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<TransactionQuery>,
) -> Result<Json<TransactionPage>, ApiError> {
    let now = state.now();
    let filter = filter(&query, now)?;
    let before = query.cursor.as_deref().map(read::xid).transpose()?;
    let look = move |coordinator: &Coordinator, before, bounds| {
        coordinator.globals(&filter, before, bounds)
    };
    let page = list::page(&state, before, query.limit, look).await?;
    let items = page.items.iter().map(|global| view::summary(global, now)).collect();
    Ok(Json(TransactionPage { items, next: page.next.map(|xid| xid.to_string()) }))
}

/// Shows a transaction with its branches, their dirty rows, and its timeline.
#[utoipa::path(
    get,
    path = "/api/v1/transactions/{xid}",
    tag = "transactions",
    params(("xid" = String, Path, description = "`address:number`, or the number alone")),
    responses((status = OK, body = TransactionDetail), (status = NOT_FOUND, body = Problem)),
    security(("token" = []))
)]
pub(super) async fn show(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Path(xid): Path<String>,
) -> Result<Json<TransactionDetail>, ApiError> {
    let xid = read::xid(&xid)?;
    let global = state.engine().view(move |coordinator| coordinator.global(xid)).await?;
    let global = global.ok_or(Rejection::UnknownXid(xid))?;
    Ok(Json(view::detail(&global, state.now())))
}

fn filter(query: &TransactionQuery, now: Timestamp) -> Result<GlobalFilter, ApiError> {
    let older_than = query.older_than.as_deref().map(moment::parse_duration).transpose();
    let older_than = older_than.map_err(ApiError::BadRequest)?;
    Ok(GlobalFilter {
        status: query.status.map(view::status_kind),
        application: query.application.clone(),
        name: query.name.clone(),
        begun_before: older_than.map(|age_ms| Timestamp(now.0.saturating_sub(age_ms))),
    })
}
