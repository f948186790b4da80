//! The cookie of the console: a browser that has signed in sends it in place of a token.
//!
//! It is turned into the header that other callers send, before anything else looks at the request,
//! so that roles, withdrawn tokens and the way to the leader are the same for both.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use handfast_core::Timestamp;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};

use super::AdminState;
use super::csrf::is_of_own_page;
use crate::time_format;

/// How long a sign-in lasts: a long shift. Until then the browser may be left alone with it.
pub(super) const SIGNED_IN_MS: u64 = 12 * 3_600_000;
/// Where the cookie is sent.
const PATH: &str = "/api/v1";

pub(super) async fn to_bearer(
    State(state): State<AdminState>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(bearer) = bearer_of(&state, &request) {
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    next.run(request).await
}

/// Returns the header for the token in a request's cookie. It counts only from a page of the
/// console itself, since the browser adds it to requests of other pages of the same host too.
fn bearer_of(state: &AdminState, request: &Request) -> Option<HeaderValue> {
    let headers = request.headers();
    let sealed = value(headers, &name(state))?;
    if headers.contains_key(AUTHORIZATION) || !is_of_own_page(request.method(), headers) {
        return None;
    }
    let token = state.cookie_seal().open_cookie(sealed, time_format::now())?;
    HeaderValue::from_str(&format!("Bearer {token}")).ok()
}

/// Returns the `set-cookie` header that signs in; `None` for a token that is too long.
pub(super) fn signing_in(state: &AdminState, token: &str) -> Option<String> {
    let until = Timestamp(time_format::now().0.saturating_add(SIGNED_IN_MS));
    let sealed = state.cookie_seal().seal(token, until)?;
    Some(set(state, &sealed, SIGNED_IN_MS / 1_000))
}

/// Returns the `set-cookie` header that signs out.
pub(super) fn signing_out(state: &AdminState) -> String {
    set(state, "", 0)
}

fn set(state: &AdminState, sealed: &str, seconds: u64) -> String {
    let secure = if state.about().is_encrypted { "; Secure" } else { "" };
    let name = name(state);
    format!("{name}={sealed}; Path={PATH}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Returns the cookie's name. It holds the port, which browsers do not tell cookies apart by:
/// several coordinators on one host are signed in to one by one.
fn name(state: &AdminState) -> String {
    let port = state.about().node.admin.rsplit_once(':').map_or("", |(_, port)| port);
    format!("handfast_console_{port}")
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let mut pairs = cookies.flat_map(|header| header.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}
