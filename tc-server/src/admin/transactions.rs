//! Views of transactions.

use axum::extract::State;
use axum::response::Response;
use handfast_core::{Coordinator, GlobalFilter, PageBounds, Rejection, Timestamp};

use super::caller::Viewer;
use super::extract::{self, Path, Query};
use super::model::{BranchQuery, Problem, TransactionDetail, TransactionPage, TransactionQuery};
use super::{AdminState, ApiError, list, view};
use crate::time_format;

/// The number of branches in one answer, by default and at most.
const BRANCHES_SHOWN: usize = 100;
const BRANCHES_SHOWN_MAX: usize = 1_000;

/// Lists transactions, youngest first.
#[utoipa::path(
    get,
    path = "/api/v1/transactions",
    tag = "transactions",
    params(TransactionQuery),
    responses(
        (status = OK, body = TransactionPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<TransactionQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let now = state.now();
    let filter = filter(&query, now)?;
    let before = query.cursor.as_deref().map(extract::xid).transpose()?;
    let look = move |coordinator: &Coordinator, before, bounds| {
        coordinator.globals(&filter, before, bounds)
    };
    let page = list::page(&state, before, query.limit, |_| 1, look).await?;
    let make = move || {
        let items = page.items.iter().map(|global| view::summary(global, now)).collect();
        TransactionPage { items, next: page.next.map(|xid| xid.to_string()) }
    };
    permit.answer(make).await
}

/// Shows a transaction with its branches, their dirty rows, and its timeline.
#[utoipa::path(
    get,
    path = "/api/v1/transactions/{xid}",
    tag = "transactions",
    params(
        ("xid" = String, Path, description = "`address:number`, or the number alone"),
        BranchQuery
    ),
    responses(
        (status = OK, body = TransactionDetail),
        (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn show(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Path(xid): Path<String>,
    Query(query): Query<BranchQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let xid = extract::xid(&xid)?;
    let from = query.cursor.as_deref().map(extract::sequence).transpose()?.unwrap_or(0);
    let items_max = query.limit.unwrap_or(BRANCHES_SHOWN).clamp(1, BRANCHES_SHOWN_MAX);
    let bounds = PageBounds { items_max, ..list::TURN };
    let look = move |coordinator: &Coordinator| coordinator.global_part(xid, from, bounds);
    let global = state.engine().scan(look).await?.ok_or(Rejection::UnknownXid(xid))?;
    let now = state.now();
    permit.answer(move || view::detail(&global, from == 0, now)).await
}

fn filter(query: &TransactionQuery, now: Timestamp) -> Result<GlobalFilter, ApiError> {
    let older_than = query.older_than.as_deref().map(time_format::parse_duration).transpose();
    let older_than = older_than.map_err(ApiError::BadRequest)?;
    Ok(GlobalFilter {
        status: query.status.map(view::status_kind),
        application: query.application.clone(),
        name: query.name.clone(),
        begun_before: older_than.map(|age_ms| Timestamp(now.0.saturating_sub(age_ms))),
    })
}
