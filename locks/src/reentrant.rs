//! Locks that their owner may acquire again.
//!
//! Reentrancy is counted in this process, by sharing one acquisition, and never at the backend: a
//! request that is sent twice cannot count twice. The last guard frees the lock.

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::backend::LockMode;
use crate::client::{ClientHandle, run_under};
use crate::clock::Moment;
use crate::error::LockError;
use crate::guard::{Guard, HeldLock};
use crate::machine::WaitPolicy;
use crate::name::LockName;

/// The part of a lock that an owner holds. The mutex is held while the owner waits, so that the
/// owner sends one request.
pub(crate) type Owned = Arc<Mutex<Weak<HeldLock>>>;

/// The locks of one owner. See [`Locks::reentrant`](crate::Locks::reentrant). Clones are the same
/// owner.
///
/// ```
/// use handfast_locks::{Locks, MemoryLocks, ReleaseOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(MemoryLocks::new()).start()?;
/// let job = locks.reentrant("nightly-job");
/// let outer = job.lock("report").await?;
/// let inner = job.lock("report").await?;
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
/// assert!(locks.reentrant("other-job").try_lock("report").await.is_err());
/// assert_eq!(outer.release().await?, ReleaseOutcome::StillHeld);
/// assert_eq!(inner.release().await?, ReleaseOutcome::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReentrantLocks {
    handle: Arc<ClientHandle>,
    owner: String,
}

impl ReentrantLocks {
    pub(crate) fn new(handle: Arc<ClientHandle>, owner: String) -> Self {
        Self { handle, owner }
    }

    /// As [`Locks::lock`](crate::Locks::lock). Returns at once if this owner holds the lock.
    ///
    /// # Errors
    /// The errors of [`Locks::lock`](crate::Locks::lock).
    pub async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, WaitPolicy::Forever).await
    }

    /// As [`Locks::try_lock`](crate::Locks::try_lock). Succeeds if this owner holds the lock.
    ///
    /// # Errors
    /// The errors of [`Locks::try_lock`](crate::Locks::try_lock), also while another task of this
    /// owner waits for the lock.
    pub async fn try_lock(&self, name: &str) -> Result<Guard, LockError> {
        let name = LockName::new(name)?;
        let owned = self.owned(&name);
        let Ok(mut held) = owned.try_lock() else {
            return Err(LockError::Busy { name, holder: None });
        };
        self.enter(&mut held, name, WaitPolicy::NoWait).await
    }

    /// As [`Locks::lock_timeout`](crate::Locks::lock_timeout). Returns at once if this owner holds
    /// the lock.
    ///
    /// # Errors
    /// The errors of [`Locks::lock_timeout`](crate::Locks::lock_timeout).
    pub async fn lock_timeout(&self, name: &str, limit: Duration) -> Result<Guard, LockError> {
        let name = LockName::new(name)?;
        let wait = WaitPolicy::Until(Moment::now() + limit);
        let asking = self.acquire(name.clone(), wait);
        // Another task of the same owner may be waiting for the lock with a later limit.
        match tokio::time::timeout(limit.saturating_add(SLACK), asking).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(LockError::TimedOut { name, holder: None }),
        }
    }

    /// As [`Locks::run`](crate::Locks::run).
    ///
    /// # Errors
    /// The errors of [`Locks::run`](crate::Locks::run).
    pub async fn run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name).await?;
        run_under(guard, work).await
    }

    async fn acquire(&self, name: LockName, wait: WaitPolicy) -> Result<Guard, LockError> {
        let owned = self.owned(&name);
        let mut held = owned.lock().await;
        self.enter(&mut held, name, wait).await
    }

    async fn enter(
        &self,
        held: &mut Weak<HeldLock>,
        name: LockName,
        wait: WaitPolicy,
    ) -> Result<Guard, LockError> {
        // A lost acquisition cannot be shared: the lock is acquired again.
        if let Some(held) = held.upgrade().filter(|held| held.lost().is_none()) {
            return Ok(Guard::new(held));
        }
        let acquired = self.handle.acquire(name, LockMode::Exclusive, wait).await?;
        *held = Arc::downgrade(&acquired);
        Ok(Guard::new(acquired))
    }

    /// Returns the owner's entry for a lock. Drops entries that are no longer used.
    fn owned(&self, name: &LockName) -> Owned {
        let mut all = self.handle.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PLACES_KEPT {
            // An entry that a task waits with stays: beside another entry the same owner would send
            // two requests, of which one waits for the other.
            all.retain(|_, owned| {
                Arc::strong_count(owned) > 1
                    || owned.try_lock().is_ok_and(|held| held.strong_count() > 0)
            });
        }
        Arc::clone(all.entry((name.clone(), self.owner.clone())).or_default())
    }
}

/// How long the state machine may take to report that its own limit has passed.
const SLACK: Duration = Duration::from_millis(20);
/// From this number of entries on, unused ones are dropped (BOUNDED by the entries in use).
const PLACES_KEPT: usize = 1024;

impl fmt::Debug for ReentrantLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantLocks").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Locks, MemoryLocks};

    #[tokio::test]
    async fn owner_may_wait_with_the_longest_duration() {
        let owner = Locks::over(MemoryLocks::new()).start().unwrap().reentrant("owner");
        let guard = owner.lock_timeout("a", Duration::MAX).await.unwrap();
        assert!(guard.is_held());
    }
}
