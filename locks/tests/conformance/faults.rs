//! Backends that lose, double and refuse messages, over real ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, BackendError, Guarantee, LockRef, ReleaseRequest,
    ReleaseResponse, WakeUp,
};
use tokio::sync::{mpsc, watch};

/// A backend with faults in its messages.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) backend: Arc<dyn Backend>,
    /// Calls so far.
    pub(crate) calls: AtomicUsize,
    /// The acquisitions that the backend has answered, one entry for each answer.
    pub(crate) answered: watch::Sender<Vec<LockRef>>,
    /// The number of renewals that were sent.
    pub(crate) renewals: watch::Sender<usize>,
    /// The reply of this call is lost, counted from 0.
    pub(crate) reply_lost: Option<usize>,
    pub(crate) is_doubled: bool,
    pub(crate) is_deaf: bool,
    /// No message gets through any more.
    pub(crate) is_cut: AtomicBool,
}

impl Faulty {
    pub(crate) fn over(backend: &Arc<dyn Backend>) -> Self {
        Self {
            backend: Arc::clone(backend),
            calls: AtomicUsize::new(0),
            answered: watch::Sender::new(Vec::new()),
            renewals: watch::Sender::new(0),
            reply_lost: None,
            is_doubled: false,
            is_deaf: false,
            is_cut: AtomicBool::new(false),
        }
    }

    /// Counts a call that gets through, and returns its number.
    fn enter(&self) -> Result<usize, BackendError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(BackendError::unanswered());
        }
        Ok(self.calls.fetch_add(1, Ordering::SeqCst))
    }

    /// Returns the answer as the caller gets it.
    fn exit<T>(&self, number: usize, answer: Result<T, BackendError>) -> Result<T, BackendError> {
        if self.reply_lost == Some(number) { Err(BackendError::unanswered()) } else { answer }
    }
}

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn guarantee(&self) -> Guarantee {
        self.backend.guarantee()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        let number = self.enter()?;
        if self.is_doubled {
            let _ = self.backend.acquire(request).await;
        }
        let answer = self.backend.acquire(request).await;
        if answer.is_ok() {
            let lock_ref = LockRef { name: request.name.clone(), id: request.id };
            self.answered.send_modify(|answered| answered.push(lock_ref));
        }
        self.exit(number, answer)
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        self.renewals.send_modify(|renewals| *renewals += 1);
        let number = self.enter()?;
        if self.is_doubled {
            let _ = self.backend.renew(lock_refs, lease).await;
        }
        self.exit(number, self.backend.renew(lock_refs, lease).await)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        let number = self.enter()?;
        let answer = self.backend.release(request).await;
        if self.is_doubled {
            // The first answer counts: the second request finds nothing to free.
            let _ = self.backend.release(request).await;
        }
        self.exit(number, answer)
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        if self.is_deaf {
            return std::future::pending().await;
        }
        self.backend.listen(client, wake_ups).await
    }
}
