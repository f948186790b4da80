//! Several locks at once: all or none.
//!
//! Made of single locks, on every backend alike. They are taken in the order of their names, so
//! that nobody who holds one waits for somebody who waits for it.

use std::collections::BTreeSet;

use futures::future::{join_all, select_all};

use crate::backend::Share;
use crate::client::Locks;
use crate::error::{LockError, Outcome};
use crate::guard::Guard;
use crate::machine::Patience;
use crate::name::LockName;

/// Several locks that are held together, see [`Locks::lock_all`]. Dropping it lets all go.
///
/// ```
/// use handfast_locks::{Locks, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(Memory::new()).start()?;
/// let both = locks.lock_all(&["account/7", "account/3"]).await?;
/// assert!(locks.try_lock_all(&["account/3", "account/9"]).await.is_err());
/// assert!(locks.try_lock("account/9").await.is_ok());
/// drop(both);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the locks are let go when this is dropped"]
pub struct Guards {
    /// By name.
    guards: Vec<Guard>,
}

impl Guards {
    pub(crate) async fn acquire(
        locks: &Locks,
        names: &[&str],
        patience: Patience,
    ) -> Result<Self, LockError> {
        // A name that is given twice is one lock.
        let names: BTreeSet<LockName> =
            names.iter().map(|name| LockName::new(*name)).collect::<Result<_, _>>()?;
        let mut guards = Self { guards: Vec::with_capacity(names.len()) };
        for name in names {
            // Whatever goes wrong, what is held so far is dropped with `guards`.
            let guard = tokio::select! {
                biased;
                error = guards.lost() => return Err(error),
                guard = locks.share(name, Share::All, patience) => guard?,
            };
            guards.guards.push(guard);
        }
        guards.check()?;
        Ok(guards)
    }

    /// The guards, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// The guard of one of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// An error if one of the locks is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Waits until one of the locks is lost, and tells which.
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

    /// Lets all go, and tells how each stood, in the order of their names.
    ///
    /// # Errors
    /// Those of [`Guard::release`]; the others are let go all the same.
    pub async fn release(self) -> Result<Vec<Outcome>, LockError> {
        join_all(self.guards.into_iter().map(Guard::release)).await.into_iter().collect()
    }
}
