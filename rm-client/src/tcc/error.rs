//! Why a try did not take effect.

use crate::error::Error;
use crate::fence::FenceError;

/// A try that did not take effect, as far as is known. Let it fail the global.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TccError<E> {
    /// The action's own error; its local transaction is rolled back.
    #[error(transparent)]
    Action(E),
    /// The fence or the database. If COMMIT had no answer, the coordinator has been told, so that
    /// the global can only be rolled back.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The coordinator could not be asked, or refuses; or there is no global around the call.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// The input cannot be written as JSON.
    #[error("input of {resource} cannot be written as JSON: {source}")]
    Input {
        /// Of which resource.
        resource: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The input is larger than the coordinator keeps. Store it yourself, and pass its key.
    #[error("input of {resource} takes {bytes} bytes: at most {bytes_max}")]
    InputTooLarge {
        /// Of which resource.
        resource: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

impl<E> TccError<E> {
    /// The stable code, listed in `docs/errors.md`; of the action's own error the code that says
    /// just that.
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
