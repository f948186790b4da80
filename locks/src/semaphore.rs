//! Semaphores: a limited number of holders at once.
//!
//! A permit belongs to the acquisition that took it. No other can give it back, and it comes back
//! by itself when its holder has died. It has no fencing token: a resource cannot tell holders that
//! are allowed at the same time apart by the largest number that it has seen.

use std::time::Duration;

use crate::backend::LockMode;
use crate::client::Locks;
use crate::clock::Moment;
use crate::error::{LockError, LossReason, ReleaseOutcome};
use crate::guard::Guard;
use crate::machine::WaitPolicy;
use crate::name::{AcquisitionId, LockName};

/// A number of permits under one name. See [`Locks::semaphore`]. Clones are the same permits.
///
/// ```
/// use handfast_locks::{Locks, MemoryLocks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(MemoryLocks::new()).start()?;
/// let exports = locks.semaphore("exports", 2)?;
/// let first = exports.acquire().await?;
/// let _second = exports.acquire().await?;
/// assert!(exports.try_acquire().await.is_err());
/// first.release().await?;
/// assert!(exports.try_acquire().await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    locks: Locks,
    name: LockName,
    mode: LockMode,
}

/// A permit that is held, and renewed, for as long as this value lives. Dropping it gives the
/// permit back.
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    guard: Guard,
}

impl Semaphore {
    pub(crate) fn new(locks: Locks, name: LockName, permits: u32) -> Result<Self, LockError> {
        let mode = LockMode::Shared { permits };
        if permits == 0 || mode == LockMode::READ {
            let reason = "a semaphore has at least one permit, and fewer than 2^32 - 1";
            return Err(LockError::Settings { reason });
        }
        Ok(Self { locks, name, mode })
    }

    /// Waits for a permit, first come first served. Dropping the future gives the place up.
    ///
    /// # Errors
    /// The errors of [`Locks::lock`]. [`LockError::Refused`] on a backend without a shared mode, or
    /// if others hold permits of another number.
    pub async fn acquire(&self) -> Result<Permit, LockError> {
        self.acquire_with(WaitPolicy::Forever).await
    }

    /// Takes a permit if one is free.
    ///
    /// # Errors
    /// [`LockError::Busy`], which names one of the holders, and the errors of
    /// [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Permit, LockError> {
        self.acquire_with(WaitPolicy::NoWait).await
    }

    /// Waits for a permit for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], and the errors of [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Permit, LockError> {
        self.acquire_with(WaitPolicy::Until(Moment::now() + limit)).await
    }

    async fn acquire_with(&self, wait: WaitPolicy) -> Result<Permit, LockError> {
        let guard = self.locks.acquire_mode(self.name.clone(), self.mode, wait).await?;
        Ok(Permit { guard })
    }
}

impl Permit {
    /// Returns the name of the semaphore.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// Returns the id of this acquisition.
    #[must_use]
    pub fn id(&self) -> AcquisitionId {
        self.guard.id()
    }

    /// Returns the time until which the permit is surely held. See [`Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// Returns whether the permit is held. See [`Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Waits until the permit is lost. See [`Guard::lost`].
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// Gives the permit back and returns whether it was held to the end.
    ///
    /// # Errors
    /// The errors of [`Guard::release`].
    pub async fn release(self) -> Result<ReleaseOutcome, LockError> {
        self.guard.release().await
    }
}
