//! Errors of participants.

use crate::error::Error;

/// A failure of a [`ParticipantResource`](super::ParticipantResource).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// The input cannot be written as JSON.
    #[error("the input cannot be written as JSON: {reason}")]
    Input {
        /// Why.
        reason: String,
    },
    /// The input is larger than the coordinator keeps.
    #[error(
        "the input takes {bytes} bytes as JSON, more than {bytes_max}: pass a key of it instead"
    )]
    InputTooLarge {
        /// The size of the input.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The coordinator could not be asked, or refuses. A `join` without an answer may have taken
    /// effect, so roll the global back.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// The participant could not list its prepared branches.
    #[error("the participant cannot tell what it has prepared: {reason}")]
    Participant {
        /// The participant's error.
        reason: String,
    },
}

impl ParticipantError {
    /// Returns the stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Input { .. } => "HF-PARTICIPANT-INPUT",
            Self::InputTooLarge { .. } => "HF-PARTICIPANT-INPUT-TOO-LARGE",
            Self::Coordinator(error) => error.code(),
            Self::Participant { .. } => "HF-PARTICIPANT-FAILED",
        }
    }
}
