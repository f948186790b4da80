//! A lock that is held.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock::{Moment, sleep_until};
use crate::driver::Message;
use crate::error::{LockError, LossReason, ReleaseOutcome};
use crate::machine::Expiry;
use crate::name::{AcquisitionId, FencingToken, LockName};

/// A lock that is held, and renewed, for as long as this value lives.
///
/// Dropping a guard releases the lock at once, without blocking and without a runtime. To know
/// whether it was held to the end, [`release`](Self::release) it.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    held: Arc<HeldLock>,
}

/// The error of a [`Guard::downgrade`], with the guard: a lock that was not lost is held as before.
///
/// The `?` operator turns it into its [`LockError`]. That drops the guard, which releases the lock.
#[derive(Debug, thiserror::Error)]
#[error("lock {} was not downgraded", .guard.name())]
pub struct DowngradeError {
    /// The guard.
    pub guard: Guard,
    /// The reason.
    #[source]
    pub reason: LockError,
}

impl From<DowngradeError> for LockError {
    fn from(error: DowngradeError) -> Self {
        error.reason
    }
}

/// An acquisition that is held, shared by the guards of a reentrant owner.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) name: LockName,
    pub(crate) id: AcquisitionId,
    pub(crate) fencing_token: FencingToken,
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) driver: mpsc::UnboundedSender<Message>,
}

/// The state of a lease.
#[derive(Debug)]
struct LeaseStatus {
    expiry: Expiry,
    lost: Option<LossReason>,
}

impl LeaseStatus {
    fn lost(&self) -> Option<LossReason> {
        let is_over = self.expiry.deadline <= Moment::now();
        self.lost.or(is_over.then_some(self.expiry.loss))
    }
}

/// The lease of an acquisition, shared by the driver and the guards.
#[derive(Debug)]
pub(crate) struct SharedLease {
    status: Mutex<LeaseStatus>,
    changed: Notify,
}

impl SharedLease {
    pub(crate) fn new(expiry: Expiry) -> Self {
        let status = Mutex::new(LeaseStatus { expiry, lost: None });
        Self { status, changed: Notify::new() }
    }

    pub(crate) fn lose(&self, reason: LossReason) {
        self.lock().lost = Some(reason);
        self.changed.notify_waiters();
    }

    /// Extends the lease, unless it is lost or its deadline has passed: the reason is the error.
    ///
    /// LOST-FIRST: the clock is read under the mutex, here and in [`Self::lost`]. Otherwise a guard
    /// could see the lock as lost, and later as held, because the renewal was decided on an earlier
    /// reading of the clock.
    pub(crate) fn extend(&self, expiry: Expiry) -> Result<(), LossReason> {
        let mut status = self.lock();
        if let Some(reason) = status.lost() {
            return Err(reason);
        }
        status.expiry = expiry;
        drop(status);
        self.changed.notify_waiters();
        Ok(())
    }

    fn lost(&self) -> Option<LossReason> {
        self.lock().lost()
    }

    fn deadline(&self) -> Moment {
        self.lock().expiry.deadline
    }

    /// Returns a future that ends with the next change from here on.
    fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, LeaseStatus> {
        // Each change sets one field, so a panic leaves nothing half changed.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    pub(crate) fn new(held: Arc<HeldLock>) -> Self {
        Self { held }
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// Returns the id of this acquisition.
    #[must_use]
    pub fn id(&self) -> AcquisitionId {
        self.held.id
    }

    /// Returns the fencing token, which is larger than that of every earlier holder.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.fencing_token
    }

    /// Returns the time until which the lock is surely held. A renewal, which happens by itself,
    /// moves it on. It counts from when the lease was requested, on a clock that goes on while the
    /// machine is suspended.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.held.lease.deadline()
    }

    /// Returns whether the lock is held, as far as this process can know. The answer comes from the
    /// clock and needs no task to have run. A moment later the lock may be lost: only the fencing
    /// token at the resource is proof.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.lost().is_none()
    }

    /// Returns an error if the lock is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        let Some(reason) = self.held.lost() else { return Ok(()) };
        Err(self.lost_error(reason))
    }

    /// Waits until the lock is lost. This returns before the lease can end at the backend, whether
    /// or not the backend can be reached.
    pub async fn lost(&self) -> LossReason {
        loop {
            // The future comes before the look: a change between the two ends it although it has
            // not been polled yet.
            let changed = self.held.lease.changed();
            if let Some(reason) = self.held.lost() {
                return reason;
            }
            // If the runtime of the driver has ended, nothing changes before the deadline.
            tokio::select! {
                () = sleep_until(self.deadline()) => {}
                () = changed => {}
            }
        }
    }

    /// Releases the lock and returns whether it was held to the end. Cancelling this future does
    /// not keep the lock.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] if the backend did not answer until the lease had ended.
    /// [`LockError::Ended`] if the client's runtime has ended.
    pub async fn release(self) -> Result<ReleaseOutcome, LockError> {
        // If several guards of an owner end at the same time, exactly one gets the value.
        let Some(held) = Arc::into_inner(self.held) else { return Ok(ReleaseOutcome::StillHeld) };
        let (ended, outcome) = oneshot::channel();
        let number = held.id.number;
        let message = Message::Release { number, ended: Some(ended) };
        held.driver.send(message).map_err(|_| LockError::Ended)?;
        let outcome = outcome.await.map_err(|_| LockError::Ended)?;
        let name = held.name.clone();
        outcome.map_err(|source| LockError::Unavailable { name, source })
    }

    /// Turns a writer into a reader: other readers may join, with the same fencing token, and
    /// writers may not. No other writer changes in between what this writer has written and still
    /// reads.
    ///
    /// Cancelling this future releases the lock.
    ///
    /// ```
    /// use handfast_locks::{Locks, MemoryLocks};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_locks::LockError> {
    /// let locks = Locks::over(MemoryLocks::new()).start()?;
    /// let writer = locks.lock("prices").await?;
    /// let reader = writer.downgrade().await?;
    /// let other = locks.try_lock_shared("prices").await?;
    /// assert_eq!(other.fencing_token(), reader.fencing_token());
    /// assert!(locks.try_lock("prices").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error gives the guard back, and names the reason. [`LockError::Lost`].
    /// [`LockError::Settings`] for the guard of a reentrant owner, whose other guards would not
    /// know of the change. [`LockError::Refused`] on a backend without a shared mode, and
    /// [`LockError::Denied`]: the lock is then held as a writer's, as before.
    pub async fn downgrade(mut self) -> Result<Self, DowngradeError> {
        match self.become_reader().await {
            Ok(()) => Ok(self),
            Err(reason) => Err(DowngradeError { guard: self, reason }),
        }
    }

    async fn become_reader(&mut self) -> Result<(), LockError> {
        // A weak reference counts as well: the owner of a reentrant lock keeps one, through which
        // another task would take this lock for a writer's.
        if Arc::get_mut(&mut self.held).is_none() {
            let reason = "the lock of a reentrant owner cannot be downgraded";
            return Err(LockError::Settings { reason });
        }
        let (done, wait) = oneshot::channel();
        let message = Message::Downgrade { number: self.held.id.number, done };
        self.held.driver.send(message).map_err(|_| LockError::Ended)?;
        let done = wait.await;
        // A loss ends the wait without an answer. It must not look like the end of the client.
        self.check()?;
        done.unwrap_or(Err(LockError::Ended))
    }

    pub(crate) fn lost_error(&self, reason: LossReason) -> LockError {
        LockError::Lost { name: self.name().clone(), fencing_token: self.fencing_token(), reason }
    }
}

impl HeldLock {
    pub(crate) fn lost(&self) -> Option<LossReason> {
        self.lease.lost()
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // A driver that has ended releases nothing; then the lease ends.
        let _ = self.driver.send(Message::Release { number: self.id.number, ended: None });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.held.name)
            .field("fencing_token", &self.held.fencing_token)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::backend::{
        AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, ReleaseRequest,
        ReleaseResponse, WakeUp,
    };
    use crate::client::Locks;
    use crate::error::BackendError;
    use crate::memory::MemoryLocks;

    /// Locks in memory without a shared mode.
    #[derive(Debug, Default)]
    struct WriterLocks(MemoryLocks);

    #[async_trait]
    impl Backend for WriterLocks {
        fn name(&self) -> &'static str {
            "writers"
        }

        fn guarantee(&self) -> Guarantee {
            self.0.guarantee()
        }

        async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
            match request.mode {
                LockMode::Exclusive => self.0.acquire(request).await,
                LockMode::Shared { .. } => Err(BackendError::lasting("no shared mode")),
            }
        }

        async fn renew(
            &self,
            lock_refs: &[LockRef],
            lease: Duration,
        ) -> Result<Vec<bool>, BackendError> {
            self.0.renew(lock_refs, lease).await
        }

        async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
            self.0.release(request).await
        }

        async fn listen(
            &self,
            client: u128,
            wake_ups: &mpsc::UnboundedSender<WakeUp>,
        ) -> Result<Infallible, BackendError> {
            self.0.listen(client, wake_ups).await
        }
    }

    fn until(deadline: Moment) -> Expiry {
        Expiry { deadline, loss: LossReason::Deadline }
    }

    /// Regression: a guard said that its lock was lost, and later that it was held: the answer to a
    /// renewal was decided on an earlier reading of the clock.
    #[test]
    fn lease_that_was_seen_as_lost_is_not_extended() {
        let later = until(Moment::now() + Duration::from_secs(3600));
        let ended = SharedLease::new(until(Moment::now()));
        assert_eq!(ended.lost(), Some(LossReason::Deadline));
        assert_eq!(ended.extend(later), Err(LossReason::Deadline));
        assert_eq!(ended.lost(), Some(LossReason::Deadline));
        let held = SharedLease::new(later);
        assert_eq!(held.extend(until(later.deadline + Duration::from_secs(1))), Ok(()));
        assert!(held.deadline() > later.deadline);
        held.lose(LossReason::Taken);
        assert_eq!(held.extend(later), Err(LossReason::Taken));
    }

    /// Regression: the downgrade never returned.
    #[tokio::test]
    async fn refused_downgrade_gives_the_guard_back() {
        let locks = Locks::over(WriterLocks::default()).start().unwrap();
        let refused = locks.lock("a").await.unwrap().downgrade().await.unwrap_err();
        assert!(matches!(refused.reason, LockError::Refused { .. }), "{refused:?}");
        assert!(refused.guard.is_held());
        assert!(matches!(locks.try_lock("a").await, Err(LockError::Busy { .. })));
        assert_eq!(refused.guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(locks.try_lock("a").await.is_ok());
    }
}
