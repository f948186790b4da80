//! Why an engine ends by itself.

use handfast_core::{ClosureRecord, LoadError};
use tokio::task::JoinError;

use crate::store::StoreError;

/// Why the engine ended without having been asked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineFailure {
    /// The store failed; memory was ahead of it and has been dropped.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The stored records contradict one another: another program wrote them, or they are damaged.
    #[error("the stored records do not fit together")]
    Load(#[source] LoadError),
    /// No coordinator may continue from the stored records.
    #[error("{0}")]
    Closed(ClosureRecord),
    /// An invariant is broken: the engine stopped rather than continue from a wrong state.
    #[error("the engine stopped at a broken invariant: {0}")]
    Invariant(String),
}

impl EngineFailure {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Load(error) => error.code(),
            Self::Closed(closure) => LoadError::Closed(closure.clone()).code(),
            Self::Invariant(_) => "HF-TC-INVARIANT",
        }
    }
}

impl From<LoadError> for EngineFailure {
    fn from(error: LoadError) -> Self {
        if let LoadError::Closed(closure) = error {
            Self::Closed(closure)
        } else {
            Self::Load(error)
        }
    }
}

/// Converts the end of the engine's task. A panic is a broken invariant: the state is dropped with
/// the task, and nothing more is answered from it.
pub(crate) fn ended(
    joined: Result<Result<(), EngineFailure>, JoinError>,
) -> Result<(), EngineFailure> {
    match joined {
        Ok(ended) => ended,
        Err(error) if error.is_panic() => {
            Err(EngineFailure::Invariant(message_of(&*error.into_panic())))
        }
        Err(_cancelled) => Ok(()),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the panic has no message").to_owned()
}
