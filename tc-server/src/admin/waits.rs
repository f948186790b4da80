//! Views of waiting requests: the queue of a row, the wait-for graph, and refused deadlocks.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use handfast_core::{
    Coordinator, GlobalStatus, Page, PageBounds, RefusedDeadlock, Timestamp, WaitCursor, WaitEdge,
    WaitedFor, WaitingGlobal, WaitingRequest, XidText, display_row_key,
};

use super::caller::Viewer;
use super::extract::Query;
use super::model::{self, LockQueueQuery, Problem, WaitGraphQuery, WaitTarget};
use super::{AdminState, ApiError, cursor, list, row_key, view};
use crate::time_format::rfc3339;

/// Lists the requests that wait for a row, next first.
#[utoipa::path(
    get,
    path = "/api/v1/locks/queue",
    tag = "locks",
    params(LockQueueQuery),
    responses(
        (status = OK, body = model::LockQueuePage),
        (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn queue(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<LockQueueQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let LockQueueQuery { resource, table, key, cursor, limit } = query;
    let after = cursor.as_deref().map(cursor::read_queue).transpose()?;
    let bounds = PageBounds { items_max: state.page_items(limit), ..list::TURN };
    let canonical = row_key::from_typed(&key);
    let row = (resource.clone(), table.clone());
    let look = move |coordinator: &Coordinator| {
        let page = coordinator.lock_queue(&row.0, &row.1, &canonical, after, bounds)?;
        Some((page, coordinator.waiting_for(&row.0, &row.1, &canonical)))
    };
    let found = state.engine().scan(look).await?;
    let (page, waiting) = found.ok_or(ApiError::NotLocked { resource, table, key })?;
    let now = state.now();
    let make = move || model::LockQueuePage {
        items: page.items.iter().map(|waiter| view::lock_waiter(waiter, now)).collect(),
        next: page.next.map(cursor::write_queue),
        waiting,
    };
    permit.answer(make).await
}

/// Shows which transaction waits for which.
#[utoipa::path(
    get,
    path = "/api/v1/locks/graph",
    tag = "locks",
    params(WaitGraphQuery),
    responses(
        (status = OK, body = model::WaitGraph),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn graph(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<WaitGraphQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let after = query.cursor.as_deref().map(cursor::read_wait).transpose()?;
    let look =
        |coordinator: &Coordinator, after, bounds| coordinator.waiting_requests(after, bounds);
    let weight = |request: &WaitingRequest| 1 + request.edges.len();
    let page = list::page(&state, after, query.limit, weight, look).await?;
    let now = state.now();
    permit.answer(move || wait_graph(&page, now)).await
}

/// Shows the deadlocks that were refused last, the latest first.
#[utoipa::path(
    get,
    path = "/api/v1/locks/deadlocks",
    tag = "locks",
    responses(
        (status = OK, body = model::Deadlocks),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn deadlocks(
    _viewer: Viewer,
    State(state): State<AdminState>,
) -> Result<Json<model::Deadlocks>, ApiError> {
    let _permit = state.begin_view()?;
    let refused = state.engine().scan(Coordinator::refused_deadlocks).await?;
    let now = state.now();
    Ok(Json(model::Deadlocks { items: refused.iter().map(|it| deadlock(it, now)).collect() }))
}

fn wait_graph(page: &Page<WaitingRequest, WaitCursor>, now: Timestamp) -> model::WaitGraph {
    let mut nodes = BTreeMap::new();
    for request in &page.items {
        for WaitEdge { to, .. } in &request.edges {
            nodes.entry(to.xid).or_insert_with(|| node(to, now));
        }
    }
    // Last, so that it is said of each of them that it waits.
    for WaitingRequest { global, .. } in &page.items {
        nodes.insert(global.xid, model::WaitNode { waits: true, ..node(global, now) });
    }
    let edges = page
        .items
        .iter()
        .flat_map(|request| request.edges.iter().map(move |edge| wait_edge(request, edge, now)));
    model::WaitGraph {
        edges: edges.collect(),
        nodes: nodes.into_values().collect(),
        next: page.next.map(cursor::write_wait),
    }
}

fn node(global: &WaitingGlobal, now: Timestamp) -> model::WaitNode {
    let is_known = global.status != GlobalStatus::Unknown;
    model::WaitNode {
        xid: xid(global),
        application: global.application.to_string(),
        name: global.name.to_string(),
        labels: view::labels(&global.labels),
        status: is_known.then(|| view::status(global.status)),
        begun_at: is_known.then(|| rfc3339(global.begun_at)),
        age_ms: is_known.then(|| view::age(global.begun_at, now)),
        waits: false,
    }
}

fn wait_edge(request: &WaitingRequest, edge: &WaitEdge, now: Timestamp) -> model::WaitEdge {
    model::WaitEdge {
        from: xid(&request.global),
        to: xid(&edge.to),
        holds: edge.holds,
        target: target(&edge.waited_for),
        since: rfc3339(request.since),
        age_ms: view::age(request.since, now),
        deadline: rfc3339(request.deadline),
    }
}

fn deadlock(refused: &RefusedDeadlock, now: Timestamp) -> model::Deadlock {
    let members = refused.cycle.iter().map(|member| model::DeadlockMember {
        xid: xid(&member.global),
        application: member.global.application.to_string(),
        name: member.global.name.to_string(),
        labels: view::labels(&member.global.labels),
        target: member.waited_for.as_ref().map(target).unwrap_or_default(),
    });
    let cycle: Vec<_> = members.collect();
    model::Deadlock {
        at: rfc3339(refused.at),
        age_ms: view::age(refused.at, now),
        xid: cycle.first().map(|member| member.xid.clone()).unwrap_or_default(),
        length: refused.length,
        cycle,
    }
}

/// A request of a transaction that is shown with it.
pub(super) fn lock_wait(request: &WaitingRequest, now: Timestamp) -> model::LockWait {
    model::LockWait {
        target: target(&request.waited_for),
        since: rfc3339(request.since),
        age_ms: view::age(request.since, now),
        deadline: rfc3339(request.deadline),
        behind: request.edges.iter().map(|edge| xid(&edge.to)).collect(),
    }
}

/// The refusal of a request, in the timeline of its transaction.
pub(super) fn deadlock_entry(refused: &RefusedDeadlock) -> model::TimelineEntry {
    let members = refused.cycle.iter().map(|member| xid(&member.global));
    let cycle: Vec<String> = members.collect();
    let more = refused.length.saturating_sub(cycle.len());
    let more = if more > 0 { format!(" waits for {more} more") } else { String::new() };
    let first = cycle.first().map_or("", String::as_str);
    model::TimelineEntry {
        at: rfc3339(refused.at),
        what: format!(
            "request refused: deadlock: {}{more} waits for {first}",
            cycle.join(" waits for ")
        ),
        kind: model::EventKind::Note,
        branch: None,
        ms: None,
        by: None,
    }
}

fn target(waited_for: &WaitedFor) -> WaitTarget {
    match waited_for {
        WaitedFor::Row { resource, table, key, mode } => WaitTarget {
            resource: Some(resource.to_string()),
            table: Some(table.to_string()),
            key: Some(display_row_key(key)),
            canonical_key: Some(String::from_utf8_lossy(key).into_owned()),
            mode: Some(view::lock_mode(*mode)),
            lock: None,
        },
        WaitedFor::NamedLock { name } => {
            WaitTarget { lock: Some(name.to_string()), ..WaitTarget::default() }
        }
    }
}

fn xid(global: &WaitingGlobal) -> String {
    XidText { address: &global.address, xid: global.xid }.to_string()
}
