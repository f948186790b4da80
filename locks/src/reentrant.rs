//! Locks that their owner may enter again.
//!
//! Entering again is counted here, by sharing one acquisition, and never at the backend: a request
//! that is sent twice cannot count twice, and whoever lets go last frees the lock.

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::backend::Share;
use crate::client::{Link, run_under};
use crate::clock::Moment;
use crate::error::LockError;
use crate::guard::{Guard, Held};
use crate::machine::Patience;
use crate::name::LockName;

/// What an owner holds of a lock. Locked while he asks for it, so that he asks once.
pub(crate) type Owned = Arc<Mutex<Weak<Held>>>;

/// The locks of one owner, see [`Locks::reentrant`](crate::Locks::reentrant). Clones are the same
/// owner.
///
/// ```
/// use handfast_locks::{Locks, Memory, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(Memory::new()).start()?;
/// let job = locks.reentrant("nightly-job");
/// let outer = job.lock("report").await?;
/// let inner = job.lock("report").await?;
/// assert_eq!(inner.fence(), outer.fence());
/// assert!(locks.reentrant("other-job").try_lock("report").await.is_err());
/// assert_eq!(outer.release().await?, Outcome::StillHeld);
/// assert_eq!(inner.release().await?, Outcome::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReentrantLocks {
    link: Arc<Link>,
    owner: String,
}

impl ReentrantLocks {
    pub(crate) fn new(link: Arc<Link>, owner: String) -> Self {
        Self { link, owner }
    }

    /// As [`Locks::lock`](crate::Locks::lock); at once if this owner holds the lock.
    ///
    /// # Errors
    /// Those of [`Locks::lock`](crate::Locks::lock).
    pub async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, Patience::Endless).await
    }

    /// As [`Locks::try_lock`](crate::Locks::try_lock); granted if this owner holds the lock.
    ///
    /// # Errors
    /// Those of [`Locks::try_lock`](crate::Locks::try_lock), also while the same owner is asking
    /// for the lock elsewhere.
    pub async fn try_lock(&self, name: &str) -> Result<Guard, LockError> {
        let name = LockName::new(name)?;
        let owned = self.owned(&name);
        let Ok(mut held) = owned.try_lock() else {
            return Err(LockError::Busy { name, holder: None });
        };
        self.enter(&mut held, name, Patience::None).await
    }

    /// As [`Locks::lock_timeout`](crate::Locks::lock_timeout); at once if this owner holds the
    /// lock.
    ///
    /// # Errors
    /// Those of [`Locks::lock_timeout`](crate::Locks::lock_timeout).
    pub async fn lock_timeout(&self, name: &str, limit: Duration) -> Result<Guard, LockError> {
        let name = LockName::new(name)?;
        let patience = Patience::Until(Moment::now() + limit);
        let asking = self.acquire(name.clone(), patience);
        // The same owner may be asking for it elsewhere, with more patience.
        match tokio::time::timeout(limit.saturating_add(SLACK), asking).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(LockError::TimedOut { name, holder: None }),
        }
    }

    /// As [`Locks::run`](crate::Locks::run).
    ///
    /// # Errors
    /// Those of [`Locks::run`](crate::Locks::run).
    pub async fn run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name).await?;
        run_under(guard, work).await
    }

    async fn acquire(&self, name: LockName, patience: Patience) -> Result<Guard, LockError> {
        let owned = self.owned(&name);
        let mut held = owned.lock().await;
        self.enter(&mut held, name, patience).await
    }

    async fn enter(
        &self,
        held: &mut Weak<Held>,
        name: LockName,
        patience: Patience,
    ) -> Result<Guard, LockError> {
        // What is lost cannot be entered again: it is asked for anew.
        if let Some(held) = held.upgrade().filter(|held| held.lost().is_none()) {
            return Ok(Guard::new(held));
        }
        let acquired = self.link.acquire(name, Share::All, patience).await?;
        *held = Arc::downgrade(&acquired);
        Ok(Guard::new(acquired))
    }

    /// The owner's place for a lock. Places that nobody uses any more go on the way.
    fn owned(&self, name: &LockName) -> Owned {
        let mut all = self.link.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PLACES_KEPT {
            all.retain(|_, owned| {
                Arc::strong_count(owned) > 1
                    || owned.try_lock().is_ok_and(|held| held.strong_count() > 0)
            });
        }
        Arc::clone(all.entry((name.clone(), self.owner.clone())).or_default())
    }
}

/// What the machine's own limit may need to be told.
const SLACK: Duration = Duration::from_millis(20);
/// From so many on, unused places are looked for (BOUNDED by what is in use).
const PLACES_KEPT: usize = 1024;

impl fmt::Debug for ReentrantLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantLocks").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Locks, Memory};

    #[tokio::test]
    async fn an_owner_may_wait_for_as_long_as_there_is_time() {
        let owner = Locks::over(Memory::new()).start().unwrap().reentrant("owner");
        let guard = owner.lock_timeout("a", Duration::MAX).await.unwrap();
        assert!(guard.is_held());
    }
}
