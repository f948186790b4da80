//! Views of transactions.

use axum::extract::State;
use axum::response::Response;
use handfast_core::{Coordinator, GlobalFilter, ListOrder, PageBounds, Rejection, Timestamp, Xid};

use super::caller::Viewer;
use super::extract::{self, Path, Query};
use super::model::{
    self, BranchQuery, Problem, TransactionDetail, TransactionPage, TransactionQuery,
};
use super::{AdminState, ApiError, list, to_come, view, waits};
use crate::time_format;

/// The number of branches in one answer, by default and at most.
const BRANCHES_SHOWN: usize = 100;
const BRANCHES_SHOWN_MAX: usize = 1_000;
/// The most next attempts in one answer.
const TIMERS_SHOWN_MAX: usize = 100;

/// Lists transactions, by default the youngest first.
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
    let after = cursor(&query)?;
    let look =
        move |coordinator: &Coordinator, after, bounds| coordinator.globals(&filter, after, bounds);
    let page = list::page(&state, after, query.limit, |_| 1, look).await?;
    let make = move || {
        let items = page.items.iter().map(|global| view::summary(global, now)).collect();
        TransactionPage { items, next: page.next.map(|xid| xid.to_string()) }
    };
    permit.answer(make).await
}

/// Shows a transaction with its branches, their dirty rows, its timeline, and what is to come.
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
    let look = move |coordinator: &Coordinator| {
        let part = coordinator.global_part(xid, from, bounds)?;
        let (waits, refused) = match from {
            0 => (coordinator.waits_of(xid), coordinator.refused_deadlocks_of(xid)),
            _ => (Vec::new(), Vec::new()),
        };
        Some((part, waits, refused))
    };
    let seen = state.engine().scan(look).await?;
    let (global, waiting, refused) = seen.ok_or(Rejection::UnknownXid(xid))?;
    let attempts = match from {
        0 => state.dispatcher().next_attempts(xid, TIMERS_SHOWN_MAX),
        _ => Vec::new(),
    };
    let now = state.now();
    let make = move || {
        let to_come = if from == 0 { to_come::to_come(&global, &attempts) } else { Vec::new() };
        let waits = waiting.iter().map(|request| waits::lock_wait(request, now)).collect();
        let mut detail = view::detail(&global, from == 0, now);
        detail.timeline.extend(refused.iter().map(waits::deadlock_entry));
        // RFC 3339 texts sort like the points in time.
        detail.timeline.sort_by(|one, other| one.at.cmp(&other.at));
        TransactionDetail { waits, to_come, ..detail }
    };
    permit.answer(make).await
}

/// Returns where a list goes on.
pub(super) fn cursor(query: &TransactionQuery) -> Result<Option<Xid>, ApiError> {
    query.cursor.as_deref().map(extract::xid).transpose()
}

pub(super) fn filter(query: &TransactionQuery, now: Timestamp) -> Result<GlobalFilter, ApiError> {
    let ago = |age: &str| {
        let age_ms = time_format::parse_duration(age).map_err(ApiError::BadRequest)?;
        Ok::<_, ApiError>(Timestamp(now.0.saturating_sub(age_ms)))
    };
    let at = |text: &str| time_format::parse_rfc3339(text).map_err(ApiError::BadRequest);
    let older_than = query.older_than.as_deref().map(ago).transpose()?;
    let younger_than = query.younger_than.as_deref().map(ago).transpose()?;
    let since = query.since.as_deref().map(at).transpose()?;
    let until = query.until.as_deref().map(at).transpose()?;
    Ok(GlobalFilter {
        status: query.status.map(view::status_kind),
        application: query.application.clone(),
        name: query.name.clone(),
        begun_before: older_than.into_iter().chain(until).min(),
        begun_from: younger_than.into_iter().chain(since).max(),
        label: query.label.as_deref().map(extract::label).transpose()?,
        resource: query.resource.clone(),
        table: query.table.clone(),
        text: query.text.clone(),
        order: match query.order {
            None | Some(model::ListOrder::Newest) => ListOrder::NewestFirst,
            Some(model::ListOrder::Oldest) => ListOrder::OldestFirst,
        },
        is_unfinished: false,
    })
}
