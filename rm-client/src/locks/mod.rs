//! Locks over the coordinator: the backend that needs no further server, with the crate
//! `handfast-locks` in front of it.
//!
//! The coordinator decides who is next and tells him: a request that waits is answered by its
//! grant. Nothing here asks again, and nothing here counts time for the coordinator; what the
//! client's side of a lock is (renewal, loss, letting go) is that crate's.

mod grace;
mod queue;
mod wire;

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use handfast_proto::v1;
use tokio::sync::mpsc;

use handfast_locks::{
    Answer, Ask, Backend, BackendError, Grade, Hold, Leave, Left, Moment, Place, WAITER_BEAT, Wake,
};

use self::grace::{GRACE, Grace};
use self::queue::Queue;
use self::wire::{answer_of, backend_error, holder_of, millis, request_of, token_to_wire};
use crate::connect::Handfast;
use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// How long the coordinator keeps a place for a request. Then, or at the coordinator's own limit,
/// the request is sent again and stands behind those who came meanwhile.
const WAIT: Duration = Duration::from_secs(60 * 60);
/// How long the end of an acquisition may take, and all else that is asked of the coordinator and
/// not a place in a queue: less than the client of locks would wait.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

impl Handfast {
    /// Locks over the coordinator, as a backend for [`handfast_locks::Locks`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use handfast::Handfast;
    /// use handfast_locks::Locks;
    ///
    /// let handfast = Handfast::connect("http://127.0.0.1:7091").await?;
    /// let locks = Locks::over(handfast.locks()).start()?;
    /// let guard = locks.lock("orders/42").await?;
    /// println!("held with fence {}", guard.fence());
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

/// Locks over the coordinator. See [`Handfast::locks`]. Cheap to clone.
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
    listeners: Mutex<Vec<(u128, mpsc::UnboundedSender<Wake>)>>,
}

/// What all leases of a backend have in common.
#[derive(Clone, Debug)]
struct Terms {
    xid: Option<Xid>,
    delay: Duration,
    hold_max: Option<Duration>,
}

impl CoordinatorLocks {
    /// The same, with leases that the global owns: each ends when its global is committed or has
    /// been rolled back, and neither with its guard nor by time. While it waits for a lock the
    /// global stands in the same wait-for graph as for rows: of two that wait for each other one
    /// is refused.
    #[must_use]
    pub fn owned_by(&self, xid: &Xid) -> Self {
        let terms = Terms { xid: Some(xid.clone()), ..self.terms.clone() };
        Self { shared: Arc::clone(&self.shared), terms }
    }

    /// After a lease that ended without being released, nobody else gets the lock for so long: time
    /// for what its holder had sent to arrive where no fence is checked. None unless said so. The
    /// coordinator refuses one that is longer than its longest lease, an hour unless configured.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.terms.delay = delay;
        self
    }

    /// No lease lasts longer than this, however often it is renewed: the coordinator refuses a
    /// renewal that would go beyond. A limit of at least the length of a lease; there is none
    /// unless said so.
    #[must_use]
    pub fn hold_max(mut self, limit: Duration) -> Self {
        self.terms.hold_max = Some(limit);
        self
    }

    fn request(&self, ask: &Ask, wait: Duration) -> v1::AcquireLockRequest {
        v1::AcquireLockRequest {
            xid: self.terms.xid.as_ref().map_or_else(String::new, |xid| xid.as_str().to_owned()),
            delay_ms: millis(self.terms.delay),
            hold_ms_max: self.terms.hold_max.map_or(0, millis),
            wait_ms: millis(wait),
            ..request_of(ask)
        }
    }
}

impl Shared {
    fn wake(&self, wake: Wake, client: u128) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(of, wakes)| *of != client || wakes.send(wake).is_ok());
    }

    async fn release(&self, leave: &Leave) -> Result<Left, BackendError> {
        let Leave { hold: Hold { name, token }, is_doubtful, .. } = leave;
        let request = v1::ReleaseLockRequest {
            name: name.as_str().to_owned(),
            token: Some(token_to_wire(*token)),
            is_doubtful: *is_doubtful,
        };
        let reply = self.coordinator.release_lock(request, ANSWERED_WITHIN).await;
        let reply = reply.map_err(backend_error)?;
        if reply.was_held {
            return Ok(Left::Freed);
        }
        Ok(Left::NotHeld { current: reply.current.and_then(holder_of) })
    }
}

#[async_trait]
impl Backend for CoordinatorLocks {
    fn name(&self) -> &'static str {
        "coordinator"
    }

    /// The coordinator keeps what it has told anybody, and its tokens grow over its restarts.
    fn grade(&self) -> Grade {
        Grade::Correctness
    }

    /// The connection sees to the time of every request that it carries.
    fn answers_within(&self) -> Option<Duration> {
        Some(GRACE + ANSWERED_WITHIN)
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        if ask.place == Place::None {
            let (request, sent_at) = (self.request(ask, Duration::ZERO), Moment::now());
            let reply = self.shared.coordinator.acquire_lock(request, ANSWERED_WITHIN).await;
            return answer_of(reply.map_err(backend_error)?, sent_at, true);
        }
        if self.shared.queue.hear_of(ask.token) {
            if let Some(answered) = self.shared.queue.take(ask.token) {
                return answer_of(answered.reply.map_err(backend_error)?, answered.sent_at, false);
            }
        } else {
            let mut asking = self.shared.asking(self.request(ask, WAIT));
            if let Some(answered) = self.shared.grace.give(&mut asking).await {
                return answer_of(answered.reply.map_err(backend_error)?, answered.sent_at, true);
            }
            self.shared.join(Hold { name: ask.name.clone(), token: ask.token }, asking);
            let request = v1::FindLockRequest { name: ask.name.as_str().to_owned() };
            let found = self.shared.coordinator.find_lock(request, ANSWERED_WITHIN).await;
            let found = found.map_err(backend_error)?;
            self.shared.queue.see(ask.token, found.holder.and_then(holder_of));
        }
        let holder = self.shared.queue.seen(ask.token);
        Ok(Answer::Busy { holder, look_again: WAITER_BEAT })
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let tokens = holds.iter().map(|hold| token_to_wire(hold.token)).collect();
        let request = v1::RenewLocksRequest { tokens, lease_ms: millis(lease) };
        let reply = self.shared.coordinator.renew_locks(request).await;
        Ok(reply.map_err(backend_error)?.held)
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        // What is under way may arrive after this request, by another connection.
        let was_queued = self.shared.queue.leave(leave.hold.token);
        let is_doubtful = leave.is_doubtful || was_queued;
        self.shared.release(&Leave { is_doubtful, ..leave.clone() }).await
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        {
            let listeners = self.shared.listeners.lock();
            let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|(_, wakes)| !wakes.is_closed());
            listeners.push((client, wakes.clone()));
        }
        // Whoever was answered before is told too.
        let _ = wakes.send(Wake::All);
        pending().await
    }
}
