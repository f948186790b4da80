//! Web pages of other sites, in the browser of somebody whose machine reaches the port.
//!
//! Without tokens a browser needs nothing to be let in, so that it is looked at who has it ask: its
//! own headers say of which site a page is, and a page cannot set them. A site that gives its own
//! name this machine's address is of the same site as the coordinator; it is known by that name.
//! What asks without a browser sends no such headers, and may.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;

use super::{AdminState, ApiError};
use crate::security::Access;

/// Sent by browsers, unless the connection is neither encrypted nor to this machine.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

pub(super) async fn keep_out(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let headers = request.headers();
    if !request.method().is_safe() && !is_of_this_site(headers) {
        return Err(ApiError::ForeignPage);
    }
    if let Some(host) = text(headers, HOST.as_str())
        && is_for_this_machine(&state)
        && !is_own(&state, host)
    {
        return Err(ApiError::ForeignHost(host.to_owned()));
    }
    Ok(next.run(request).await)
}

/// Whether no page of another site asks.
fn is_of_this_site(headers: &HeaderMap) -> bool {
    // A proxy in front may have changed the host; what the browser says of it stands.
    if headers.contains_key(SEC_FETCH_SITE) {
        return matches!(text(headers, SEC_FETCH_SITE), Some("same-origin" | "none"));
    }
    if !headers.contains_key(ORIGIN) {
        return true;
    }
    let origin = text(headers, ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    match (origin, text(headers, HOST.as_str())) {
        (Some((_scheme, origin)), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// Whether only this machine reaches the port, and may do everything. Elsewhere the names under
/// which it is reached are not known, such as those that probes use.
fn is_for_this_machine(state: &AdminState) -> bool {
    let is_open = match state.access() {
        Access::Open => true,
        Access::Tokens(_) => false,
    };
    is_open && state.config().listen.ip().to_canonical().is_loopback()
}

/// Whether a host is this machine, or what the coordinator is configured to be called.
fn is_own(state: &AdminState, host: &str) -> bool {
    let advertised = bare(&state.about().advertised_address);
    bare(host).is_some_and(|host| {
        let address = host.parse::<IpAddr>();
        let is_loopback = address.is_ok_and(|address| address.to_canonical().is_loopback());
        is_loopback || host == "localhost" || Some(host) == advertised
    })
}

/// The host without its port.
fn bare(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.');
    Some(host.to_ascii_lowercase())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
