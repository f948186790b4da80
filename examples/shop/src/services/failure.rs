//! The reasons for which a service did not carry out a request.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use handfast::outbox::OutboxError;
use handfast::{AtError, TccError, XaError};
use serde::{Deserialize, Serialize};

/// The business says no; asking again changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum BusinessRefusal {
    /// There are not enough units of a product.
    #[error("out of stock")]
    OutOfStock,
    /// The customer has not enough money.
    #[error("not enough funds")]
    NoFunds,
}

/// A refusal by the business, or a failure of the world around it.
#[derive(Debug, thiserror::Error)]
pub enum ServiceFailure {
    /// The business says no.
    #[error(transparent)]
    Refused(#[from] BusinessRefusal),
    /// A failure that may be gone the next time: a lost coordinator, a deadlock, a lock that was
    /// not free in time.
    #[error("{0}")]
    Unavailable(String),
}

/// A failure as it travels over HTTP.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    refusal: Option<BusinessRefusal>,
    message: String,
}

impl ServiceFailure {
    /// The answer of the called service, if it was not a success.
    pub async fn of(response: reqwest::Response) -> Result<(), Self> {
        if response.status().is_success() {
            return Ok(());
        }
        let body: Body = response.json().await?;
        Err(body.refusal.map_or(Self::Unavailable(body.message), Self::Refused))
    }
}

impl IntoResponse for ServiceFailure {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let (status, refusal) = match self {
            Self::Refused(refusal) => (StatusCode::CONFLICT, Some(refusal)),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, None),
        };
        (status, Json(Body { refusal, message })).into_response()
    }
}

impl From<sqlx::Error> for ServiceFailure {
    fn from(error: sqlx::Error) -> Self {
        // The library's own failures travel inside sqlx's.
        let ours = AtError::of(&error).map(AtError::to_string);
        let ours = ours.or_else(|| XaError::of(&error).map(XaError::to_string));
        Self::Unavailable(ours.unwrap_or_else(|| error.to_string()))
    }
}

impl From<AtError> for ServiceFailure {
    fn from(error: AtError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<OutboxError> for ServiceFailure {
    fn from(error: OutboxError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<TccError<Self>> for ServiceFailure {
    fn from(error: TccError<Self>) -> Self {
        if let TccError::Action(failure) = error {
            return failure;
        }
        Self::Unavailable(error.to_string())
    }
}

impl From<reqwest::Error> for ServiceFailure {
    fn from(error: reqwest::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<reqwest_middleware::Error> for ServiceFailure {
    fn from(error: reqwest_middleware::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}
