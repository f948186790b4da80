//! A view of the audit log of this node.

use axum::Json;
use axum::extract::State;
use handfast_core::Xid;

use super::caller::Viewer;
use super::extract::{self, Query};
use super::model::{AuditLine, AuditPage, AuditQuery, Problem};
use super::{AdminState, ApiError};

/// Lists operators' actions, latest first, as this node has recorded them.
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "console",
    params(AuditQuery),
    responses(
        (status = OK, body = AuditPage),
        (status = BAD_REQUEST, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn list(
    _viewer: Viewer,
    State(state): State<AdminState>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    let _permit = state.begin_view()?;
    let before = query.cursor.as_deref().map(position).transpose()?;
    let xid = query.xid.as_deref().map(extract::xid).transpose()?;
    let part = state.audit().part(before).await;
    let part = part.map_err(|error| ApiError::Unforeseen(format!("audit log: {error}")))?;
    let Some(part) = part else {
        return Ok(Json(AuditPage { is_kept: false, items: Vec::new(), next: None }));
    };
    let next = (part.from > 0).then(|| part.from.to_string());
    let items = part.lines.iter().rev().filter_map(|line| read(line, xid)).collect();
    Ok(Json(AuditPage { is_kept: true, items, next }))
}

/// Reads a line. One that a crash has cut off, or about another transaction, is left out.
fn read(line: &str, about: Option<Xid>) -> Option<AuditLine> {
    let line: AuditLine = serde_json::from_str(line).ok()?;
    let is_wanted = about.is_none_or(|xid| line.xid.as_deref() == Some(&*xid.to_string()));
    is_wanted.then_some(line)
}

fn position(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| ApiError::BadRequest(format!("`{text}` is no cursor of the log")))
}
