//! How a request can end without an answer.

use std::sync::Arc;

/// A request was not taken, or ended without an answer. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request was never sent: it has certainly not been carried out.
    #[error("never sent: {reason} ({})", self.code())]
    Unreachable {
        /// The last failure to connect.
        reason: Arc<str>,
    },
    /// The request was sent, and its answer did not come in time: it may have been carried out or
    /// not.
    #[error("no answer to {request} ({})", self.code())]
    Unanswered {
        /// Which request, such as `end`.
        request: &'static str,
    },
    /// Too many requests wait for an answer (BOUNDED).
    #[error("too many unanswered requests: at most {max} ({})", self.code())]
    QueueFull {
        /// The limit.
        max: usize,
    },
    /// The request is larger than a frame may be.
    #[error("request of {bytes} bytes is too large: at most {max} ({})", self.code())]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The link is closed for good.
    #[error("the link is closed ({})", self.code())]
    Closed,
}

impl RequestError {
    /// Returns the stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "HF-TM-UNREACHABLE",
            Self::Unanswered { .. } => "HF-TM-UNANSWERED",
            Self::QueueFull { .. } => "HF-TM-QUEUE-FULL",
            Self::TooLarge { .. } => "HF-TM-TOO-LARGE",
            Self::Closed => "HF-TM-CLOSED",
        }
    }
}
