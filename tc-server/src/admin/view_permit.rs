//! Limits concurrent views, and writes their answers outside the engine's thread.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::ApiError;

/// A permit for one of the views that may run at a time (BOUNDED), returned when it is dropped.
#[derive(Debug)]
pub(super) struct ViewPermit {
    _place: OwnedSemaphorePermit,
}

impl ViewPermit {
    pub(super) fn new(place: OwnedSemaphorePermit) -> Self {
        Self { _place: place }
    }

    /// Builds the answer and writes it as JSON, on a blocking thread, where it delays no client.
    pub(super) async fn answer<T: Serialize>(
        self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response, ApiError> {
        let write = move || {
            let written = serde_json::to_vec(&make());
            // Returned when the work is done, even if the client has gone long before.
            drop(self);
            written
        };
        let unforeseen = |error: &dyn std::error::Error| ApiError::Unforeseen(error.to_string());
        let written = tokio::task::spawn_blocking(write).await;
        let written = written.map_err(|error| unforeseen(&error))?;
        let body = written.map_err(|error| unforeseen(&error))?;
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    }
}
