//! How a transaction did not commit.

use std::convert::Infallible;
use std::fmt;

use handfast_rm_core::RollbackReason;

use crate::error::Error;
use crate::xid::Xid;

/// How [`run`](crate::NewTransaction::run) did not end in a commit. `E` is the closure's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError<E> {
    /// Nothing began: the closure never ran.
    #[error("transaction not begun: {0}")]
    NotBegun(#[source] Error),
    /// The closure failed, and this call was not the one to decide: it joined a transaction whose
    /// launcher decides, or ran without one.
    #[error("{0}")]
    Application(E),
    /// Rolled back and finished: nothing of it happened.
    #[error("xid {xid} rolled back: {by}")]
    RolledBack {
        /// The global.
        xid: Xid,
        /// Why.
        by: RollbackCause<E>,
    },
    /// Certain to be rolled back, not known to be finished. The coordinator goes on by itself.
    #[error("xid {xid} is still rolling back: {by}{}", because(.source))]
    RollingBack {
        /// The global.
        xid: Xid,
        /// Why.
        by: RollbackCause<E>,
        /// Set when the coordinator gave no answer; it rolls back at the timeout at the latest.
        source: Option<Error>,
    },
    /// Rolling back, and a branch cannot be undone without a person. Its locks are kept.
    #[error("xid {xid} needs an operator to roll back: {by}")]
    NeedsOperator {
        /// The global.
        xid: Xid,
        /// Why it is rolled back.
        by: RollbackCause<E>,
    },
    /// To be rolled back, and the coordinator has no memory of it: this process never asked it to
    /// commit. Either the coordinator restarted before the first branch was registered, and nothing
    /// happened, or an operator ended it and it has been forgotten since.
    #[error("xid {xid} is not known to the coordinator, nothing to roll back: {by}")]
    Forgotten {
        /// The global.
        xid: Xid,
        /// Why it was to be rolled back.
        by: RollbackCause<E>,
    },
    /// To be rolled back, but an operator had committed it.
    #[error("xid {xid} was committed by an operator, though it was to be rolled back: {by}")]
    Committed {
        /// The global.
        xid: Xid,
        /// Why it was to be rolled back.
        by: RollbackCause<E>,
    },
    /// The commit was asked for and not answered: it may have happened or not. Ask later with
    /// [`Handfast::outcome`](crate::Handfast::outcome); do not repeat the work before.
    #[error("outcome of xid {xid} is unknown, ask later: {source}")]
    Unknown {
        /// The global.
        xid: Xid,
        /// Why there is no answer.
        source: Error,
    },
}

/// What [`Global::commit`](crate::Global::commit) and [`Global::rollback`](crate::Global::rollback)
/// fail with: there is no closure that could.
pub type EndError = TransactionError<Infallible>;

/// Why a global was, or is to be, rolled back.
#[derive(Debug)]
#[non_exhaustive]
pub enum RollbackCause<E> {
    /// The closure returned this error.
    Application(E),
    /// The closure succeeded, but [`set_rollback_only`](crate::Transaction::set_rollback_only) had
    /// been called.
    RollbackOnly,
    /// The time ran out before the commit.
    Timeout,
    /// A rollback was asked for explicitly.
    Requested,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// An operator decided it.
    Operator,
    /// A participant refuses to prepare, or told before that it could not.
    Refused,
    /// The coordinator decided it, for a reason that this version does not know.
    Coordinator,
}

impl<E> TransactionError<E> {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::NotBegun(error) => error.code(),
            Self::Application(_) => "HF-TM-APPLICATION",
            Self::RolledBack { .. } => "HF-TM-ROLLED-BACK",
            Self::RollingBack { .. } => "HF-TM-ROLLING-BACK",
            Self::NeedsOperator { .. } => "HF-TM-NEEDS-OPERATOR",
            Self::Forgotten { .. } => "HF-TM-FORGOTTEN",
            Self::Committed { .. } => "HF-TM-COMMITTED",
            Self::Unknown { .. } => "HF-TM-UNKNOWN",
        }
    }

    /// The global, if one began.
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        match self {
            Self::NotBegun(_) | Self::Application(_) => None,
            Self::RolledBack { xid, .. }
            | Self::RollingBack { xid, .. }
            | Self::NeedsOperator { xid, .. }
            | Self::Forgotten { xid, .. }
            | Self::Committed { xid, .. }
            | Self::Unknown { xid, .. } => Some(xid),
        }
    }

    /// The closure's own error, whatever became of the global.
    #[must_use]
    pub fn application(&self) -> Option<&E> {
        match self {
            Self::Application(error) => Some(error),
            Self::NotBegun(_) | Self::Unknown { .. } => None,
            Self::RolledBack { by, .. }
            | Self::RollingBack { by, .. }
            | Self::NeedsOperator { by, .. }
            | Self::Forgotten { by, .. }
            | Self::Committed { by, .. } => by.application(),
        }
    }

    /// The closure's own error, by value.
    #[must_use]
    pub fn into_application(self) -> Option<E> {
        match self {
            Self::Application(error) => Some(error),
            Self::NotBegun(_) | Self::Unknown { .. } => None,
            Self::RolledBack { by, .. }
            | Self::RollingBack { by, .. }
            | Self::NeedsOperator { by, .. }
            | Self::Forgotten { by, .. }
            | Self::Committed { by, .. } => by.into_application(),
        }
    }
}

impl<E> RollbackCause<E> {
    fn application(&self) -> Option<&E> {
        match self {
            Self::Application(error) => Some(error),
            Self::RollbackOnly
            | Self::Timeout
            | Self::Requested
            | Self::BranchUnknown
            | Self::Operator
            | Self::Refused
            | Self::Coordinator => None,
        }
    }

    fn into_application(self) -> Option<E> {
        match self {
            Self::Application(error) => Some(error),
            Self::RollbackOnly
            | Self::Timeout
            | Self::Requested
            | Self::BranchUnknown
            | Self::Operator
            | Self::Refused
            | Self::Coordinator => None,
        }
    }
}

impl<E> From<RollbackReason> for RollbackCause<E> {
    fn from(reason: RollbackReason) -> Self {
        match reason {
            RollbackReason::Requested => Self::Requested,
            RollbackReason::Timeout => Self::Timeout,
            RollbackReason::BranchUnknown => Self::BranchUnknown,
            RollbackReason::Operator => Self::Operator,
            RollbackReason::Refused => Self::Refused,
            RollbackReason::Unspecified | _ => Self::Coordinator,
        }
    }
}

impl<E: fmt::Display> fmt::Display for RollbackCause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(error) => error.fmt(f),
            Self::RollbackOnly => f.write_str("it was set rollback-only"),
            Self::Timeout => f.write_str("its time ran out"),
            Self::Requested => f.write_str("a rollback was asked for"),
            Self::BranchUnknown => f.write_str("the local outcome of a branch is unknown"),
            Self::Operator => f.write_str("an operator decided it"),
            Self::Refused => f.write_str("a participant refuses"),
            Self::Coordinator => f.write_str("the coordinator decided it"),
        }
    }
}

fn because(source: &Option<Error>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(" ({source})"))
}
