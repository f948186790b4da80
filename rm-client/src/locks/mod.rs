//! Locks over the coordinator: the backend that needs no further server, used through the crate
//! `handfast-locks`.
//!
//! The coordinator decides which request is next, and its answer is the grant. Nothing here polls,
//! and nothing here counts time for the coordinator. Renewal, loss and release are the business of
//! `handfast-locks`.

mod grace;
mod queue;
mod wire;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use handfast_proto::v1;
use tokio::sync::mpsc;

use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, BackendError, Guarantee, LockRef, Moment, QueueMode,
    ReleaseRequest, ReleaseResponse, WAITER_HEARTBEAT, WakeUp,
};

use self::grace::{GRACE, Grace};
use self::queue::Queue;
use self::wire::{backend_error, holder_of, id_to_wire, millis, request_of, response_of};
use crate::connect::Handfast;
use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// How long the coordinator keeps a place for a request. Then, or at the coordinator's own limit,
/// the request is sent again and is queued behind those that came meanwhile.
const WAIT: Duration = Duration::from_secs(60 * 60);
/// How long a release may take, and every other request except for a place in a queue: less than
/// the client of locks would wait.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

impl Handfast {
    /// Returns the locks of the coordinator, as a backend for [`handfast_locks::Locks`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use handfast::Handfast;
    /// use handfast_locks::Locks;
    ///
    /// let handfast = Handfast::connect("http://127.0.0.1:7091").await?;
    /// let locks = Locks::over(handfast.locks()).start()?;
    /// let guard = locks.lock("orders/42").await?;
    /// println!("held with fencing token {}", guard.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn locks(&self) -> CoordinatorLocks {
        let shared = Shared {
            coordinator: self.coordinator().clone(),
            queue: Queue::default(),
            grace: Grace::default(),
            listeners: Mutex::default(),
        };
        let terms = Terms { xid: None, delay: Duration::ZERO, hold_max: None };
        CoordinatorLocks { shared: Arc::new(shared), terms }
    }
}

/// The locks of the coordinator. See [`Handfast::locks`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CoordinatorLocks {
    shared: Arc<Shared>,
    terms: Terms,
}

#[derive(Debug)]
struct Shared {
    coordinator: Coordinator,
    queue: Queue,
    grace: Grace,
    listeners: Mutex<Vec<(u128, mpsc::UnboundedSender<WakeUp>)>>,
}

/// The common state of all leases of a backend.
#[derive(Clone, Debug)]
struct Terms {
    xid: Option<Xid>,
    delay: Duration,
    hold_max: Option<Duration>,
}

impl CoordinatorLocks {
    /// Returns the same locks, with leases that a global owns. Such a lease ends when its global is
    /// committed or has been rolled back, and neither with its guard nor by time. While the global
    /// waits for a lock, it stands in the same wait-for graph as for rows: of two globals that wait
    /// for each other, one is refused.
    #[must_use]
    pub fn owned_by(&self, xid: &Xid) -> Self {
        let terms = Terms { xid: Some(xid.clone()), ..self.terms.clone() };
        Self { shared: Arc::clone(&self.shared), terms }
    }

    /// Sets a delay after a lease that ended without a release: the lock is not granted for this
    /// long, so that what its holder had sent can arrive where no fencing token is checked. There
    /// is none by default. The coordinator refuses a delay that is longer than its longest lease,
    /// which is an hour unless configured.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.terms.delay = delay;
        self
    }

    /// Limits how long a lease lasts, however often it is renewed: the coordinator refuses a
    /// renewal that would go beyond. The limit must be at least as long as a lease. There is none
    /// by default.
    #[must_use]
    pub fn hold_max(mut self, limit: Duration) -> Self {
        self.terms.hold_max = Some(limit);
        self
    }

    fn request(&self, request: &AcquireRequest, wait: Duration) -> v1::AcquireLockRequest {
        v1::AcquireLockRequest {
            xid: self.terms.xid.as_ref().map_or_else(String::new, |xid| xid.as_str().to_owned()),
            delay_ms: millis(self.terms.delay),
            hold_ms_max: self.terms.hold_max.map_or(0, millis),
            wait_ms: millis(wait),
            ..request_of(request)
        }
    }
}

impl Shared {
    fn wake(&self, wake: WakeUp, client: u128) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(of, wake_ups)| *of != client || wake_ups.send(wake).is_ok());
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        let ReleaseRequest { lock_ref: LockRef { name, id }, refuse_late_requests, .. } = request;
        let request = v1::ReleaseLockRequest {
            name: name.as_str().to_owned(),
            token: Some(id_to_wire(*id)),
            is_doubtful: *refuse_late_requests,
        };
        let reply = self.coordinator.release_lock(request, ANSWERED_WITHIN).await;
        let reply = reply.map_err(backend_error)?;
        if reply.was_held {
            return Ok(ReleaseResponse::Released);
        }
        Ok(ReleaseResponse::NotHeld { current: reply.current.and_then(holder_of) })
    }
}

#[async_trait]
impl Backend for CoordinatorLocks {
    fn name(&self) -> &'static str {
        "coordinator"
    }

    /// Correctness: the coordinator keeps everything that it has granted, and its fencing tokens
    /// grow across its restarts.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Correctness
    }

    /// The connection times out every request that it carries.
    fn request_timeout(&self) -> Option<Duration> {
        Some(GRACE + ANSWERED_WITHIN)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        if request.queue == QueueMode::NoWait {
            let (request, sent_at) = (self.request(request, Duration::ZERO), Moment::now());
            let reply = self.shared.coordinator.acquire_lock(request, ANSWERED_WITHIN).await;
            return response_of(reply.map_err(backend_error)?, sent_at, true);
        }
        if self.shared.queue.heartbeat(request.id) {
            if let Some(answered) = self.shared.queue.take(request.id) {
                return response_of(
                    answered.reply.map_err(backend_error)?,
                    answered.sent_at,
                    false,
                );
            }
        } else {
            let mut pending = self.shared.pending(self.request(request, WAIT));
            if let Some(answered) = self.shared.grace.wait_for(&mut pending).await {
                return response_of(answered.reply.map_err(backend_error)?, answered.sent_at, true);
            }
            // Before the next await: a caller that is dropped there leaves the request its place in
            // the queue.
            self.shared.join(LockRef { name: request.name.clone(), id: request.id }, pending);
            let find = v1::FindLockRequest { name: request.name.as_str().to_owned() };
            let found = self.shared.coordinator.find_lock(find, ANSWERED_WITHIN).await;
            let found = found.map_err(backend_error)?;
            self.shared.queue.set_holder(request.id, found.holder.and_then(holder_of));
        }
        let holder = self.shared.queue.holder(request.id);
        Ok(AcquireResponse::Busy { holder, retry_after: WAITER_HEARTBEAT })
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let tokens = lock_refs.iter().map(|lock_ref| id_to_wire(lock_ref.id)).collect();
        let request = v1::RenewLocksRequest { tokens, lease_ms: millis(lease) };
        let reply = self.shared.coordinator.renew_locks(request).await;
        Ok(reply.map_err(backend_error)?.held)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        // A request under way may arrive after this one, over another connection.
        let was_queued = self.shared.queue.remove(request.lock_ref.id);
        let refuse_late_requests = request.refuse_late_requests || was_queued;
        self.shared.release(&ReleaseRequest { refuse_late_requests, ..request.clone() }).await
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        {
            let listeners = self.shared.listeners.lock();
            let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|(_, wake_ups)| !wake_ups.is_closed());
            listeners.push((client, wake_ups.clone()));
        }
        // Waiters that were answered before this call are woken too.
        let _ = wake_ups.send(WakeUp::All);
        std::future::pending().await
    }
}
