//! The client that applications use: locks by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, Guarantee, LockMode};
use crate::clock::Moment;
use crate::driver::{Driver, Message};
use crate::error::LockError;
use crate::guard::{Guard, HeldLock};
use crate::machine::{Settings, WaitPolicy};
use crate::multi::Guards;
use crate::name::{self, LockName};
use crate::reentrant::Owned;
use crate::semaphore::Semaphore;

/// The shortest lease. With a shorter one, the network could use up the time between two renewals.
const LEASE_MIN: Duration = Duration::from_millis(200);
/// The longest lease. A holder that died blocks the others for this long.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(3600);

/// A client of the locks of one backend. Clones are the same client.
///
/// ```
/// use handfast_locks::{LockError, Locks, MemoryLocks};
///
/// # async fn ship(_: &str) {}
/// async fn ship_once(locks: &Locks) -> Result<(), LockError> {
///     let guard = locks.lock("orders/42").await?;
///     ship("orders/42").await;
///     let _how_it_stood = guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Locks {
    handle: Arc<ClientHandle>,
}

/// The client's side of the channel to its driver.
pub(crate) struct ClientHandle {
    client: u128,
    last_number: AtomicU64,
    driver: mpsc::UnboundedSender<Message>,
    backend: Arc<dyn Backend>,
    /// The locks that owners of reentrant locks hold or wait for.
    pub(crate) owned: Mutex<HashMap<(LockName, String), Owned>>,
}

/// Builds a client of locks. See [`Locks::over`].
#[derive(Debug)]
#[must_use = "nothing happens before `start`"]
pub struct LocksBuilder {
    backend: Arc<dyn Backend>,
    guarantee: Guarantee,
    label: String,
    lease: Duration,
    hold_max: Option<Duration>,
}

impl Locks {
    /// Begins a client of a backend's locks, with settings that can be changed before it starts.
    pub fn over(backend: impl Backend) -> LocksBuilder {
        LocksBuilder {
            backend: Arc::new(backend),
            guarantee: Guarantee::Correctness,
            label: format!("process {}", std::process::id()),
            lease: Duration::from_secs(30),
            hold_max: None,
        }
    }

    /// Waits for a lock for as long as it takes. The waiter that has waited longest gets it first.
    /// A future that is dropped gives its place up and leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] if the backend has failed for as long as a lease lasts, and for
    /// ten seconds at least. [`LockError::Refused`] or [`LockError::Denied`] if a repetition would
    /// not help. [`LockError::Name`].
    pub async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, WaitPolicy::Forever).await
    }

    /// Takes a lock that is free and has no waiter. Does not wait.
    ///
    /// # Errors
    /// [`LockError::Busy`], which names the holder, and the errors of [`lock`](Self::lock). A
    /// request that fails is not repeated.
    pub async fn try_lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, WaitPolicy::NoWait).await
    }

    /// Waits for a lock for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], which names the holder. [`LockError::Unavailable`] if the last
    /// answer was a failure. The errors of [`lock`](Self::lock).
    pub async fn lock_timeout(&self, name: &str, limit: Duration) -> Result<Guard, LockError> {
        let limit = Moment::now() + limit;
        self.acquire(LockName::new(name)?, WaitPolicy::Until(limit)).await
    }

    /// Waits for a lock in shared mode, as a reader: beside other readers, and never beside a
    /// [`lock`](Self::lock), which is a writer's. The waiter that has waited longest is next, so
    /// readers that come later do not keep a writer waiting.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock). [`LockError::Refused`] on a backend without a shared
    /// mode, or if the lock is in use as a [`semaphore`](Self::semaphore).
    pub async fn lock_shared(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire_mode(LockName::new(name)?, LockMode::READ, WaitPolicy::Forever).await
    }

    /// Takes a lock in shared mode if that is possible at once.
    ///
    /// # Errors
    /// [`LockError::Busy`], and the errors of [`lock_shared`](Self::lock_shared).
    pub async fn try_lock_shared(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire_mode(LockName::new(name)?, LockMode::READ, WaitPolicy::NoWait).await
    }

    /// Waits for a lock in shared mode for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], and the errors of [`lock_shared`](Self::lock_shared).
    pub async fn lock_shared_timeout(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Guard, LockError> {
        let limit = Moment::now() + limit;
        self.acquire_mode(LockName::new(name)?, LockMode::READ, WaitPolicy::Until(limit)).await
    }

    /// Returns a semaphore: a number of permits under one name. All users of the name must give the
    /// same number. While a permit is held, another number is refused.
    ///
    /// # Errors
    /// [`LockError::Name`]. [`LockError::Settings`] for no permit at all.
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<Semaphore, LockError> {
        Semaphore::new(self.clone(), LockName::new(name)?, permits)
    }

    /// Waits for several locks, and holds all of them in the end or none. They are taken in the
    /// order of their names, whatever the order here, so that two callers that want the same locks
    /// never wait for each other. A future that is dropped releases all.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock), and then nothing is held. [`LockError::Lost`] if one
    /// lock was lost while others were waited for.
    pub async fn lock_all(&self, names: &[&str]) -> Result<Guards, LockError> {
        Guards::acquire(self, names, WaitPolicy::Forever).await
    }

    /// Takes several locks if all are free.
    ///
    /// # Errors
    /// [`LockError::Busy`] with the first lock that is not free, and the errors of
    /// [`lock_all`](Self::lock_all).
    pub async fn try_lock_all(&self, names: &[&str]) -> Result<Guards, LockError> {
        Guards::acquire(self, names, WaitPolicy::NoWait).await
    }

    /// Waits for several locks for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] with the lock that was waited for, and the errors of
    /// [`lock_all`](Self::lock_all).
    pub async fn lock_all_timeout(
        &self,
        names: &[&str],
        limit: Duration,
    ) -> Result<Guards, LockError> {
        Guards::acquire(self, names, WaitPolicy::Until(Moment::now() + limit)).await
    }

    /// Runs work under a lock, and stops the work if the lock is lost: the future of the work is
    /// then dropped at the await where it stands.
    ///
    /// ```
    /// use handfast_locks::{LockError, Locks, MemoryLocks};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let locks = Locks::over(MemoryLocks::new()).start()?;
    /// let fencing_token = locks.run("orders/42", async |guard| guard.fencing_token()).await?;
    /// assert_eq!(fencing_token.number(), 1);
    ///
    /// // In a task of its own.
    /// let task = tokio::spawn(async move {
    ///     locks.run("orders/42", async |guard| tokio::task::yield_now().await).await
    /// });
    /// task.await.unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock). [`LockError::Lost`] if the lock was lost before the work
    /// had ended.
    pub async fn run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name).await?;
        run_under(guard, work).await
    }

    /// Returns the same locks for an owner that may acquire its own locks again: a job, a request,
    /// an XID. The owner is recognized by name, not by thread or task, and only within this client:
    /// two processes never share an acquisition.
    #[must_use]
    pub fn reentrant(&self, owner: impl Into<String>) -> crate::reentrant::ReentrantLocks {
        crate::reentrant::ReentrantLocks::new(Arc::clone(&self.handle), owner.into())
    }

    /// Waits until the backend has released everything that was dropped. Call it before the runtime
    /// ends, so that no other process has to wait for leases to end.
    ///
    /// # Errors
    /// [`LockError::Ended`] if the runtime of the locks has ended.
    pub async fn settle(&self) -> Result<(), LockError> {
        let (settled, wait) = oneshot::channel();
        self.handle.send(Message::Settle(settled))?;
        wait.await.map_err(|_| LockError::Ended)
    }

    /// Returns what the backend's locks guarantee.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        self.handle.backend.guarantee()
    }

    async fn acquire(&self, name: LockName, wait: WaitPolicy) -> Result<Guard, LockError> {
        self.acquire_mode(name, LockMode::Exclusive, wait).await
    }

    pub(crate) async fn acquire_mode(
        &self,
        name: LockName,
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<Guard, LockError> {
        self.handle.acquire(name, mode, wait).await.map(Guard::new)
    }
}

/// Runs work under a guard until the work ends or the lock is lost.
pub(crate) async fn run_under<T>(
    guard: Guard,
    work: impl AsyncFnOnce(&Guard) -> T,
) -> Result<T, LockError> {
    let ended = tokio::select! {
        // A loss is reported first: work that ended at the same time was not protected.
        biased;
        reason = guard.lost() => Err(guard.lost_error(reason)),
        done = work(&guard) => Ok(done),
    };
    // Work that ran past the deadline without an await was not protected either.
    guard.check()?;
    ended
}

impl ClientHandle {
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: LockName,
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<Arc<HeldLock>, LockError> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        self.send(Message::Acquire { number, name, mode, wait, reply })?;
        let asking = PendingAcquire { number, handle: self };
        let answer = answer.await.map_err(|_| LockError::Ended)?;
        // The answer has come: from here on the guard releases the lock.
        std::mem::forget(asking);
        answer
    }

    fn send(&self, message: Message) -> Result<(), LockError> {
        self.driver.send(message).map_err(|_| LockError::Ended)
    }
}

/// A request whose caller may be dropped while it waits. If this is dropped, the request is
/// released.
struct PendingAcquire<'l> {
    number: u64,
    handle: &'l ClientHandle,
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        // A driver that has ended holds nothing.
        let _ = self.handle.driver.send(Message::Release { number: self.number, ended: None });
    }
}

impl LocksBuilder {
    /// Sets what the locks must guarantee: [`Guarantee::Correctness`] by default. A client does not
    /// start over a backend that guarantees less.
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// Sets the name under which others see this client hold a lock. The default names the process.
    pub fn label(mut self, label: &str) -> Self {
        self.label = name::label(label);
        self
    }

    /// Sets how long a lock is held without renewal: 30 s by default. It is renewed at a third.
    /// With a longer lease, the lock of a process that died blocks others longer. With a shorter
    /// one, a slow network or a long pause of the backend loses locks.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Limits how long a lock may be held in all. Then it is lost, however often it was renewed.
    /// Without a limit, work that hangs forever in a living process holds its lock forever.
    pub fn hold_max(mut self, limit: Duration) -> Self {
        self.hold_max = Some(limit);
        self
    }

    /// Starts the client, whose two tasks run on the current runtime.
    ///
    /// # Errors
    /// [`LockError::Guarantee`] if the backend guarantees less than was asked for.
    /// [`LockError::Settings`] for a lease below 200 ms or above an hour, for a limit below 200 ms,
    /// or without a runtime.
    pub fn start(self) -> Result<Locks, LockError> {
        let (backend, has, wants) = (self.backend.name(), self.backend.guarantee(), self.guarantee);
        if has < wants {
            return Err(LockError::Guarantee { backend, has, wants });
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            let reason = "a lease lasts from 200 ms to an hour";
            return Err(LockError::Settings { reason });
        }
        if self.hold_max.is_some_and(|limit| limit < LEASE_MIN) {
            let reason = "a lock may be held for 200 ms at least";
            return Err(LockError::Settings { reason });
        }
        let runtime = tokio::runtime::Handle::try_current();
        let reason = "they start within a runtime";
        let runtime = runtime.map_err(|_| LockError::Settings { reason })?;
        let client: u128 = rand::random();
        let Self { label, lease, hold_max, .. } = self;
        let settings = Settings { client, label: label.into(), lease, hold_max };
        let (serving, driver) = Driver::new(settings, Arc::clone(&self.backend));
        runtime.spawn(serving.serve());
        let (last_number, owned) = (AtomicU64::new(0), Mutex::default());
        Ok(Locks {
            handle: Arc::new(ClientHandle {
                client,
                last_number,
                driver,
                backend: self.backend,
                owned,
            }),
        })
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("backend", &self.handle.backend)
            .field("client", &format_args!("{:032x}", self.handle.client))
            .finish_non_exhaustive()
    }
}
