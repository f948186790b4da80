//! Signing in to the console: a token is changed for a cookie, so that the page keeps no token.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use super::caller::{Viewer, refused};
use super::extract::Body;
use super::model::{AdminRole, Me, Problem, SignInRequest};
use super::{AdminState, ApiError, cookie};
use crate::security::{Access, AccessError, Caller, Permission};

/// Shows the caller's name and role.
#[utoipa::path(
    get,
    path = "/api/v1/me",
    tag = "console",
    responses((status = OK, body = Me), (status = UNAUTHORIZED, body = Problem)),
    security(("token" = []))
)]
pub(super) async fn me(Viewer(caller): Viewer, State(state): State<AdminState>) -> Json<Me> {
    Json(shown(&state, &caller))
}

/// Changes a token for a cookie, which lasts twelve hours, or as long as the token is valid.
#[utoipa::path(
    post,
    path = "/api/v1/sign-in",
    tag = "console",
    request_body = SignInRequest,
    responses(
        (status = OK, body = Me),
        (status = UNAUTHORIZED, body = Problem),
        (status = FORBIDDEN, body = Problem)
    )
)]
pub(super) async fn sign_in(
    State(state): State<AdminState>,
    Body(request): Body<SignInRequest>,
) -> Result<Response, ApiError> {
    let mut headers = HeaderMap::new();
    if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {}", request.token)) {
        headers.insert(AUTHORIZATION, bearer);
    }
    let caller = state.access().check(&headers, Permission::Read).map_err(refused)?;
    let answer = Json(shown(&state, &caller));
    if matches!(state.access(), Access::Open) {
        return Ok(answer.into_response());
    }
    // A token that is known is of our own making, and so never too long.
    let cookie = cookie::signing_in(&state, &request.token);
    let cookie = cookie.ok_or(AccessError::Unauthenticated)?;
    Ok(([(SET_COOKIE, cookie)], answer).into_response())
}

/// Ends the cookie of the browser that sends this.
#[utoipa::path(
    post,
    path = "/api/v1/sign-out",
    tag = "console",
    responses((status = OK, body = String, content_type = "text/plain"))
)]
pub(super) async fn sign_out(State(state): State<AdminState>) -> Response {
    ([(SET_COOKIE, cookie::signing_out(&state))], "signed out\n").into_response()
}

fn shown(state: &AdminState, caller: &Caller) -> Me {
    let role = if caller.may(Permission::Act) { AdminRole::Operator } else { AdminRole::Viewer };
    let has_tokens = matches!(state.access(), Access::Tokens(_));
    Me { name: caller.name().to_string(), role, has_tokens }
}
