//! What applications use: locks by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, Grade, Share};
use crate::clock::Moment;
use crate::error::LockError;
use crate::guard::{Guard, Held};
use crate::machine::{Patience, Settings};
use crate::name::{self, LockName};
use crate::reentrant::Owned;
use crate::semaphore::Semaphore;
use crate::several::Guards;
use crate::shell::{Message, Shell};

/// The shortest lease: what is left of a shorter one between renewals is eaten by the network.
const LEASE_MIN: Duration = Duration::from_millis(200);
/// The longest: a holder that died blocks the others this long.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(3600);

/// Locks over one backend. Clones are the same client.
///
/// ```
/// use handfast_locks::{LockError, Locks, Memory};
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
    link: Arc<Link>,
}

/// The way to the shell.
pub(crate) struct Link {
    client: u128,
    last_number: AtomicU64,
    shell: mpsc::UnboundedSender<Message>,
    backend: Arc<dyn Backend>,
    /// What owners of reentrant locks hold or ask for.
    pub(crate) owned: Mutex<HashMap<(LockName, String), Owned>>,
}

/// Settings of locks over one backend, before they start.
#[derive(Debug)]
#[must_use = "nothing happens before `start`"]
pub struct NewLocks {
    backend: Arc<dyn Backend>,
    grade: Grade,
    label: String,
    lease: Duration,
    hold_max: Option<Duration>,
}

impl Locks {
    /// Locks over a backend, to be set up further.
    pub fn over(backend: impl Backend) -> NewLocks {
        NewLocks {
            backend: Arc::new(backend),
            grade: Grade::Correctness,
            label: format!("process {}", std::process::id()),
            lease: Duration::from_secs(30),
            hold_max: None,
        }
    }

    /// Waits for a lock for as long as it takes. Whoever waits longest gets it first. Dropping the
    /// future gives the place up and leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] when the backend has failed for as long as a lease lasts and
    /// for ten seconds at least, [`LockError::Refused`] and [`LockError::Denied`] when asking it
    /// again would not help, [`LockError::Name`].
    pub async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, Patience::Endless).await
    }

    /// Takes a lock that is free, and that nobody waits for; does not wait.
    ///
    /// # Errors
    /// [`LockError::Busy`], which names the holder; and those of [`lock`](Self::lock), without any
    /// repetition.
    pub async fn try_lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(LockName::new(name)?, Patience::None).await
    }

    /// Waits for a lock for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], which names the holder; [`LockError::Unavailable`] if the last
    /// answer was a failure; and those of [`lock`](Self::lock).
    pub async fn lock_timeout(&self, name: &str, limit: Duration) -> Result<Guard, LockError> {
        let limit = Moment::now() + limit;
        self.acquire(LockName::new(name)?, Patience::Until(limit)).await
    }

    /// Waits for a share of a lock: beside others who have one, and never beside a
    /// [`lock`](Self::lock), which is the writer's. Whoever waits longest gets in first, so readers
    /// who come later do not keep a writer waiting.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock); [`LockError::Refused`] on a backend without shares, or if the
    /// lock is in use as a [`semaphore`](Self::semaphore).
    pub async fn lock_shared(&self, name: &str) -> Result<Guard, LockError> {
        self.share(LockName::new(name)?, Share::READ, Patience::Endless).await
    }

    /// Takes a share of a lock if that is possible at once.
    ///
    /// # Errors
    /// [`LockError::Busy`], and those of [`lock_shared`](Self::lock_shared).
    pub async fn try_lock_shared(&self, name: &str) -> Result<Guard, LockError> {
        self.share(LockName::new(name)?, Share::READ, Patience::None).await
    }

    /// Waits for a share of a lock for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], and those of [`lock_shared`](Self::lock_shared).
    pub async fn lock_shared_timeout(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Guard, LockError> {
        let limit = Moment::now() + limit;
        self.share(LockName::new(name)?, Share::READ, Patience::Until(limit)).await
    }

    /// So many permits by one name. All who use them must give the same number: as long as somebody
    /// holds one, another number is refused.
    ///
    /// # Errors
    /// [`LockError::Name`]; [`LockError::Settings`] for no permit at all.
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<Semaphore, LockError> {
        Semaphore::new(self.clone(), LockName::new(name)?, permits)
    }

    /// Waits for several locks, and has all of them in the end or none. They are taken in the order
    /// of their names, whatever the order here, so that two who want the same ones never wait for
    /// each other. Dropping the future lets all go.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and then nothing is held; [`LockError::Lost`] if one was lost
    /// while others were waited for.
    pub async fn lock_all(&self, names: &[&str]) -> Result<Guards, LockError> {
        Guards::acquire(self, names, Patience::Endless).await
    }

    /// Takes several locks if all are free.
    ///
    /// # Errors
    /// [`LockError::Busy`] with the first that is not, and those of [`lock_all`](Self::lock_all).
    pub async fn try_lock_all(&self, names: &[&str]) -> Result<Guards, LockError> {
        Guards::acquire(self, names, Patience::None).await
    }

    /// Waits for several locks for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] with the one that was waited for, and those of
    /// [`lock_all`](Self::lock_all).
    pub async fn lock_all_timeout(
        &self,
        names: &[&str],
        limit: Duration,
    ) -> Result<Guards, LockError> {
        Guards::acquire(self, names, Patience::Until(Moment::now() + limit)).await
    }

    /// Runs work under a lock, and stops it when the lock is lost: the future of the work is then
    /// dropped at the await where it stands.
    ///
    /// ```
    /// use handfast_locks::{LockError, Locks, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let locks = Locks::over(Memory::new()).start()?;
    /// let fence = locks.run("orders/42", async |guard| guard.fence()).await?;
    /// assert_eq!(fence.number(), 1);
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
    /// Those of [`lock`](Self::lock); [`LockError::Lost`] when the lock was lost before the work
    /// had ended.
    pub async fn run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name).await?;
        run_under(guard, work).await
    }

    /// The same locks for an owner who may enter his own again: a job, a request, an XID. It is the
    /// owner who is recognised, not the thread and not the task, and only within this client: two
    /// processes never share an acquisition.
    #[must_use]
    pub fn reentrant(&self, owner: impl Into<String>) -> crate::reentrant::ReentrantLocks {
        crate::reentrant::ReentrantLocks::new(Arc::clone(&self.link), owner.into())
    }

    /// Waits until everything that was dropped has been let go at the backend: before the runtime
    /// ends, so that nobody has to wait for leases to end.
    ///
    /// # Errors
    /// [`LockError::Ended`] if the runtime of the locks has ended.
    pub async fn settle(&self) -> Result<(), LockError> {
        let (settled, wait) = oneshot::channel();
        self.link.send(Message::Settle(settled))?;
        wait.await.map_err(|_| LockError::Ended)
    }

    /// What the backend's locks are good for.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.link.backend.grade()
    }

    async fn acquire(&self, name: LockName, patience: Patience) -> Result<Guard, LockError> {
        self.share(name, Share::All, patience).await
    }

    pub(crate) async fn share(
        &self,
        name: LockName,
        share: Share,
        patience: Patience,
    ) -> Result<Guard, LockError> {
        self.link.acquire(name, share, patience).await.map(Guard::new)
    }
}

/// Runs work under a guard until either ends.
pub(crate) async fn run_under<T>(
    guard: Guard,
    work: impl AsyncFnOnce(&Guard) -> T,
) -> Result<T, LockError> {
    let ended = tokio::select! {
        // What is lost is said first: work that ended at the same time was not protected.
        biased;
        why = guard.lost() => Err(guard.lost_error(why)),
        done = work(&guard) => Ok(done),
    };
    guard.check()?;
    ended
}

impl Link {
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: LockName,
        share: Share,
        patience: Patience,
    ) -> Result<Arc<Held>, LockError> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        self.send(Message::Ask { number, name, share, patience, reply })?;
        let asking = Asking { number, link: self };
        let answer = answer.await.map_err(|_| LockError::Ended)?;
        // Answered: from here on the guard lets go.
        std::mem::forget(asking);
        answer
    }

    fn send(&self, message: Message) -> Result<(), LockError> {
        self.shell.send(message).map_err(|_| LockError::Ended)
    }
}

/// A request that nobody may have waited for to the end. Dropped, it is let go.
struct Asking<'l> {
    number: u64,
    link: &'l Link,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // A shell that has ended has nothing to let go.
        let _ = self.link.shell.send(Message::LetGo { number: self.number, ended: None });
    }
}

impl NewLocks {
    /// What the locks must be good for: [`Grade::Correctness`] unless said otherwise. A backend
    /// that cannot give it does not start.
    pub fn grade(mut self, grade: Grade) -> Self {
        self.grade = grade;
        self
    }

    /// What this client calls itself to others who find a lock held: the process unless said
    /// otherwise.
    pub fn label(mut self, label: &str) -> Self {
        self.label = name::label(label);
        self
    }

    /// How long a lock lives without renewal, 30 s unless said otherwise. It is renewed at a third.
    /// Too long, and the lock of a process that died blocks others; too short, and a slow network
    /// or a long garbage collection of the backend loses locks.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a lock may be held in all: then it is lost, however often it was renewed. Without
    /// a limit, work that hangs for ever in a living process holds its lock for ever.
    pub fn hold_max(mut self, limit: Duration) -> Self {
        self.hold_max = Some(limit);
        self
    }

    /// Starts the client, whose two tasks run on the current runtime.
    ///
    /// # Errors
    /// [`LockError::Grade`] if the backend is not good enough, [`LockError::Settings`] for a lease
    /// below 200 ms or above an hour, a limit below 200 ms, or without a runtime.
    pub fn start(self) -> Result<Locks, LockError> {
        let (backend, has, wants) = (self.backend.name(), self.backend.grade(), self.grade);
        if has < wants {
            return Err(LockError::Grade { backend, has, wants });
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
        let (serving, shell) = Shell::new(settings, Arc::clone(&self.backend));
        runtime.spawn(serving.serve());
        let (last_number, owned) = (AtomicU64::new(0), Mutex::default());
        Ok(Locks {
            link: Arc::new(Link { client, last_number, shell, backend: self.backend, owned }),
        })
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("backend", &self.link.backend)
            .field("client", &format_args!("{:032x}", self.link.client))
            .finish_non_exhaustive()
    }
}
