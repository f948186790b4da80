//! Backends that lose, double and refuse messages, over real ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{Answer, Ask, Backend, BackendError, Grade, Hold, Leave, Left, Wake};
use tokio::sync::mpsc;

/// What is done to messages.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) backend: Arc<dyn Backend>,
    /// Calls so far.
    pub(crate) calls: AtomicUsize,
    /// Answers so far.
    pub(crate) answers: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    /// The reply of this call is lost, counted from 0.
    pub(crate) reply_lost: Option<usize>,
    pub(crate) is_doubled: bool,
    pub(crate) is_deaf: bool,
    /// Nothing gets through any more.
    pub(crate) is_cut: AtomicBool,
}

impl Faulty {
    pub(crate) fn over(backend: &Arc<dyn Backend>) -> Self {
        Self {
            backend: Arc::clone(backend),
            calls: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            renewals: AtomicUsize::new(0),
            reply_lost: None,
            is_doubled: false,
            is_deaf: false,
            is_cut: AtomicBool::new(false),
        }
    }

    /// Whether a call gets through, and its number.
    fn enter(&self) -> Result<usize, BackendError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(BackendError::unanswered());
        }
        Ok(self.calls.fetch_add(1, Ordering::SeqCst))
    }

    /// What the caller hears of its answer.
    fn exit<T>(&self, number: usize, answer: Result<T, BackendError>) -> Result<T, BackendError> {
        self.answers.fetch_add(1, Ordering::SeqCst);
        if self.reply_lost == Some(number) { Err(BackendError::unanswered()) } else { answer }
    }
}

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn grade(&self) -> Grade {
        self.backend.grade()
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        let number = self.enter()?;
        if self.is_doubled {
            let _ = self.backend.ask(ask).await;
        }
        self.exit(number, self.backend.ask(ask).await)
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        let number = self.enter()?;
        if self.is_doubled {
            let _ = self.backend.renew(holds, lease).await;
        }
        self.exit(number, self.backend.renew(holds, lease).await)
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        let number = self.enter()?;
        let answer = self.backend.leave(leave).await;
        if self.is_doubled {
            // The first answer counts: the second request finds nothing to free.
            let _ = self.backend.leave(leave).await;
        }
        self.exit(number, answer)
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        if self.is_deaf {
            return std::future::pending().await;
        }
        self.backend.listen(client, wakes).await
    }
}
