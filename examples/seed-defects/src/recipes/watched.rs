//! A record of the messages between a client of this project and its backend. A step that must fall
//! between two messages is done here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, BackendError, Guarantee, LockMode, LockName, LockRef,
    QueueMode, ReleaseRequest, ReleaseResponse, WakeUp,
};
use tokio::sync::{Mutex, mpsc, watch};

/// The messages so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MessageCounts {
    pub(crate) asks: u32,
    /// Renewals that the backend has confirmed.
    pub(crate) renewals: u32,
    /// Renewals that failed.
    pub(crate) failures: u32,
}

/// The fault for the next request for a lock.
#[derive(Debug)]
pub(crate) enum Between {
    /// Its answer is held back until this lock is released.
    LeaveFirst(LockRef),
    /// Its answer is lost.
    LoseAnswer,
}

/// A backend whose messages are recorded.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) backend: Arc<dyn Backend>,
    passed: watch::Sender<MessageCounts>,
    between: Mutex<Option<Between>>,
}

impl Watched {
    pub(crate) fn over(backend: Arc<dyn Backend>) -> Self {
        let (passed, between) = (watch::Sender::default(), Mutex::default());
        Self { backend, passed, between }
    }

    /// Prepares what happens to the next request.
    pub(crate) async fn next(&self, between: Between) {
        *self.between.lock().await = Some(between);
    }

    pub(crate) fn passed(&self) -> MessageCounts {
        *self.passed.borrow()
    }

    /// Waits for something to have passed.
    pub(crate) async fn until(&self, is_so: impl FnMut(&MessageCounts) -> bool) {
        // The sender lives in `self`.
        let _ = self.passed.subscribe().wait_for(is_so).await;
    }

    /// Releases a lock behind its holder's back, as an operator would.
    pub(crate) async fn give_away(
        &self,
        lock_ref: LockRef,
    ) -> Result<ReleaseResponse, BackendError> {
        self.backend
            .release(&ReleaseRequest {
                lock_ref,
                refuse_late_requests: false,
                is_uncontended: false,
            })
            .await
    }

    /// Takes a lock without a client that renews it.
    pub(crate) async fn take(
        &self,
        lock_ref: &LockRef,
        lease: Duration,
    ) -> Result<AcquireResponse, BackendError> {
        self.backend.acquire(&acquire(lock_ref, lease)).await
    }
}

/// Makes an acquisition without a client.
pub(crate) fn lock_ref(name: &LockName, client: u128) -> LockRef {
    let id = handfast_locks::AcquisitionId { client, number: 1 };
    LockRef { name: name.clone(), id }
}

fn acquire(lock_ref: &LockRef, lease: Duration) -> AcquireRequest {
    let (name, id) = (lock_ref.name.clone(), lock_ref.id);
    let label = "another client".into();
    AcquireRequest { name, id, mode: LockMode::Exclusive, lease, label, queue: QueueMode::NoWait }
}

#[async_trait]
impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn guarantee(&self) -> Guarantee {
        self.backend.guarantee()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        self.passed.send_modify(|passed| passed.asks += 1);
        let answer = self.backend.acquire(request).await;
        match self.between.lock().await.take() {
            Some(Between::LeaveFirst(lock_ref)) => {
                self.give_away(lock_ref).await?;
                answer
            }
            Some(Between::LoseAnswer) => Err(BackendError::unanswered()),
            None => answer,
        }
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let renewed = self.backend.renew(lock_refs, lease).await;
        self.passed.send_modify(|passed| match &renewed {
            Ok(_) => passed.renewals += 1,
            Err(_) => passed.failures += 1,
        });
        renewed
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        self.backend.release(request).await
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.backend.listen(client, wake_ups).await
    }
}
