//! How the rest of the server reaches the engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_core::{Asker, Command, Coordinator, Correlation, Reply, Request};
use tokio::sync::oneshot;

use super::inbox::{EngineTask, Inbox, View};

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
    /// The engine does not lead, or lost its store or the lead while it had the request: whether
    /// the request took effect is unknown until it is sent again.
    #[error("this coordinator does not lead: reconnect, and send the request again")]
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

/// The engine's answer: a reply, or why there is none.
pub type EngineResult = Result<Reply, EngineError>;

/// Takes the replies of many requests, such as those of one connection.
pub trait ReplySink: fmt::Debug + Send + Sync + 'static {
    /// Takes one reply. Runs on the engine's task: must return at once.
    fn put(&self, correlation: Correlation, answered: EngineResult);

    /// Called when all replies of a batch for this sink were put in, to wake its reader once.
    fn flush(&self);

    /// The sender of the requests, if it is known.
    fn asker(&self) -> Option<&Asker> {
        None
    }
}

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum Destination {
    Caller { sender: oneshot::Sender<EngineResult>, asker: Asker },
    ReplySink(Arc<dyn ReplySink>),
}

impl Destination {
    /// The sender of the request.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::Caller { asker, .. } => asker.clone(),
            Self::ReplySink(sink) => sink.asker().cloned().unwrap_or_default(),
        }
    }

    /// Answers with the reason why there will be no reply.
    pub(crate) fn refuse(self, to: Option<Correlation>, reason: EngineError) {
        match (self, to) {
            // The caller may be gone.
            (Self::Caller { sender, .. }, _) => drop(sender.send(Err(reason))),
            (Self::ReplySink(sink), Some(to)) => {
                sink.put(to, Err(reason));
                sink.flush();
            }
            (Self::ReplySink(_), None) => {}
        }
    }
}

/// Sends requests to the engine. Cheap to clone.
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

    /// Asks and waits for the reply. The decision is durable when the reply comes (DURABLE-FIRST).
    /// A dropped future gives up the request's place in the lock queues.
    ///
    /// # Errors
    ///
    /// Says why there is no reply; a refusal is not an error but [`Reply::Rejected`].
    pub async fn call(&self, command: Command) -> EngineResult {
        self.call_of(Asker::default(), command).await
    }

    /// Asks as [`EngineHandle::call`] for a sender that is kept to its share of what is limited.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::call`].
    pub async fn call_of(&self, asker: Asker, command: Command) -> EngineResult {
        let correlation = self.next_correlation();
        let (sender, receiver) = oneshot::channel();
        let work = EngineTask::Request {
            request: Request { reply_to: Some(correlation), command },
            destination: Some(Destination::Caller { sender, asker }),
        };
        self.shared.inbox.submit(vec![work]).map_err(|(reason, _)| reason)?;
        // From here on the request may be in a queue: a dropped future gives up its place.
        let mut waiting = Waiting { inbox: &self.shared.inbox, correlation: Some(correlation) };
        let answered = receiver.await;
        waiting.correlation = None;
        // The engine has ended with the request, which may have taken effect or not.
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
        self.look(look, EngineTask::View).await
    }

    /// As [`EngineHandle::view`], for views that go through many records: clients' requests come
    /// first, and scans together get a small share of the engine's time. One scan must examine a
    /// bounded number of records, and a caller has one at a time.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::view`].
    pub async fn scan<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        self.look(look, EngineTask::Scan).await
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
        work: fn(View) -> EngineTask,
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

    /// Asks many things at once. Every reply goes to the sink under the request's correlation, and
    /// so does the error if the engine is busy.
    pub fn submit(&self, sink: &Arc<dyn ReplySink>, requests: Vec<(Correlation, Command)>) {
        if let Err((reason, refused)) = self.try_submit(sink, requests) {
            refused.into_iter().for_each(|to| sink.put(to, Err(reason)));
            sink.flush();
        }
    }

    /// Asks as [`EngineHandle::submit`], but sends the sink nothing about requests that are not
    /// taken in.
    ///
    /// # Errors
    ///
    /// Says why, and which requests are not taken in.
    pub fn try_submit(
        &self,
        sink: &Arc<dyn ReplySink>,
        requests: Vec<(Correlation, Command)>,
    ) -> Result<(), (EngineError, Vec<Correlation>)> {
        let work = requests.into_iter().map(|(correlation, command)| EngineTask::Request {
            request: Request { reply_to: Some(correlation), command },
            destination: Some(Destination::ReplySink(Arc::clone(sink))),
        });
        let submitted = self.shared.inbox.submit(work.collect());
        submitted.map_err(|(reason, refused)| {
            (reason, refused.iter().filter_map(EngineTask::reply_to).collect())
        })
    }

    /// Sends the engine a notice about a connection, which has no reply, even past the room in its
    /// queue. An engine that takes nothing in has no clients to remember.
    pub(crate) fn notify_unbounded(&self, command: Command) {
        let _ = self.shared.inbox.submit_unbounded(vec![command]);
    }

    /// Gives up requests whose senders do not wait any more.
    pub fn forget(&self, waiting: impl IntoIterator<Item = Correlation>) {
        self.shared.inbox.forget(waiting);
    }

    /// Sends the engine requests that expect no reply, and waits for room in its queue.
    ///
    /// # Errors
    ///
    /// When the engine has stopped or is stopping. Their sender sends them again to the next leader
    /// (EFFECTS-REPEAT).
    pub async fn notify(&self, whats: Vec<Command>) -> Result<(), EngineError> {
        let mut work: Vec<EngineTask> = whats.into_iter().map(EngineTask::one_way).collect();
        loop {
            match self.shared.inbox.submit(work) {
                Ok(()) => return Ok(()),
                Err((EngineError::Busy, refused)) => work = refused,
                Err((reason, _)) => return Err(reason),
            }
            self.room().await;
        }
    }

    /// Waits for room in the engine's queue, and returns a permit to send requests at once. A
    /// sender that has to count what it sends counts only once it has the permit: if it is dropped
    /// while it waits, it has counted nothing.
    pub async fn reserve(&self) -> Permit<'_> {
        self.room().await;
        Permit { inbox: &self.shared.inbox }
    }

    /// Waits until the engine's queue has room, or takes nothing in any more. The first of several
    /// waiting senders takes the room.
    pub async fn room(&self) {
        self.shared.inbox.room().await;
    }

    /// Has the engine give up the lead once what it has taken in is durable and answered, so that
    /// another process can lead; if none does soon, it leads again. Does nothing unless it leads.
    /// Requests that still wait for a lock are answered [`EngineError::NotLeading`].
    pub fn hand_over(&self) {
        self.shared.inbox.hand_over();
    }

    /// Takes nothing more in; the engine ends when what it has taken in is durable and answered.
    /// Requests that still wait for a lock are answered [`EngineError::Stopping`].
    pub fn stop(&self) {
        self.shared.inbox.close(EngineError::Stopping);
    }
}

/// Room in the engine's queue, for requests that expect no reply.
#[derive(Debug)]
pub struct Permit<'a> {
    inbox: &'a Inbox,
}

impl Permit<'_> {
    /// Sends the requests, at once.
    ///
    /// # Errors
    ///
    /// As [`EngineHandle::notify`].
    pub fn notify(self, whats: Vec<Command>) -> Result<(), EngineError> {
        self.inbox.submit_unbounded(whats)
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
    use futures::FutureExt;
    use handfast_core::Command;

    use super::*;

    #[tokio::test]
    async fn a_sender_dropped_while_it_waits_has_no_permit() {
        let inbox = Arc::new(Inbox::new(1));
        let handle = EngineHandle::new(Arc::clone(&inbox));
        handle.notify(vec![Command::Tick]).await.unwrap();
        assert!(handle.reserve().now_or_never().is_none(), "there is no room");
        assert_eq!(inbox.try_take(8).len(), 1);
        let permit = handle.reserve().now_or_never().expect("there is room");
        assert_eq!(permit.notify(vec![Command::Tick, Command::Tick]), Ok(()));
        assert_eq!(inbox.try_take(8).len(), 2, "more than there was room for");
    }
}
