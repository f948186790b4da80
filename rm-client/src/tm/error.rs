//! The ways in which a transaction fails to commit.

use std::convert::Infallible;
use std::fmt;

use handfast_rm_core::RollbackReason;

use crate::error::Error;
use crate::xid::Xid;

/// The error of [`run`](crate::NewTransaction::run), one variant for each way that does not end in
/// a commit. `E` is the closure's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError<E> {
    /// The global did not begin, and no branch of it was registered. The closure has not run,
    /// unless the answer to the begin came after it: it succeeded then, without a branch.
    #[error("transaction not begun: {0}")]
    NotBegun(#[source] Error),
    /// The closure failed, and this call had nothing to decide: it had joined a transaction that
    /// another caller decides, or it ran without a transaction.
    #[error("{0}")]
    Application(E),
    /// The global is rolled back and finished. None of its changes remain.
    #[error("xid {xid} rolled back: {by}")]
    RolledBack {
        /// The global.
        xid: Xid,
        /// Why the global is rolled back.
        by: RollbackCause<E>,
    },
    /// The rollback is certain, but not known to be finished. The coordinator continues it by
    /// itself.
    #[error("xid {xid} is still rolling back: {by}{}", source_suffix(.source))]
    RollingBack {
        /// The global.
        xid: Xid,
        /// Why the global is rolled back.
        by: RollbackCause<E>,
        /// Set if the coordinator gave no answer. It then rolls back at the timeout at the latest.
        source: Option<Error>,
    },
    /// The global is rolling back, and a branch cannot be undone without an operator. The branch
    /// keeps its locks.
    #[error("xid {xid} needs an operator to roll back: {by}")]
    NeedsOperator {
        /// The global.
        xid: Xid,
        /// Why the global is rolled back.
        by: RollbackCause<E>,
    },
    /// The global was to be rolled back, and the coordinator does not know it. This process never
    /// asked for its commit. Either the coordinator restarted before the first branch was
    /// registered, and the global has no effect, or an operator ended the global and the
    /// coordinator has forgotten it since.
    #[error("xid {xid} is not known to the coordinator, nothing to roll back: {by}")]
    Forgotten {
        /// The global.
        xid: Xid,
        /// Why the global was to be rolled back.
        by: RollbackCause<E>,
    },
    /// The global was to be rolled back, but an operator had committed it, or the local commit of
    /// its [last branch](crate::AtResource::last).
    #[error("xid {xid} was committed before it was to be rolled back: {by}")]
    Committed {
        /// The global.
        xid: Xid,
        /// Why the global was to be rolled back.
        by: RollbackCause<E>,
    },
    /// The commit was requested and not answered, so the global may be committed or not. Ask later
    /// with [`Handfast::outcome`](crate::Handfast::outcome), and do not repeat the work before
    /// that.
    #[error("outcome of xid {xid} is unknown, ask later: {source}")]
    Unknown {
        /// The global.
        xid: Xid,
        /// The reason for the missing answer.
        source: Error,
    },
}

/// The error of [`Global::commit`](crate::Global::commit) and
/// [`Global::rollback`](crate::Global::rollback), which run no closure that could fail.
pub type EndError = TransactionError<Infallible>;

/// The reason for which a global was, or is to be, rolled back.
#[derive(Debug)]
#[non_exhaustive]
pub enum RollbackCause<E> {
    /// The closure returned this error.
    Application(E),
    /// The closure succeeded, but it had called
    /// [`set_rollback_only`](crate::Transaction::set_rollback_only).
    RollbackOnly,
    /// The global's time ran out before the commit.
    Timeout,
    /// The application requested the rollback.
    Requested,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// An operator decided the rollback.
    Operator,
    /// A participant refused to prepare, or answered before that it could not.
    Refused,
    /// The coordinator decided the rollback, for a reason that this version does not know.
    Coordinator,
}

impl<E> TransactionError<E> {
    /// Returns the stable code, listed in `docs/errors.md`.
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

    /// Returns the global's XID, if a global began.
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

    /// Returns the closure's own error, if it failed, whatever the outcome of the global.
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

    /// Returns the closure's own error by value, if it failed.
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

fn source_suffix(source: &Option<Error>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(" ({source})"))
}
