//! The requests of this process that wait at the coordinator, each until it is answered and its
//! answer is fetched.
//!
//! A waiter sends a heartbeat from time to time. A request whose waiter is silent is given up,
//! whether the lock was granted meanwhile or not.

use std::future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_proto::v1;
use hashbrown::HashMap;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use handfast_locks::{
    AcquisitionId, Holder, LockRef, Moment, ReleaseRequest, WAITER_TIMEOUT, WakeUp,
};

use super::{ANSWERED_WITHIN, Shared};
use crate::error::Error;

/// Every request under way, and every answer that is not fetched.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<HashMap<AcquisitionId, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    answered: Option<TimedResponse>,
    alive_until: Instant,
    /// The request was abandoned and is being released at the coordinator. A waiter that comes back
    /// must wait for that: a request of it before then could be overtaken by the release.
    is_leaving: bool,
    /// The holder that was seen.
    holder: Option<Holder>,
    task: AbortHandle,
}

/// How long a waiter is known to be alive.
enum Liveness {
    Until(Instant),
    Over,
    /// The request is not here any more.
    Elsewhere,
}

/// An answer, and when its request was sent.
#[derive(Debug)]
pub(super) struct TimedResponse {
    pub(super) reply: Result<v1::AcquireLockReply, Error>,
    pub(super) sent_at: Moment,
}

/// A request on its way to its answer.
pub(super) type PendingReply = BoxFuture<'static, TimedResponse>;

impl Shared {
    /// Makes a request whose lease counts from this call, and which is sent when it is first
    /// polled.
    pub(super) fn pending(&self, request: v1::AcquireLockRequest) -> PendingReply {
        let (coordinator, sent_at) = (self.coordinator.clone(), Moment::now());
        async move {
            let reply = coordinator.acquire_lock(request, ANSWERED_WITHIN).await;
            TimedResponse { reply, sent_at }
        }
        .boxed()
    }

    /// Keeps a request that is not answered at once.
    pub(super) fn join(self: &Arc<Self>, lock_ref: LockRef, pending: PendingReply) {
        // Locked until the entry is there, since the task looks for it when it starts.
        let mut waiting = self.queue.lock();
        let (id, alive_until) = (lock_ref.id, Instant::now() + WAITER_TIMEOUT);
        let task = tokio::spawn(Arc::clone(self).wait(lock_ref, pending)).abort_handle();
        let (answered, is_leaving, holder) = (None, false, None);
        waiting.insert(id, Waiting { answered, alive_until, is_leaving, holder, task });
    }

    async fn wait(self: Arc<Self>, lock_ref: LockRef, pending: PendingReply) {
        let id = lock_ref.id;
        tokio::select! {
            answered = pending => {
                self.queue.answer(id, answered);
                self.wake(WakeUp::One(id), id.client);
                self.queue.abandoned(id).await;
            }
            () = self.queue.abandoned(id) => {}
        }
        // Late requests must not be refused, which would bar the id: its waiter may come back.
        if let Err(error) = self
            .release(&ReleaseRequest {
                lock_ref,
                refuse_late_requests: false,
                is_uncontended: false,
            })
            .await
        {
            tracing::warn!(token = %id, %error, "a place in a queue could not be given up");
        }
        self.queue.lock().remove(&id);
    }
}

impl Queue {
    /// Takes a heartbeat of a waiter. Returns whether its request is here.
    pub(super) fn heartbeat(&self, id: AcquisitionId) -> bool {
        let mut waiting = self.lock();
        let Some(known) = waiting.get_mut(&id) else { return false };
        known.alive_until = Instant::now() + WAITER_TIMEOUT;
        true
    }

    fn answer(&self, id: AcquisitionId, answered: TimedResponse) {
        if let Some(known) = self.lock().get_mut(&id) {
            known.answered = Some(answered);
        }
    }

    /// Takes an answer, and with it the request.
    pub(super) fn take(&self, id: AcquisitionId) -> Option<TimedResponse> {
        let mut waiting = self.lock();
        let known = waiting.get_mut(&id).filter(|known| !known.is_leaving)?;
        let answered = known.answered.take()?;
        waiting.remove(&id)?.task.abort();
        Some(answered)
    }

    /// Removes a request. Returns whether it was here.
    pub(super) fn remove(&self, id: AcquisitionId) -> bool {
        let left = self.lock().remove(&id);
        left.as_ref().inspect(|waiting| waiting.task.abort()).is_some()
    }

    /// Sets the holder that was seen.
    pub(super) fn set_holder(&self, id: AcquisitionId, holder: Option<Holder>) {
        if let Some(waiting) = self.lock().get_mut(&id) {
            waiting.holder = holder;
        }
    }

    /// The holder that was seen.
    pub(super) fn holder(&self, id: AcquisitionId) -> Option<Holder> {
        self.lock().get(&id)?.holder.clone()
    }

    /// Returns when the waiter has been silent for too long. If the answer was fetched or the
    /// request removed instead, that call also aborts the task that waits here. Until then nothing
    /// more must be sent: it could release a lock that is held.
    async fn abandoned(&self, id: AcquisitionId) {
        loop {
            match self.liveness_of(id) {
                Liveness::Until(at) => sleep_until(at).await,
                Liveness::Over => return,
                Liveness::Elsewhere => return future::pending().await,
            }
        }
    }

    fn liveness_of(&self, id: AcquisitionId) -> Liveness {
        let mut waiting = self.lock();
        let Some(known) = waiting.get_mut(&id) else { return Liveness::Elsewhere };
        if known.alive_until > Instant::now() {
            return Liveness::Until(known.alive_until);
        }
        known.is_leaving = true;
        Liveness::Over
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AcquisitionId, Waiting>> {
        // No change under the mutex panics half-way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
