//! Backups of the store's records. Every node makes them, since every node can read the store.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use futures::stream::try_unfold;
use http::header::CONTENT_TYPE;

use super::actions::{cut, record_answered, record_asked};
use super::caller::Operator;
use super::extract::Reason;
use super::model::{ActionRequest, Problem};
use super::view_permit::ViewPermit;
use super::{AdminState, ApiError};
use crate::audit::Action;
use crate::backup::{BackupHead, BackupWriter};
use crate::engine::EngineError;
use crate::store::{RecordSnapshot, StoreError};

/// Makes a backup: the records as they are at one moment, with everything that was acknowledged
/// before
///
/// Every node answers this itself. An answer that is broken off lacks its end, and is refused when
/// it is read.
#[utoipa::path(
    post,
    path = "/api/v1/backup",
    tag = "actions",
    request_body = ActionRequest,
    responses(
        (status = OK, body = String, content_type = "application/octet-stream"),
        (status = SERVICE_UNAVAILABLE, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn make(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Reason(request): Reason,
) -> Result<Response, ApiError> {
    // Held until everything is sent, since a backup reads every record (BOUNDED).
    let permit = state.begin_view()?;
    let action = Action {
        detail: Some(cut(&request.reason)).filter(|reason| !reason.is_empty()),
        ..Action::new(&caller.name(), "backup")
    };
    let at_ms = state.now().0;
    // On a task of its own, so that both lines are in the audit log even if the client goes.
    let begun = tokio::spawn(record_and_begin(state, action)).await;
    let begun = begun.map_err(|error| ApiError::Unforeseen(error.to_string()))??;
    let body = Body::from_stream(bytes_of(begun, at_ms, permit));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

async fn record_and_begin(state: AdminState, action: Action) -> Result<RecordSnapshot, ApiError> {
    record_asked(&state, &action).await?;
    let begun = begin(&state).await;
    record_answered(&state, &action, &begun).await?;
    begun
}

async fn begin(state: &AdminState) -> Result<RecordSnapshot, ApiError> {
    // A store that is closed belongs to a coordinator that has stopped.
    let records = state.about().records.upgrade().ok_or(EngineError::Stopping)?;
    Ok(records.snapshot().await?)
}

/// Returns the bytes of a backup, read as they are sent (BOUNDED).
fn bytes_of(
    snapshot: RecordSnapshot,
    at_ms: u64,
    permit: ViewPermit,
) -> impl Stream<Item = Result<Bytes, StoreError>> + Send {
    let origin = snapshot.origin.clone();
    let (writer, head) = BackupWriter::begin(&BackupHead {
        store: origin.store,
        identity: origin.identity,
        epoch: origin.epoch.0,
        number: origin.number,
        at_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let backup = SentBackup { snapshot, head: Some(head), writer: Some(writer), _permit: permit };
    try_unfold(backup, |mut backup| async move {
        match backup.next().await {
            Ok(next) => Ok(next.map(|bytes| (Bytes::from(bytes), backup))),
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "a backup was broken off");
                Err(error)
            }
        }
    })
}

/// A backup on its way.
struct SentBackup {
    snapshot: RecordSnapshot,
    head: Option<Vec<u8>>,
    /// `None` behind the end.
    writer: Option<BackupWriter>,
    _permit: ViewPermit,
}

impl SentBackup {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        let Some(writer) = &mut self.writer else { return Ok(None) };
        match self.snapshot.next().await? {
            Some(page) => Ok(Some(writer.records(&page))),
            None => Ok(self.writer.take().map(BackupWriter::end)),
        }
    }
}
