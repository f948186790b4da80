//! Events of outboxes as their relays report them, and the actions that relays carry out.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use handfast_core::Timestamp;

use super::actions::{self, detail_of};
use super::caller::{Operator, Viewer};
use super::extract::{Path, Query, Reason};
use super::model::{
    ActionRequest, EventOutcome, EventPage, EventQuery, EventReply, OutboxLane, OutboxRelay,
    ParkedEvent, Problem,
};
use super::{AdminState, ApiError, cursor};
use crate::audit::Action;
use crate::relay_reports::{self, LaneReport, NotCarriedOut, OutboxVerb, RelayView};
use crate::time_format::rfc3339;

/// A parked event in the order of the list, with the relay that reports it.
type Found = (Reverse<Timestamp>, Arc<str>, usize, usize);

/// Lists the relays of outboxes, and parked events, those that were parked last first.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "events",
    params(EventQuery),
    responses(
        (status = OK, body = EventPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<EventQuery>,
) -> Result<Response, ApiError> {
    let permit = state.begin_view()?;
    let after = query.cursor.as_deref().map(cursor::read_event).transpose()?;
    let (relays, now) = (state.relay_reports().relays(), state.now());
    let limit = state.page_items(query.limit);
    permit.answer(move || page(&relays, &query, after, limit, now)).await
}

/// Defines the route of an action on a parked event. The routes differ only in name and verb.
macro_rules! action {
    ($(#[$meaning:meta])* $name:ident at $path:literal is $verb:expr) => {
        $(#[$meaning])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "events",
            params(("event" = String, Path, description = "the event's id")),
            request_body = ActionRequest,
            responses(
                (status = OK, body = EventReply),
                (status = NOT_FOUND, body = Problem),
                (status = CONFLICT, body = Problem),
                (status = TOO_MANY_REQUESTS, body = Problem),
                (status = GATEWAY_TIMEOUT, body = Problem)
            ),
            security(("token" = []))
        )]
        pub(super) async fn $name(
            Operator(caller): Operator,
            State(state): State<AdminState>,
            Path(event): Path<String>,
            Reason(request): Reason,
        ) -> Result<Json<EventReply>, ApiError> {
            let action = Action {
                event: Some(actions::cut(&event)),
                detail: detail_of(&request.reason),
                ..Action::new(&caller.name(), stringify!($name))
            };
            execute(state, action, event, $verb).await
        }
    };
}

action! {
    /// Has a parked event published after all, and later events of its key behind it.
    requeue at "/api/v1/events/{event}/requeue" is OutboxVerb::Requeue
}

action! {
    /// Gives up a parked event: it is never published, and its key goes on.
    skip at "/api/v1/events/{event}/skip" is OutboxVerb::Skip
}

async fn execute(
    state: AdminState,
    action: Action,
    event: String,
    verb: OutboxVerb,
) -> Result<Json<EventReply>, ApiError> {
    let executing = async move {
        actions::record_asked(&state, &action).await?;
        let done = ask(&state, event, verb).await;
        actions::record_answered(&state, &action, &done).await?;
        done
    };
    let finished = tokio::spawn(executing).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn ask(state: &AdminState, event: String, verb: OutboxVerb) -> Result<EventReply, ApiError> {
    let outcome = match verb {
        OutboxVerb::Requeue => EventOutcome::New,
        OutboxVerb::Skip => EventOutcome::Skipped,
    };
    match state.relay_reports().act(&event, verb).await {
        Ok(key) => Ok(EventReply { event, outbox: key.outbox.to_string(), state: outcome }),
        Err(NotCarriedOut::UnknownEvent) => Err(ApiError::UnknownEvent { event }),
        Err(NotCarriedOut::Silent(key)) => {
            Err(ApiError::RelaySilent { outbox: key.outbox.to_string() })
        }
        Err(NotCarriedOut::Busy(key)) => {
            Err(ApiError::RelayBusy { outbox: key.outbox.to_string() })
        }
        Err(NotCarriedOut::Refused(refusal)) => {
            Err(ApiError::RelayRefused { code: refusal.code, message: refusal.message })
        }
    }
}

fn page(
    relays: &[RelayView],
    query: &EventQuery,
    after: Option<(Timestamp, String)>,
    limit: usize,
    now: Timestamp,
) -> EventPage {
    let found = find(relays, query, after);
    let more = found.get(limit).is_some();
    let last = found.get(limit.saturating_sub(1)).filter(|_| more);
    let next = last.map(|(at, event, ..)| cursor::write_event(at.0, event));
    let items = found.iter().take(limit).filter_map(|(_, _, relay, place)| {
        let view = relays.get(*relay)?;
        Some(parked(view, view.report.parked.get(*place)?, now))
    });
    let shown = |view: &&RelayView| is(&query.outbox, &view.key.outbox);
    let items = items.collect();
    EventPage {
        relays: relays.iter().filter(shown).map(|it| relay(it, now)).collect(),
        items,
        next,
    }
}

/// Returns the parked events that pass, behind a place. One that two relays report, since its lane
/// moves from one to the other, is listed once.
fn find(
    relays: &[RelayView],
    query: &EventQuery,
    after: Option<(Timestamp, String)>,
) -> Vec<Found> {
    let passes = |view: &RelayView, event: &relay_reports::ParkedEvent| {
        is(&query.outbox, &view.key.outbox)
            && is(&query.topic, &event.topic)
            && is(&query.key, &event.key)
    };
    let mut found: Vec<Found> = Vec::new();
    for (at, view) in relays.iter().enumerate() {
        for (place, event) in view.report.parked.iter().enumerate() {
            if passes(view, event) {
                found.push((Reverse(event.parked_at), Arc::clone(&event.event), at, place));
            }
        }
    }
    found.sort();
    found.dedup_by(|later, kept| later.1 == kept.1);
    if let Some((at, event)) = after {
        found.retain(|(parked_at, id, ..)| (*parked_at, &**id) > (Reverse(at), &*event));
    }
    found
}

fn is(wanted: &Option<String>, text: &str) -> bool {
    wanted.as_deref().is_none_or(|wanted| wanted == text)
}

fn relay(view: &RelayView, now: Timestamp) -> OutboxRelay {
    let RelayView { key, report, reported_at, is_silent } = view;
    let oldest = report.lanes.iter().filter_map(|lane| lane.oldest_new).min();
    let is_used = |lane: &&LaneReport| lane.held > 0 || lane.new > 0 || lane.parked > 0;
    OutboxRelay {
        application: key.application.to_string(),
        outbox: key.outbox.to_string(),
        relay: key.relay.to_string(),
        peer: report.peer.to_string(),
        is_silent: *is_silent,
        seen_ms_ago: now.0.saturating_sub(reported_at.0),
        error: report.error.as_ref().map(ToString::to_string),
        held: report.sum(|lane| lane.held),
        new: report.sum(|lane| lane.new),
        parked: report.sum(|lane| lane.parked),
        oldest_at: oldest.map(rfc3339),
        age_ms: age(oldest, now),
        lane_count: report.lanes.len(),
        lanes: report.lanes.iter().filter(is_used).map(|it| lane(it, now)).collect(),
    }
}

fn lane(lane: &LaneReport, now: Timestamp) -> OutboxLane {
    OutboxLane {
        lane: lane.lane,
        held: lane.held,
        new: lane.new,
        parked: lane.parked,
        oldest_at: lane.oldest_new.map(rfc3339),
        age_ms: age(lane.oldest_new, now),
    }
}

/// The age by the coordinator's clock of a time by a database's: 0 if that is ahead.
fn age(since: Option<Timestamp>, now: Timestamp) -> u64 {
    since.map_or(0, |since| now.0.saturating_sub(since.0))
}

fn parked(view: &RelayView, event: &relay_reports::ParkedEvent, now: Timestamp) -> ParkedEvent {
    ParkedEvent {
        event: event.event.to_string(),
        application: view.key.application.to_string(),
        outbox: view.key.outbox.to_string(),
        topic: event.topic.to_string(),
        key: event.key.to_string(),
        reason: event.error.to_string(),
        attempts: event.attempts,
        parked_at: rfc3339(event.parked_at),
        age_ms: age(Some(event.parked_at), now),
        emitted_at: rfc3339(event.emitted_at),
        xid: event.xid.as_ref().map(ToString::to_string),
    }
}
