//! A lock that is held.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock::{Moment, sleep_until};
use crate::error::{LockError, Lost, Outcome};
use crate::machine::Until;
use crate::name::{Fence, LockName, Token};
use crate::shell::Message;

/// A lock that is held, and renewed, for as long as this value lives.
///
/// Dropping it lets the lock go: at once, without blocking, without a runtime. To learn whether it
/// was held to the end, [`release`](Self::release) it.
#[must_use = "the lock is let go when the guard is dropped"]
pub struct Guard {
    held: Arc<Held>,
}

/// One acquisition, shared by the guards of a reentrant owner.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) lease: Arc<Lease>,
    pub(crate) shell: mpsc::UnboundedSender<Message>,
}

/// What is known of a lock's lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) until: Until,
    pub(crate) lost: Option<Lost>,
}

/// The lease of an acquisition, as its shell and its guards know it.
#[derive(Debug)]
pub(crate) struct Lease {
    standing: Mutex<Standing>,
    changed: Notify,
}

impl Lease {
    pub(crate) fn new(until: Until) -> Self {
        let standing = Mutex::new(Standing { until, lost: None });
        Self { standing, changed: Notify::new() }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.lock());
        self.changed.notify_waiters();
    }

    fn standing(&self) -> Standing {
        *self.lock()
    }

    /// Ends with the next change from here on.
    fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        // A panic leaves nothing half changed: each change sets one field.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    /// Which lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// Which acquisition.
    #[must_use]
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The fencing token: larger than that of every earlier holder.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// Until when the lock is surely held, unless it is renewed before, which happens by itself.
    /// Counted from when the lease was asked for, on a clock that goes on during suspension.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.held.lease.standing().until.deadline
    }

    /// Whether the lock is held, as far as can be known here. It goes by the clock and needs no
    /// runtime to have run. The moment after, it may be lost: proof is only the fence at the
    /// resource.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.lost().is_none()
    }

    /// An error if the lock is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        let Some(why) = self.held.lost() else { return Ok(()) };
        Err(self.lost_error(why))
    }

    /// Waits until the lock is lost. It ends before the lease can end at the backend, whether or
    /// not the backend can be reached.
    pub async fn lost(&self) -> Lost {
        loop {
            let changed = self.held.lease.changed();
            if let Some(why) = self.held.lost() {
                return why;
            }
            // Where nobody renews it any more, nothing changes before the deadline.
            tokio::select! {
                () = sleep_until(self.deadline()) => {}
                () = changed => {}
            }
        }
    }

    /// Lets the lock go and tells how it stood. Cancelling this future does not keep the lock.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] if the backend did not answer until the lease had ended;
    /// [`LockError::Ended`] if the runtime of the locks has.
    pub async fn release(self) -> Result<Outcome, LockError> {
        // Exactly one of the last guards of an owner gets it.
        let Some(held) = Arc::into_inner(self.held) else { return Ok(Outcome::StillHeld) };
        let (ended, outcome) = oneshot::channel();
        let number = held.token.number;
        let message = Message::LetGo { number, ended: Some(ended) };
        held.shell.send(message).map_err(|_| LockError::Ended)?;
        let outcome = outcome.await.map_err(|_| LockError::Ended)?;
        let name = held.name.clone();
        outcome.map_err(|source| LockError::Unavailable { name, source })
    }

    /// Gives others a share: from here on this is the guard of a reader, and other readers may come
    /// in beside it, with the same fencing token; a writer may not. What a writer has written and
    /// reads on is not changed by another writer in between.
    ///
    /// Cancelling this future lets the lock go.
    ///
    /// ```
    /// use handfast_locks::{Locks, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_locks::LockError> {
    /// let locks = Locks::over(Memory::new()).start()?;
    /// let writer = locks.lock("prices").await?;
    /// let reader = writer.downgrade().await?;
    /// let other = locks.try_lock_shared("prices").await?;
    /// assert_eq!(other.fence(), reader.fence());
    /// assert!(locks.try_lock("prices").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`]; [`LockError::Settings`] for the guard of an owner who may enter again:
    /// his other guards would not know of it.
    pub async fn downgrade(mut self) -> Result<Self, LockError> {
        if Arc::get_mut(&mut self.held).is_none() {
            let reason = "the lock of an owner who may enter again is not downgraded";
            return Err(LockError::Settings { reason });
        }
        let (done, wait) = oneshot::channel();
        let message = Message::Downgrade { number: self.held.token.number, done };
        self.held.shell.send(message).map_err(|_| LockError::Ended)?;
        let done = wait.await;
        self.check()?;
        done.map(|()| self).map_err(|_| LockError::Ended)
    }

    pub(crate) fn lost_error(&self, why: Lost) -> LockError {
        LockError::Lost { name: self.name().clone(), fence: self.fence(), why }
    }
}

impl Held {
    pub(crate) fn lost(&self) -> Option<Lost> {
        let standing = self.lease.standing();
        let is_over = standing.until.deadline <= Moment::now();
        standing.lost.or(is_over.then_some(standing.until.then))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A shell that has ended lets nothing go; then the lease ends.
        let _ = self.shell.send(Message::LetGo { number: self.token.number, ended: None });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.held.name)
            .field("fence", &self.held.fence)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
