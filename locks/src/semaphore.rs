//! Permits: a limited number of holders at once.
//!
//! A permit belongs to who has acquired it: nobody else can give it back, and it comes back by
//! itself when its holder has died. It has no fencing token: holders who are allowed beside one
//! another cannot be told apart by the largest number that a resource has seen.

use std::time::Duration;

use crate::backend::Share;
use crate::client::Locks;
use crate::clock::Moment;
use crate::error::{LockError, Lost, Outcome};
use crate::guard::Guard;
use crate::machine::Patience;
use crate::name::{LockName, Token};

/// A number of permits by one name, see [`Locks::semaphore`]. Clones are the same permits.
///
/// ```
/// use handfast_locks::{Locks, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(Memory::new()).start()?;
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
    share: Share,
}

/// A permit that is held, and renewed, for as long as this value lives. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    guard: Guard,
}

impl Semaphore {
    pub(crate) fn new(locks: Locks, name: LockName, permits: u32) -> Result<Self, LockError> {
        let share = Share::One { of: permits };
        if permits == 0 || share == Share::READ {
            let reason = "a semaphore has a permit at least, and fewer than 2^32 - 1";
            return Err(LockError::Settings { reason });
        }
        Ok(Self { locks, name, share })
    }

    /// Waits for a permit, first come first served. Dropping the future gives the place up.
    ///
    /// # Errors
    /// Those of [`Locks::lock`]; [`LockError::Refused`] on a backend without permits, or if others
    /// hold permits out of another number.
    pub async fn acquire(&self) -> Result<Permit, LockError> {
        self.ask(Patience::Endless).await
    }

    /// Takes a permit if one is free.
    ///
    /// # Errors
    /// [`LockError::Busy`], which names one of the holders, and those of
    /// [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Permit, LockError> {
        self.ask(Patience::None).await
    }

    /// Waits for a permit for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], and those of [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Permit, LockError> {
        self.ask(Patience::Until(Moment::now() + limit)).await
    }

    async fn ask(&self, patience: Patience) -> Result<Permit, LockError> {
        let guard = self.locks.share(self.name.clone(), self.share, patience).await?;
        Ok(Permit { guard })
    }
}

impl Permit {
    /// Of which semaphore.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// Which acquisition.
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// Until when it is surely held, see [`Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// Whether it is held, see [`Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Waits until it is lost, see [`Guard::lost`].
    pub async fn lost(&self) -> Lost {
        self.guard.lost().await
    }

    /// Gives it back and tells how it stood.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub async fn release(self) -> Result<Outcome, LockError> {
        self.guard.release().await
    }
}
