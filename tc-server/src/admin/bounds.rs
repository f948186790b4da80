//! Limits the cost of one request: the length of its URL and the time it takes.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::{AdminState, ApiError};

const URL_BYTES_MAX: usize = 8_192;

pub(super) async fn enforce(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let uri = request.uri();
    if uri.path_and_query().is_some_and(|path| path.as_str().len() > URL_BYTES_MAX) {
        return Err(ApiError::UrlTooLong);
    }
    let timeout = Duration::from_millis(state.config().request_timeout_ms);
    tokio::time::timeout(timeout, next.run(request)).await.map_err(|_elapsed| ApiError::Timeout)
}
