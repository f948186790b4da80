//! How far connecting has come.

use handfast_rm_core::link::ConnectionFailure;

use crate::error::Error;

/// The progress of connecting, for tasks that wait for it.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    Dialling,
    Failed(ConnectionFailure),
    Greeted,
    Closed,
}

impl Progress {
    /// Returns the error of a link that is not connected; `undecided` gives the reason where none
    /// is known yet.
    pub(super) fn into_result(self, undecided: impl FnOnce() -> String) -> Result<(), Error> {
        match self {
            Self::Greeted => Ok(()),
            Self::Failed(ConnectionFailure::Unauthenticated(reason)) => {
                Err(Error::Unauthenticated { reason })
            }
            Self::Failed(ConnectionFailure::Passing(reason)) => Err(Error::Unreachable { reason }),
            Self::Dialling => Err(Error::Unreachable { reason: undecided().into() }),
            Self::Closed => Err(Error::Closed),
        }
    }
}
