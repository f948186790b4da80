//! Extractors by which a handler declares, in its arguments, the permission that it needs.

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::{AdminState, ApiError};
use crate::security::{AccessError, Caller, Permission};
use crate::turned_away::{PortName, Why, note};

/// A caller that may read.
#[derive(Debug)]
pub(super) struct Viewer(pub(super) Caller);

/// A caller that may act, with its name.
#[derive(Debug)]
pub(super) struct Operator(pub(super) Caller);

impl FromRequestParts<AdminState> for Viewer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, ApiError> {
        check(parts, state, Permission::Read).map(Self)
    }
}

impl FromRequestParts<AdminState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, ApiError> {
        check(parts, state, Permission::Act).map(Self)
    }
}

fn check(parts: &Parts, state: &AdminState, wanted: Permission) -> Result<Caller, ApiError> {
    state.access().check(&parts.headers, wanted).map_err(refused)
}

/// Notes that a caller is turned away.
pub(super) fn refused(error: AccessError) -> ApiError {
    note(PortName::Admin, Why::Token, None, &error);
    error.into()
}
