//! The interface of a backend: four idempotent requests.
//!
//! A backend keeps no state of the client and decides nothing about waiting, renewing or losing a
//! lock: the client's state machine does that. A backend never sees a client's clock. It gets
//! durations, and measures them by its own clock.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::{AcquisitionId, FencingToken, Holder, LockName};

/// How long a waiter keeps its place in the queue without a heartbeat. A waiter that died delays
/// the others by this much.
pub const WAITER_TIMEOUT: Duration = Duration::from_secs(6);
/// How often a waiter repeats its request, which is also its heartbeat.
pub const WAITER_HEARTBEAT: Duration = Duration::from_secs(2);

/// The guarantee of a backend's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Two holders at once are rare and cost work done twice. A fail-over of the backend may lose
    /// the lock and, with it, the order of fencing tokens.
    Efficiency,
    /// If the resource checks fencing tokens, two holders never both take effect: tokens never go
    /// back as long as the backend keeps what it has committed.
    Correctness,
}

/// How much of a lock a holder excludes others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// One holder, alone: a writer, and every plain lock.
    Exclusive,
    /// One of a number of equal permits: a reader, or a holder of a semaphore. No exclusive holder
    /// exists at the same time.
    Shared {
        /// The number of permits. All holders at a time agree on it.
        permits: u32,
    },
}

impl LockMode {
    /// The mode of a reader: a permit out of so many that there is always one left.
    pub const READ: Self = Self::Shared { permits: u32::MAX };
}

/// A request for a lock.
///
/// A backend answers requests with the same id alike: a request that is sent twice finds the lock
/// that the first one took.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The name of the lock.
    pub name: LockName,
    /// The acquisition that this request belongs to.
    pub id: AcquisitionId,
    /// The mode in which to hold it. A request for [`LockMode::Shared`] with the id of an exclusive
    /// holder turns it into a shared one; a request for [`LockMode::Exclusive`] with the id of a
    /// shared holder changes nothing.
    pub mode: LockMode,
    /// How long the lock is held without renewal, from when the backend grants it.
    pub lease: Duration,
    /// The client's name, for messages to others.
    pub label: Arc<str>,
    /// Whether to join the queue if the lock is not free.
    pub queue: QueueMode,
}

/// Says whether a request waits for a lock that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMode {
    /// It leaves nothing behind.
    NoWait,
    /// It joins the queue.
    Join,
    /// It is in the queue already, and is a heartbeat of its waiter.
    KeepPlace,
}

/// The response to an [`AcquireRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireResponse {
    /// The lock is held.
    Granted {
        /// Larger than the token of every earlier holder. Shared holders at the same time have the
        /// same token.
        fencing_token: FencingToken,
        /// The lease counts from this time, at which the lock was certainly not granted yet. If
        /// none, it counts from when this request was handed to the backend.
        since: Option<Moment>,
    },
    /// The lock is not held yet.
    Busy {
        /// The holder. None if the lock is free and another waiter is to have it first.
        holder: Option<Holder>,
        /// When to repeat the request if no wake-up comes.
        retry_after: Duration,
    },
}

impl AcquireResponse {
    /// Makes the response of a lock that was granted by the very request that is answered.
    #[must_use]
    pub const fn granted(fencing_token: FencingToken) -> Self {
        Self::Granted { fencing_token, since: None }
    }
}

/// A lock and the acquisition by which the client believes to hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRef {
    /// The name of the lock.
    pub name: LockName,
    /// The acquisition.
    pub id: AcquisitionId,
}

/// A request to end an acquisition, in whatever state it is: held, queued, or never heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The lock and the acquisition.
    pub lock_ref: LockRef,
    /// Whether the backend must refuse this id from here on: an earlier request with it went
    /// unanswered and may still arrive, after this one.
    pub refuse_late_requests: bool,
    /// Whether the lock was taken exclusively and without waiting, so that probably no waiter is
    /// queued behind it. This is a hint for the shorter way. It may be wrong, and a backend may
    /// ignore it.
    pub is_uncontended: bool,
}

/// The response to a [`ReleaseRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseResponse {
    /// The lock was held, and is free or goes to the next waiter.
    Released,
    /// The lock was not held by this acquisition. Its holder was not touched.
    NotHeld {
        /// The holder.
        current: Option<Holder>,
    },
}

/// A signal that repeating a request is worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// For one waiter.
    One(AcquisitionId),
    /// For all waiters of the client: signals may have been missed.
    All,
}

/// A store of locks.
///
/// Applications use the backends of this crate through [`Locks`](crate::Locks). Implement this
/// trait to keep locks elsewhere; every request must be idempotent.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the backend, for messages and metrics.
    fn name(&self) -> &'static str;

    /// Returns what the backend's locks guarantee.
    fn guarantee(&self) -> Guarantee;

    /// Returns how long [`acquire`](Self::acquire) and [`release`](Self::release) take at most, if
    /// the backend itself fails them then. Otherwise, and where it would wait for less, the client
    /// times each request out.
    fn request_timeout(&self) -> Option<Duration> {
        None
    }

    /// Requests a lock, once.
    ///
    /// A free lock goes to the waiter that has waited longest, whichever mode later requests are
    /// for, so that readers never keep a writer waiting forever.
    ///
    /// # Errors
    /// If it is unknown whether the lock was granted. A lasting error if the backend has no shared
    /// mode, or if others hold permits of another number.
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError>;

    /// Renews leases, all in one go, and returns for each whether it is still held. A renewal never
    /// takes a lock again that was lost.
    ///
    /// # Errors
    /// If it is unknown which leases were renewed.
    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError>;

    /// Ends an acquisition: frees the lock, leaves the queue, and wakes the next waiter.
    ///
    /// # Errors
    /// If it is unknown whether the acquisition was ended.
    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError>;

    /// Forwards wake-ups for a client's waiters until the connection fails. A backend without
    /// wake-ups never returns.
    ///
    /// # Errors
    /// If the connection failed. Signals may be missed until this is called again.
    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError>;
}

/// Lets a program choose its backend at run time, as an `Arc<dyn Backend>`.
#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn guarantee(&self) -> Guarantee {
        (**self).guarantee()
    }

    fn request_timeout(&self) -> Option<Duration> {
        (**self).request_timeout()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        (**self).acquire(request).await
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        (**self).renew(lock_refs, lease).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        (**self).release(request).await
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        (**self).listen(client, wake_ups).await
    }
}
