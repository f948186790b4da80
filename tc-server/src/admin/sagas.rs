//! Views of sagas.

use axum::extract::State;
use axum::response::Response;
use handfast_core::{Coordinator, PageBounds, Rejection, SagaFilter, Timestamp, Xid};

use super::caller::Viewer;
use super::extract::{self, Path, Query};
use super::model::{OneSagaQuery, Problem, SagaDetail, SagaPage, SagaQuery};
use super::saga_view::{self, Shown};
use super::{AdminState, ApiError, list};
use crate::time_format;

/// The bytes shown of one payload, by default and at most.
const PAYLOAD_BYTES_SHOWN: usize = 1_024;
const PAYLOAD_BYTES_SHOWN_MAX: usize = 65_536;

/// Lists sagas, youngest first.
#[utoipa::path(
    get,
    path = "/api/v1/sagas",
    tag = "sagas",
    params(SagaQuery),
    responses(
        (status = OK, body = SagaPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<SagaQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let now = state.now();
    let before = query.cursor.as_deref().map(extract::xid).transpose()?;
    let limit = query.limit;
    let filter = filter(query, now)?;
    let look = move |coordinator: &Coordinator, before: Option<Xid>, bounds: PageBounds| {
        coordinator.saga_page(&filter, before, bounds)
    };
    let page = list::page(&state, before, limit, |_| 1, look).await?;
    let make = move || {
        let items = page.items.iter().map(|saga| saga_view::summary(saga, now)).collect();
        SagaPage { items, next: page.next.map(|xid| xid.to_string()) }
    };
    permit.answer(make).await
}

/// Shows a saga with its steps, their inputs and outputs, and its timeline.
#[utoipa::path(
    get,
    path = "/api/v1/sagas/{xid}",
    tag = "sagas",
    params(
        ("xid" = String, Path, description = "`address:number`, or the number alone"),
        OneSagaQuery
    ),
    responses(
        (status = OK, body = SagaDetail),
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
    Query(query): Query<OneSagaQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let xid = extract::xid(&xid)?;
    let look = move |coordinator: &Coordinator| coordinator.saga_view(xid);
    let saga = state.engine().scan(look).await?.ok_or(Rejection::UnknownXid(xid))?;
    // Afterwards: a call that is owed by then is one that the saga has shown to be due.
    let standings = state.dispatcher().standings(xid);
    let payload_bytes = query.payload_bytes.unwrap_or(PAYLOAD_BYTES_SHOWN);
    let shown = Shown {
        standings,
        step: query.step,
        payload_bytes: payload_bytes.min(PAYLOAD_BYTES_SHOWN_MAX),
        now: state.now(),
    };
    permit.answer(move || saga_view::detail(&saga, &shown)).await
}

fn filter(query: SagaQuery, now: Timestamp) -> Result<SagaFilter, ApiError> {
    let older_than = query.older_than.as_deref().map(time_format::parse_duration).transpose();
    let older_than = older_than.map_err(ApiError::BadRequest)?;
    Ok(SagaFilter {
        status: query.status.map(saga_view::core_status),
        application: query.application,
        name: query.name,
        key: query.key,
        awaits: query.awaits,
        label: query.label.as_deref().map(extract::label).transpose()?,
        begun_before: older_than.map(|age_ms| Timestamp(now.0.saturating_sub(age_ms))),
    })
}
