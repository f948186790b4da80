//! What can go wrong with a lock. Variants by what the caller can do.

use std::error::Error;

use crate::backend::{Grade, Share};
use crate::name::{Fence, Holder, LockName};

/// A lock that was not to be had, was lost, or could not be asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds it, and the caller did not want to wait.
    #[error("lock {name} is held by {}", describe(holder.as_ref()))]
    Busy {
        /// Which lock.
        name: LockName,
        /// Who holds it; unknown if it is about to go to somebody who waits.
        holder: Option<Holder>,
    },
    /// The caller's patience ended before the lock was free.
    #[error("waited too long for lock {name}, held by {}", describe(holder.as_ref()))]
    TimedOut {
        /// Which lock.
        name: LockName,
        /// Who was seen holding it last, if anybody was.
        holder: Option<Holder>,
    },
    /// The lock was lost while it was held: others may hold it. What was written under it must be
    /// fenced; what runs under it must stop.
    #[error("lock {name} (fence {fence}) was lost: {why}")]
    Lost {
        /// Which lock.
        name: LockName,
        /// The token of the acquisition.
        fence: Fence,
        /// What happened.
        why: Lost,
    },
    /// The resource has seen a later holder's fencing token: nothing may be written any more.
    #[error("lock {name}: the resource has seen a fence above {fence}")]
    Stale {
        /// Which lock or row.
        name: String,
        /// The token that came too late.
        fence: Fence,
    },
    /// The backend could not be reached, or did not answer in time, and the caller's patience or
    /// the client's ended over it.
    #[error("the backend of lock {name} is not available")]
    Unavailable {
        /// Which lock.
        name: LockName,
        /// What it said last.
        source: BackendError,
    },
    /// The backend refuses, and asking again would not help: its table is missing, its
    /// configuration is unsafe.
    #[error("the backend cannot be used")]
    Refused {
        /// Why.
        source: BackendError,
    },
    /// The backend does not let us in, or not to its locks: a wrong user, password or certificate,
    /// a right that was not granted.
    #[error("the backend denies access to its locks")]
    Denied {
        /// What it said.
        source: BackendError,
    },
    /// The resource that is to be fenced failed; the claim may or may not be there.
    #[error("claiming lock {name} at the resource failed")]
    Claim {
        /// Which lock.
        name: String,
        /// What the resource said.
        source: BackendError,
    },
    /// No name for a lock.
    #[error("no name for a lock: {reason}: {name:?}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Correctness was asked for, and the backend cannot give it.
    #[error("backend {backend} is of grade {has:?}, and {wants:?} is asked for")]
    Grade {
        /// Which backend.
        backend: &'static str,
        /// What it gives.
        has: Grade,
        /// What was asked for.
        wants: Grade,
    },
    /// Settings that contradict each other.
    #[error("settings of locks: {reason}")]
    Settings {
        /// What is wrong.
        reason: &'static str,
    },
    /// The client was shut down, or its runtime has ended.
    #[error("the client of the locks has ended")]
    Ended,
}

impl LockError {
    /// What a backend says that cannot be used.
    pub(crate) fn refused(source: BackendError) -> Self {
        if source.is_denied() { Self::Denied { source } } else { Self::Refused { source } }
    }

    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "HF-LOCK-BUSY",
            Self::TimedOut { .. } => "HF-LOCK-TIMED-OUT",
            Self::Lost { .. } => "HF-LOCK-LOST",
            Self::Stale { .. } => "HF-LOCK-STALE",
            Self::Unavailable { .. } => "HF-LOCK-UNAVAILABLE",
            Self::Refused { .. } => "HF-LOCK-REFUSED",
            Self::Denied { .. } => "HF-LOCK-DENIED",
            Self::Claim { .. } => "HF-LOCK-CLAIM",
            Self::Name { .. } => "HF-LOCK-NAME",
            Self::Grade { .. } => "HF-LOCK-GRADE",
            Self::Settings { .. } => "HF-LOCK-SETTINGS",
            Self::Ended => "HF-LOCK-ENDED",
        }
    }
}

fn describe(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "somebody unknown".to_owned(), ToString::to_string)
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No renewal came through before the lease could have ended. The backend need not have been
    /// reached for this to be known.
    #[error("its lease may have ended")]
    Deadline,
    /// The backend answered a renewal with: not yours.
    #[error("the backend has given it away")]
    Taken,
    /// It was held for as long as a lock may be held.
    #[error("it was held for too long")]
    MaxHold,
}

/// How a release ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lock that was lost before its release did not protect what was done under it"]
pub enum Outcome {
    /// Freed: it was held until then.
    Released,
    /// The same owner holds it further: another guard of a reentrant lock is alive.
    StillHeld,
    /// It was lost before, and nobody holds it.
    WasLost,
    /// It was lost before, and somebody else holds it, untouched by this release.
    NotOwner {
        /// Who.
        current: Holder,
    },
}

/// What a backend says when it fails.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    message: String,
    kind: Kind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What helps against a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Asking again may.
    Passing,
    /// Somebody must change something.
    Lasting,
    /// The same: who we are, or what we may do.
    Denied,
}

impl BackendError {
    /// A failure that may pass. Whether the request was carried out is unknown.
    pub fn passing(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let (message, source) = (message.into(), Some(source.into()));
        Self { message, kind: Kind::Passing, source }
    }

    /// No answer within the time that a call may take. Whether it was carried out is unknown.
    #[must_use]
    pub fn unanswered() -> Self {
        let message = "no answer in time".to_owned();
        Self { message, kind: Kind::Passing, source: None }
    }

    /// A failure that stays until somebody changes something.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::Lasting, source: None }
    }

    /// A backend that does not let us in, or not to its locks.
    pub fn denied(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::Denied, source: None }
    }

    /// Others hold parts of the same lock, of another size.
    pub(crate) fn other_parts(of: u32) -> Self {
        let readers = Share::READ == Share::One { of };
        let parts = if readers { "readers".to_owned() } else { format!("{of} permits") };
        Self::lasting(format!("the lock is in use with {parts}"))
    }

    /// A backend whose locks cannot be held in parts.
    #[cfg(feature = "redis")]
    pub(crate) fn no_shares(backend: &str) -> Self {
        Self::lasting(format!("{backend} has neither readers nor permits"))
    }

    /// Whether asking again cannot help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.kind != Kind::Passing
    }

    /// Whether it is because of who we are.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }
}
