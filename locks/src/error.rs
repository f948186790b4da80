//! The errors of locks. Variants differ by what the caller can do.

use std::error::Error;

use crate::backend::{Guarantee, LockMode};
use crate::name::{FencingToken, Holder, LockName};

/// An error of a lock: it was not acquired, it was lost, or the backend failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another acquisition holds the lock, and the caller did not want to wait.
    #[error("lock {name} is held by {}", describe(holder.as_ref()))]
    Busy {
        /// The name of the lock.
        name: LockName,
        /// The holder. None if the lock is about to go to another waiter.
        holder: Option<Holder>,
    },
    /// The caller's time limit passed before the lock was free.
    #[error("waited too long for lock {name}, held by {}", describe(holder.as_ref()))]
    TimedOut {
        /// The name of the lock.
        name: LockName,
        /// The holder that was last seen, if any.
        holder: Option<Holder>,
    },
    /// The lock was lost while it was held: others may hold it. Writes under it must be fenced, and
    /// work under it must stop.
    #[error("lock {name} (fencing token {fencing_token}) was lost: {reason}")]
    Lost {
        /// The name of the lock.
        name: LockName,
        /// The fencing token of the acquisition.
        fencing_token: FencingToken,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The resource has seen the fencing token of a later holder: nothing may be written any more.
    #[error("lock {name}: the resource has seen a fencing token above {fencing_token}")]
    Stale {
        /// The lock, row or key.
        name: String,
        /// The fencing token that came too late.
        fencing_token: FencingToken,
    },
    /// The backend could not be reached or did not answer in time, until the caller's time limit or
    /// the client's passed.
    #[error("the backend of lock {name} is not available")]
    Unavailable {
        /// The name of the lock.
        name: LockName,
        /// The last failure.
        source: BackendError,
    },
    /// The backend refuses, and a repetition would not help: for example, its table is missing or
    /// its configuration is unsafe.
    #[error("the backend cannot be used")]
    Refused {
        /// The backend's message.
        source: BackendError,
    },
    /// The backend denies access to itself or to its locks: a wrong user, password or certificate,
    /// or a missing right.
    #[error("the backend denies access to its locks")]
    Denied {
        /// The backend's message.
        source: BackendError,
    },
    /// The resource failed. The claim may or may not be there.
    #[error("claiming lock {name} at the resource failed")]
    Claim {
        /// The name of the lock.
        name: String,
        /// The resource's failure.
        source: BackendError,
    },
    /// The text is not a valid name of a lock.
    #[error("not a valid name of a lock: {reason}: {name:?}")]
    Name {
        /// The text.
        name: String,
        /// The rule that the name breaks.
        reason: &'static str,
    },
    /// The caller asked for a guarantee that the backend cannot give.
    #[error("backend {backend} guarantees {has:?}, and {wants:?} is asked for")]
    Guarantee {
        /// The backend.
        backend: &'static str,
        /// The guarantee of the backend.
        has: Guarantee,
        /// The guarantee that the caller asked for.
        wants: Guarantee,
    },
    /// The settings are out of range or contradict each other.
    #[error("settings of locks: {reason}")]
    Settings {
        /// The rule that the settings break.
        reason: &'static str,
    },
    /// The client's runtime has ended.
    #[error("the client of the locks has ended")]
    Ended,
}

impl LockError {
    /// Makes the error of a backend that cannot be used.
    pub(crate) fn refused(source: BackendError) -> Self {
        if source.is_denied() { Self::Denied { source } } else { Self::Refused { source } }
    }

    /// Returns the stable code, which is listed in `docs/errors.md`.
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
            Self::Guarantee { .. } => "HF-LOCK-GRADE",
            Self::Settings { .. } => "HF-LOCK-SETTINGS",
            Self::Ended => "HF-LOCK-ENDED",
        }
    }
}

fn describe(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "an unknown holder".to_owned(), ToString::to_string)
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal succeeded before the lease could have ended. This is known even if the backend
    /// cannot be reached.
    #[error("its lease may have ended")]
    Deadline,
    /// The backend answered a renewal with "not held".
    #[error("the backend has given it away")]
    Taken,
    /// It was held for as long as [`LocksBuilder::hold_max`](crate::LocksBuilder::hold_max) allows.
    #[error("it was held for too long")]
    MaxHold,
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lock that was lost before its release did not protect what was done under it"]
pub enum ReleaseOutcome {
    /// The lock was held until then, and is free.
    Released,
    /// The same owner still holds the lock: another guard of a reentrant lock is alive.
    StillHeld,
    /// The lock was lost before, and is not held by others.
    WasLost,
    /// The lock was lost before, and another acquisition holds it, untouched by this release.
    NotOwner {
        /// The holder.
        current: Holder,
    },
}

/// A failure of a backend.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    message: String,
    kind: Kind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The remedy that the client has for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A repetition may help.
    Passing,
    /// An operator must change something.
    Lasting,
    /// An operator must change who the client is or what it may do.
    Denied,
}

impl BackendError {
    /// Makes a failure that may pass. Whether the request was carried out is unknown.
    pub fn passing(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let (message, source) = (message.into(), Some(source.into()));
        Self { message, kind: Kind::Passing, source }
    }

    /// Makes the failure of a request that was not answered in time. Whether it was carried out is
    /// unknown.
    #[must_use]
    pub fn unanswered() -> Self {
        let message = "no answer in time".to_owned();
        Self { message, kind: Kind::Passing, source: None }
    }

    /// Makes a failure that stays until an operator changes something.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::Lasting, source: None }
    }

    /// Makes the failure of a backend that denies access to itself or to its locks.
    pub fn denied(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::Denied, source: None }
    }

    /// Makes the failure of a request while others hold permits of another number.
    pub(crate) fn other_permits(permits: u32) -> Self {
        let readers = LockMode::READ == LockMode::Shared { permits };
        let users = if readers { "readers".to_owned() } else { format!("{permits} permits") };
        Self::lasting(format!("the lock is in use with {users}"))
    }

    /// Makes the failure of a backend without a shared mode.
    #[cfg(feature = "redis")]
    pub(crate) fn no_shared_mode(backend: &str) -> Self {
        Self::lasting(format!("{backend} has no shared mode, and so neither readers nor permits"))
    }

    /// Returns whether a repetition cannot help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.kind != Kind::Passing
    }

    /// Returns whether access was denied.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }
}
