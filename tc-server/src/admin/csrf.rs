//! Rejects cross-site requests: those that a web page of another site makes through the browser of
//! a user whose machine reaches the port.
//!
//! Without tokens a browser needs no credentials, so the origin of the page is checked. The browser
//! sends it in headers that a page cannot set. A site can also point its own name at this machine's
//! address; its pages then count as same-site, and are detected by the host name. Programs other
//! than browsers send no such headers and are not rejected. Only browsers send the cookie of the
//! console, and an action with it must show by these headers that it comes from the console.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method};

use super::{AdminState, ApiError};
use crate::security::Access;

/// Sent by browsers if the connection is encrypted or to this machine.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

pub(super) async fn reject_cross_site(
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

/// Returns whether the request does not come from a page of another site.
fn is_of_this_site(headers: &HeaderMap) -> bool {
    // Checked before the host, which a proxy may have changed.
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

/// Returns whether a request comes from a page of the coordinator. Other than for programs, an
/// action must show that it does.
pub(super) fn is_of_own_page(method: &Method, headers: &HeaderMap) -> bool {
    let shows_it = headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(ORIGIN);
    match text(headers, SEC_FETCH_SITE) {
        // The address bar opens pages, and sends no action.
        Some("none") => method.is_safe(),
        _ => is_of_this_site(headers) && (shows_it || method.is_safe()),
    }
}

/// Returns whether only this machine reaches the port, and may do everything there. For other ports
/// the host names in use, such as those of probes, are not known.
fn is_for_this_machine(state: &AdminState) -> bool {
    let is_open = match state.access() {
        Access::Open => true,
        Access::Tokens(_) => false,
    };
    is_open && state.config().listen.ip().to_canonical().is_loopback()
}

/// Returns whether a host is this machine or the coordinator's advertised host.
fn is_own(state: &AdminState, host: &str) -> bool {
    let advertised = bare(&state.about().advertised_address);
    bare(host).is_some_and(|host| {
        let address = host.parse::<IpAddr>();
        let is_loopback = address.is_ok_and(|address| address.to_canonical().is_loopback());
        is_loopback || host == "localhost" || Some(host) == advertised
    })
}

/// Returns the host without its port.
fn bare(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.');
    Some(host.to_ascii_lowercase())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
