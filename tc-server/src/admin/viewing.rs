//! A view under way: few run at a time, and their answers are written beside the engine's thread.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::ApiError;

/// A place among the views that may run at a time (BOUNDED); given back when it is dropped.
#[derive(Debug)]
pub(super) struct Viewing {
    _place: OwnedSemaphorePermit,
}

impl Viewing {
    pub(super) fn at(place: OwnedSemaphorePermit) -> Self {
        Self { _place: place }
    }

    /// Makes the answer of what was seen, and writes it as JSON, on a thread where no client waits.
    pub(super) async fn answer<T: Serialize>(
        self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response, ApiError> {
        let write = move || {
            let written = serde_json::to_vec(&make());
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
