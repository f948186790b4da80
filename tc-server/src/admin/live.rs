//! Live views: the answer of any request that reads, as server-sent events.
//!
//! A stream asks at a bounded rate, inside the server, and sends an answer only if it differs from
//! the one before. Every event is a whole answer, so that nothing is queued for a reader: one that
//! is slow gets fewer and later answers, and one that reads nothing at all is disconnected. For the
//! same reason a stream is resumed with the id of the last event alone.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use futures::stream;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;
use xxhash_rust::xxh3::xxh3_64;

use super::caller::Viewer;
use super::extract::Query;
use super::model::{LiveQuery, Problem};
use super::{AdminState, ApiError};

/// How often a stream asks (BOUNDED).
const EVERY: Duration = Duration::from_secs(1);
/// After how long without a change a stream shows that it lives.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// How long a stream lives. The browser opens another, and so shows again that it may.
const LIFE_MAX: Duration = Duration::from_secs(900);
/// The longest answer that is sent as an event (BOUNDED).
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The path whose requests a stream makes.
const API: &str = "/api/v1/";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Fields that change all the time, and whose change alone is none.
const AGES: [&str; 4] = ["age_ms", "left_ms", "seen_ms_ago", "uptime_ms"];

/// The routes that a stream asks, without the stream itself.
#[derive(Clone, Debug)]
pub(super) struct Api(pub(super) Router);

/// Sends the answer of another request that reads, at once and after each change
///
/// As server-sent events: `answer` with the body of the answer, `problem` if the request is
/// refused. The answer is compared once a second, ages aside. The `id` of an event is that of its
/// content: a client that sends the last one as `Last-Event-ID` gets an event when the content
/// differs.
#[utoipa::path(
    get,
    path = "/api/v1/live",
    tag = "console",
    params(LiveQuery),
    responses(
        (status = OK, body = String, content_type = "text/event-stream"),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn watch(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Extension(Api(api)): Extension<Api>,
    Query(query): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let uri = readable(&query.path)?;
    let place = state.begin_live()?;
    let seen = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let seen = seen.and_then(|id| u64::from_str_radix(id, 16).ok());
    let authorization = headers.get(AUTHORIZATION).cloned();
    let now = Instant::now();
    let live = Live {
        api,
        uri,
        authorization,
        state,
        seen,
        is_first: true,
        ends: now + LIFE_MAX,
        wrote: now,
        _place: place,
    };
    let events = stream::unfold(live, |live| live.next());
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// Returns the URI of a request that reads and is no stream.
fn readable(path: &str) -> Result<Uri, ApiError> {
    let wrong = || ApiError::BadRequest(format!("`{path}` is no path below {API} that reads"));
    let uri: Uri = path.parse().map_err(|_| wrong())?;
    let is_below = uri.authority().is_none() && uri.path().starts_with(API);
    if is_below { Ok(uri) } else { Err(wrong()) }
}

/// A stream.
struct Live {
    api: Router,
    uri: Uri,
    authorization: Option<HeaderValue>,
    state: AdminState,
    /// The content that the client has.
    seen: Option<u64>,
    is_first: bool,
    ends: Instant,
    wrote: Instant,
    _place: OwnedSemaphorePermit,
}

/// An answer and what tells it from others.
struct Answer {
    status: StatusCode,
    body: Bytes,
    content: u64,
}

impl Live {
    /// Waits for the next event. Called only when the client has read the one before.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if !self.is_first {
                tokio::select! {
                    () = sleep(EVERY) => {}
                    () = self.state.readiness().stopping() => return None,
                }
            }
            if Instant::now() >= self.ends {
                return None;
            }
            let answer = self.ask().await?;
            let is_first = std::mem::replace(&mut self.is_first, false);
            if answer.status == StatusCode::UNAUTHORIZED {
                // The token was withdrawn: another stream would be refused.
                return None;
            }
            let is_busy = answer.status == StatusCode::TOO_MANY_REQUESTS;
            let event = if !is_busy && self.seen != Some(answer.content) {
                self.seen = Some(answer.content);
                event(&answer)
            } else if is_first || self.wrote.elapsed() >= QUIET_MAX {
                ": unchanged\n\n".to_owned()
            } else {
                continue;
            };
            self.wrote = Instant::now();
            return Some((Ok(event.into()), self));
        }
    }

    /// Makes the request once. Returns `None` if its answer cannot be had as a whole.
    async fn ask(&self) -> Option<Answer> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.uri.clone();
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let limit = Duration::from_millis(self.state.config().request_timeout_ms);
        let answered = timeout(limit, self.api.clone().oneshot(request)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_elapsed) => ApiError::Timeout.into_response(),
        };
        let status = response.status();
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.ok()?;
        // Off the threads that serve clients: an answer may have megabytes.
        tokio::task::spawn_blocking(move || Answer {
            status,
            content: content(status, &body),
            body,
        })
        .await
        .ok()
    }
}

fn event(answer: &Answer) -> String {
    let name = if answer.status == StatusCode::OK { "answer" } else { "problem" };
    // A browser whose stream breaks comes back after a second.
    let mut event = format!("retry: 1000\nid: {:016x}\nevent: {name}\n", answer.content);
    for line in String::from_utf8_lossy(&answer.body).lines() {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    event
}

/// Returns a number that differs where the content of an answer differs.
fn content(status: StatusCode, body: &[u8]) -> u64 {
    let mut content = match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            remove_ages(&mut value);
            value.to_string()
        }
        Err(_no_json) => String::from_utf8_lossy(body).into_owned(),
    };
    content.push_str(status.as_str());
    xxh3_64(content.as_bytes())
}

fn remove_ages(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !AGES.contains(&name.as_str()));
            fields.values_mut().for_each(remove_ages);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_ages),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_alone_are_no_change() {
        let of = |body: &str| content(StatusCode::OK, body.as_bytes());
        let first = of(r#"{"items":[{"xid":"tc:1","age_ms":1}]}"#);
        assert_eq!(first, of(r#"{"items":[{"xid":"tc:1","age_ms":2}]}"#));
        assert_ne!(first, of(r#"{"items":[{"xid":"tc:2","age_ms":1}]}"#));
        let refused = content(StatusCode::NOT_FOUND, br#"{"items":[{"xid":"tc:1"}]}"#);
        assert_ne!(first, refused);
    }

    #[test]
    fn only_paths_of_the_api_are_watched() {
        assert!(readable("/api/v1/transactions?status=active").is_ok());
        for wrong in ["", "/", "/metrics", "http://example.com/api/v1/status", "/api/v10"] {
            assert!(readable(wrong).is_err(), "{wrong}");
        }
    }
}
