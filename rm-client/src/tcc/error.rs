//! Errors of a try.

use crate::error::Error;
use crate::fence::FenceError;

/// The error of a try that is not known to have taken effect. Make it fail the global.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TccError<E> {
    /// The action's own error. Its local transaction is rolled back.
    #[error(transparent)]
    Action(E),
    /// An error of the fence or the database. If COMMIT had no answer, this was reported to the
    /// coordinator, so that the global can only be rolled back.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The coordinator could not be asked, or refuses, or there is no global around the call.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// The input cannot be written as JSON.
    #[error("input of {resource} cannot be written as JSON: {source}")]
    Input {
        /// The resource.
        resource: String,
        /// The reason.
        source: serde_json::Error,
    },
    /// The input is larger than the coordinator stores. Store it elsewhere, and pass its key.
    #[error("input of {resource} takes {bytes} bytes: at most {bytes_max}")]
    InputTooLarge {
        /// The resource.
        resource: String,
        /// The size of the input.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

impl<E> TccError<E> {
    /// Returns the stable code, listed in `docs/errors.md`. All errors of the action itself share
    /// one code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Action(_) => "HF-TCC-ACTION",
            Self::Fence(error) => error.code(),
            Self::Coordinator(error) => error.code(),
            Self::Input { .. } => "HF-TCC-INPUT",
            Self::InputTooLarge { .. } => "HF-TCC-INPUT-TOO-LARGE",
        }
    }
}
