//! Several locks at once: all or none.
//!
//! This is made of single locks, and is the same on every backend. The locks are taken in the order
//! of their names, so that waiters never form a cycle.

use std::collections::BTreeSet;

use futures::future::{join_all, select_all};

use crate::backend::LockMode;
use crate::client::Locks;
use crate::error::{LockError, ReleaseOutcome};
use crate::guard::Guard;
use crate::machine::WaitPolicy;
use crate::name::LockName;

/// Several locks that are held together. See [`Locks::lock_all`]. Dropping this releases all.
///
/// ```
/// use handfast_locks::{Locks, MemoryLocks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(MemoryLocks::new()).start()?;
/// let both = locks.lock_all(&["account/7", "account/3"]).await?;
/// assert!(locks.try_lock_all(&["account/3", "account/9"]).await.is_err());
/// assert!(locks.try_lock("account/9").await.is_ok());
/// drop(both);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when this is dropped"]
pub struct Guards {
    /// In the order of their names.
    guards: Vec<Guard>,
}

impl Guards {
    pub(crate) async fn acquire(
        locks: &Locks,
        names: &[&str],
        wait: WaitPolicy,
    ) -> Result<Self, LockError> {
        // A name that is given twice is one lock.
        let names: BTreeSet<LockName> =
            names.iter().map(|name| LockName::new(*name)).collect::<Result<_, _>>()?;
        let mut guards = Self { guards: Vec::with_capacity(names.len()) };
        for name in names {
            // If anything fails, dropping `guards` releases what is held so far.
            let guard = tokio::select! {
                biased;
                error = guards.lost() => return Err(error),
                guard = locks.acquire_mode(name, LockMode::Exclusive, wait) => guard?,
            };
            guards.guards.push(guard);
        }
        // The last grant ends the loop without another look at the others.
        guards.check()?;
        Ok(guards)
    }

    /// Returns the guards in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// Returns the guard of the lock with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// Returns an error if one of the locks is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Waits until one of the locks is lost, and returns the error that names it.
    pub async fn lost(&self) -> LockError {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        let lost = self
            .guards
            .iter()
            .map(|guard| Box::pin(async move { guard.lost_error(guard.lost().await) }));
        select_all(lost).await.0
    }

    /// Releases all locks, and returns the outcome of each, in the order of their names.
    ///
    /// # Errors
    /// The errors of [`Guard::release`]. The other locks are released all the same.
    pub async fn release(self) -> Result<Vec<ReleaseOutcome>, LockError> {
        join_all(self.guards.into_iter().map(Guard::release)).await.into_iter().collect()
    }
}
