//! How the rest of the server reaches the engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_core::{Asker, Coordinator, Correlation, Reply, Request, What};
use tokio::sync::oneshot;

use super::inbox::{Inbox, View, Work};

/// Why the engine did not answer. Unlike a [`Rejection`](handfast_core::Rejection) it says nothing
/// about the request, which may be sent again under the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The queue before the engine is full; the request was not taken in.
    #[error("the coordinator has too many requests waiting: try again shortly")]
    Busy,
    /// The server is shutting down; the request was not taken in, or waited for a lock.
    #[error("the coordinator is shutting down: reconnect, possibly elsewhere")]
    Stopping,
    /// The engine lost its store or its leadership while it had the request: whether the request
    /// took effect is unknown until it is asked again.
    #[error("the coordinator no longer leads: reconnect and send the request again")]
    NotLeading,
}

impl EngineError {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Busy => "HF-TC-BUSY",
            Self::Stopping => "HF-TC-STOPPING",
            Self::NotLeading => "HF-TC-NOT-LEADING",
        }
    }
}

/// What the engine answers: a reply, or why there is none.
pub type Answered = Result<Reply, EngineError>;

/// Takes the replies of many requests, such as those of one connection.
pub trait Mailbox: fmt::Debug + Send + Sync + 'static {
    /// Takes one reply. Runs on the engine's task: must return at once.
    fn put(&self, correlation: Correlation, answered: Answered);

    /// All replies of a batch that are for this mailbox are in: time to wake its reader, once.
    fn flush(&self);

    /// Whose it is, if that is known.
    fn asker(&self) -> Option<&Asker> {
        None
    }
}

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum Destination {
    Caller { sender: oneshot::Sender<Answered>, asker: Asker },
    Mailbox(Arc<dyn Mailbox>),
}

impl Destination {
    /// Who asks.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::Caller { asker, .. } => asker.clone(),
            Self::Mailbox(mailbox) => mailbox.asker().cloned().unwrap_or_default(),
        }
    }

    /// Says why there will be no reply.
    pub(crate) fn refuse(self, to: Option<Correlation>, reason: EngineError) {
        match (self, to) {
            // The caller may have gone away.
            (Self::Caller { sender, .. }, _) => drop(sender.send(Err(reason))),
            (Self::Mailbox(mailbox), Some(to)) => {
                mailbox.put(to, Err(reason));
                mailbox.flush();
            }
            (Self::Mailbox(_), None) => {}
        }
    }
}

/// The door to the engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inbox: Arc<Inbox>,
    correlation_last: AtomicU64,
}

impl EngineHandle {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { shared: Arc::new(Shared { inbox, correlation_last: AtomicU64::new(0) }) }
    }

    /// Asks and waits for the reply, which is durable when it comes (DURABLE-FIRST). A dropped
    /// future gives up the request's place in the lock queues.
    ///
    /// # Errors
    ///
    /// Says why there is no reply; a refusal is not an error but [`Reply::Rejected`].
    pub async fn call(&self, what: What) -> Answered {
        self.call_of(Asker::default(), what).await
    }

    /// As [`EngineHandle::call`], of somebody who is kept to a share of what is limited.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::call`].
    pub async fn call_of(&self, asker: Asker, what: What) -> Answered {
        let correlation = self.next_correlation();
        let (sender, receiver) = oneshot::channel();
        let work = Work::Request {
            request: Request { reply_to: Some(correlation), what },
            destination: Some(Destination::Caller { sender, asker }),
        };
        self.shared.inbox.submit(vec![work]).map_err(|(reason, _)| reason)?;
        let mut waiting = Waiting { inbox: &self.shared.inbox, correlation: Some(correlation) };
        let answered = receiver.await;
        waiting.correlation = None;
        answered.unwrap_or(Err(EngineError::NotLeading))
    }

    /// Looks at the coordinator. The result leaves after everything decided before is durable, so
    /// it never shows what a crash could undo.
    ///
    /// # Errors
    ///
    /// Says why the coordinator could not be looked at.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        self.look(look, Work::View).await
    }

    /// As [`EngineHandle::view`], for looks that go through many records: clients' requests come
    /// first, and scans together get a small share of the engine's time. One scan must look at a
    /// bounded number of records, and a caller has one at a time.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::view`].
    pub async fn scan<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        self.look(look, Work::Scan).await
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
        work: fn(View) -> Work,
    ) -> Result<T, EngineError> {
        let (sender, receiver) = oneshot::channel();
        let look = work(Box::new(move |coordinator| {
            let seen = look(coordinator);
            // A caller that went away meanwhile has no use for the result.
            Box::new(move || drop(sender.send(seen)))
        }));
        self.shared.inbox.submit(vec![look]).map_err(|(reason, _)| reason)?;
        receiver.await.map_err(|_| EngineError::NotLeading)
    }

    /// A correlation that no other request has.
    #[must_use]
    pub fn next_correlation(&self) -> Correlation {
        Correlation(self.shared.correlation_last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Asks many things at once; every reply, also the word that the engine is busy, goes to the
    /// mailbox under the request's correlation.
    pub fn submit(&self, mailbox: &Arc<dyn Mailbox>, requests: Vec<(Correlation, What)>) {
        if let Err((reason, refused)) = self.try_submit(mailbox, requests) {
            refused.into_iter().for_each(|to| mailbox.put(to, Err(reason)));
            mailbox.flush();
        }
    }

    /// As [`EngineHandle::submit`], but of what is not taken in nothing is said to the mailbox.
    ///
    /// # Errors
    ///
    /// Says why, and which requests are not taken in.
    pub fn try_submit(
        &self,
        mailbox: &Arc<dyn Mailbox>,
        requests: Vec<(Correlation, What)>,
    ) -> Result<(), (EngineError, Vec<Correlation>)> {
        let work = requests.into_iter().map(|(correlation, what)| Work::Request {
            request: Request { reply_to: Some(correlation), what },
            destination: Some(Destination::Mailbox(Arc::clone(mailbox))),
        });
        let submitted = self.shared.inbox.submit(work.collect());
        submitted.map_err(|(reason, refused)| {
            (reason, refused.iter().filter_map(Work::reply_to).collect())
        })
    }

    /// Tells the engine something of a connection that has no reply, also past the room in its
    /// queue. An engine that lets nothing in has nothing to remember of clients.
    pub(crate) fn tell_at_once(&self, what: What) {
        let _ = self.shared.inbox.let_in(vec![what]);
    }

    /// Gives up requests whose replies nobody waits for any more.
    pub fn forget(&self, waiting: impl IntoIterator<Item = Correlation>) {
        self.shared.inbox.forget(waiting);
    }

    /// Tells the engine something that has no reply, waiting for room in its queue.
    ///
    /// # Errors
    ///
    /// When the engine has stopped or is stopping; what was to be told is then told again by
    /// whoever owes it (EFFECTS-REPEAT).
    pub async fn tell(&self, whats: Vec<What>) -> Result<(), EngineError> {
        let mut work: Vec<Work> = whats.into_iter().map(Work::told).collect();
        loop {
            match self.shared.inbox.submit(work) {
                Ok(()) => return Ok(()),
                Err((EngineError::Busy, refused)) => work = refused,
                Err((reason, _)) => return Err(reason),
            }
            self.room().await;
        }
    }

    /// Waits for room in the engine's queue, and then tells it what `count` makes of answers, at
    /// once: whoever goes away while he waits has counted none.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::tell`].
    pub async fn tell_counted(&self, count: impl FnOnce() -> Vec<What>) -> Result<(), EngineError> {
        self.room().await;
        self.shared.inbox.let_in(count())
    }

    /// Waits until the engine's queue has room, or nothing is let in any more. Whoever comes first
    /// takes the room.
    pub async fn room(&self) {
        self.shared.inbox.room().await;
    }

    /// Lets nothing more in; the engine ends when what it has taken in is durable and answered.
    /// Requests that still wait for a lock are answered [`EngineError::Stopping`].
    pub fn stop(&self) {
        self.shared.inbox.close(EngineError::Stopping);
    }
}

/// Gives up the request when the caller's future is dropped.
struct Waiting<'a> {
    inbox: &'a Inbox,
    correlation: Option<Correlation>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inbox.forget(self.correlation.take());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;
    use handfast_core::What;

    use super::*;

    #[tokio::test]
    async fn who_goes_away_while_the_queue_is_full_has_counted_nothing() {
        let inbox = Arc::new(Inbox::new(1));
        let handle = EngineHandle::new(Arc::clone(&inbox));
        handle.tell(vec![What::Tick]).await.unwrap();
        let counted = Cell::new(0);
        let count = || {
            counted.set(counted.get() + 1);
            vec![What::Tick, What::Tick]
        };
        assert_eq!(handle.tell_counted(count).now_or_never(), None, "there is no room");
        assert_eq!(counted.get(), 0);
        assert_eq!(inbox.take_now(8).len(), 1);
        assert_eq!(handle.tell_counted(count).now_or_never(), Some(Ok(())));
        assert_eq!(
            (counted.get(), inbox.take_now(8).len()),
            (1, 2),
            "more than there was room for"
        );
    }
}
