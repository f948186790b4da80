//! Handlers say in their arguments who may call them.

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::{AdminState, ApiError};
use crate::security::{Caller, Permission};

/// Whoever may read.
#[derive(Debug)]
pub(super) struct Viewer;

/// Whoever may act, by name.
#[derive(Debug)]
pub(super) struct Operator(pub(super) Caller);

impl FromRequestParts<AdminState> for Viewer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, ApiError> {
        state.access().check(&parts.headers, Permission::Read)?;
        Ok(Self)
    }
}

impl FromRequestParts<AdminState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, ApiError> {
        Ok(Self(state.access().check(&parts.headers, Permission::Act)?))
    }
}
