//! Extractors of JSON bodies, paths and queries that answer with a problem, and parsers of XIDs and
//! branches.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::{Json, extract};
use handfast_core::{BranchId, Label, Xid, XidText};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::model::ActionRequest;
use super::{ApiError, XID_FORM};

/// A JSON body.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

/// The body of an action, which may be left out.
#[derive(Debug)]
pub(super) struct Reason(pub(super) ActionRequest);

/// A query string.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

/// The path's parameters.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Json(body) = Json::from_request(request, state).await?;
        Ok(Self(body))
    }
}

impl<S: Send + Sync> FromRequest<S> for Reason {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !request.headers().contains_key(CONTENT_TYPE) {
            return Ok(Self(ActionRequest::default()));
        }
        Body::from_request(request, state).await.map(|Body(body)| Self(body))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extract::Query(query) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extract::Path(path) = extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(path))
    }
}

/// Parses an XID in either form. The number alone identifies the global; the address is only for
/// reading.
pub(super) fn xid(text: &str) -> Result<Xid, ApiError> {
    if let Ok(number) = text.parse() {
        return Ok(Xid(number));
    }
    let xid = XidText::parse(text).map(|text| text.xid);
    xid.map_err(|_| ApiError::BadRequest(format!("`{text}`: {XID_FORM}")))
}

/// Parses the cursor of a transaction's branches.
pub(super) fn sequence(text: &str) -> Result<u32, ApiError> {
    text.parse().map_err(|_| ApiError::BadRequest(format!("`{text}` is no cursor of branches")))
}

/// Parses a label that a list is searched by.
pub(super) fn label(text: &str) -> Result<Label, ApiError> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| ApiError::BadRequest(format!("`{text}`: a label is `name=value`")))?;
    Ok(Label::new(name, value))
}

pub(super) fn branch(text: &str) -> Result<BranchId, ApiError> {
    let number = text.parse().map(BranchId);
    number.map_err(|_| ApiError::BadRequest(format!("`{text}`: a branch is a number")))
}
