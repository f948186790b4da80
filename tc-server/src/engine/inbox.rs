//! The queue of requests that have arrived for the engine and are not decided yet.
//!
//! One lock and at most one wake-up a submission, however many requests it carries; the engine
//! takes everything at once. BOUNDED: requests past the capacity are handed back. Three kinds of
//! notices are queued past it: that the sender of a request is gone, at most one for each request
//! that was queued; requests sent with a permit, at most one message of each connection; and that a
//! connection has come or gone.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use handfast_core::{Command, Coordinator, Correlation, Request};
use tokio::sync::Notify;

use super::handle::{Destination, EngineError};

/// Runs on the coordinator; the answer leaves with the effects of what was decided before it.
pub(crate) type View = Box<dyn FnOnce(&Coordinator) -> ViewReply + Send>;

/// Hands a view's result to its requester.
pub(crate) type ViewReply = Box<dyn FnOnce() + Send>;

/// One thing for the engine to do.
pub(crate) enum EngineTask {
    /// To be decided; the reply, if there is one, goes to the destination.
    Request { request: Request, destination: Option<Destination> },
    /// To be looked up.
    View(View),
    /// To be looked up when the engine has time for it.
    Scan(View),
}

impl EngineTask {
    /// A request that expects no reply.
    pub(crate) fn one_way(command: Command) -> Self {
        Self::Request { request: Request { reply_to: None, command }, destination: None }
    }

    /// The correlation of the reply, if one is expected.
    pub(crate) fn reply_to(&self) -> Option<Correlation> {
        match self {
            Self::Request { request, .. } => request.reply_to,
            Self::View(_) | Self::Scan(_) => None,
        }
    }
}

impl fmt::Debug for EngineTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { request, .. } => request.fmt(f),
            Self::View(_) => f.write_str("View"),
            Self::Scan(_) => f.write_str("Scan"),
        }
    }
}

/// The queue before the engine.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Wakes the engine: there is work, or the inbox is closed.
    arrived: Notify,
    /// Wakes submitters that wait for room.
    room: Notify,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<EngineTask>,
    closed: Option<EngineError>,
    /// Takes nothing in until leadership is gained.
    suspended: bool,
}

impl State {
    fn refuses(&self) -> Option<EngineError> {
        self.closed.or(self.suspended.then_some(EngineError::NotLeading))
    }
}

impl Inbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), room: Notify::new(), capacity }
    }

    /// Queues the work that there is room for, in order, and gives the rest back with the reason.
    pub(crate) fn submit(
        &self,
        work: Vec<EngineTask>,
    ) -> Result<(), (EngineError, Vec<EngineTask>)> {
        let mut state = self.lock();
        if let Some(reason) = state.refuses() {
            return Err((reason, work));
        }
        let room = self.capacity.saturating_sub(state.queue.len());
        let mut work = work.into_iter();
        state.queue.extend(work.by_ref().take(room));
        // The lock is released before the engine is woken, which would only wait for it.
        drop(state);
        self.arrived.notify_one();
        let refused: Vec<EngineTask> = work.collect();
        if refused.is_empty() { Ok(()) } else { Err((EngineError::Busy, refused)) }
    }

    /// Queues requests that expect no reply, even beyond the capacity. Does nothing if the list is
    /// empty.
    pub(crate) fn submit_unbounded(&self, whats: Vec<Command>) -> Result<(), EngineError> {
        if whats.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        if let Some(reason) = state.refuses() {
            return Err(reason);
        }
        state.queue.extend(whats.into_iter().map(EngineTask::one_way));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues notices that these requests are no longer waited for.
    pub(crate) fn forget(&self, waiting: impl IntoIterator<Item = Correlation>) {
        let notices = waiting.into_iter().map(|waiting| Command::Forget { waiting });
        // A closed inbox has no waiting requests left.
        let _ = self.submit_unbounded(notices.collect());
    }

    /// Waits until a submission would find room, or the inbox is closed.
    pub(crate) async fn room(&self) {
        loop {
            // Created before the check, so that room that is freed between the two is noticed.
            let freed = self.room.notified();
            {
                let state = self.lock();
                if state.refuses().is_some() || state.queue.len() < self.capacity {
                    return;
                }
            }
            freed.await;
        }
    }

    /// Waits for work and takes at most `max` of it; `None` when the inbox is empty and takes
    /// nothing in.
    pub(crate) async fn take(&self, max: usize) -> Option<VecDeque<EngineTask>> {
        loop {
            {
                let mut state = self.lock();
                if !state.queue.is_empty() {
                    return Some(self.take_from(&mut state, max));
                }
                if state.refuses().is_some() {
                    return None;
                }
            }
            // A submission since the check has left a permit, with which this returns at once.
            self.arrived.notified().await;
        }
    }

    /// Waits until the inbox is closed. For an engine that takes no work meanwhile.
    pub(crate) async fn closed(&self) {
        while !self.is_closed() {
            self.arrived.notified().await;
        }
    }

    /// Returns whether the inbox is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Takes at most `max` of what is there already.
    pub(crate) fn try_take(&self, max: usize) -> VecDeque<EngineTask> {
        self.take_from(&mut self.lock(), max)
    }

    /// Takes nothing more in; what is queued can still be taken out.
    pub(crate) fn close(&self, reason: EngineError) {
        self.lock().closed.get_or_insert(reason);
        self.arrived.notify_one();
        self.room.notify_waiters();
    }

    /// Takes nothing more in and returns what is queued.
    pub(crate) fn abandon(&self, reason: EngineError) -> VecDeque<EngineTask> {
        let queue = {
            let mut state = self.lock();
            // Under one lock: a request that came in between would never be answered.
            state.closed.get_or_insert(reason);
            std::mem::take(&mut state.queue)
        };
        self.close(reason);
        queue
    }

    /// Takes nothing in until resumed; what is queued can still be taken out.
    pub(crate) fn hand_over(&self) {
        self.lock().suspended = true;
        self.arrived.notify_one();
        self.room.notify_waiters();
    }

    /// Takes nothing in until resumed, and returns what is queued.
    pub(crate) fn suspend(&self) -> VecDeque<EngineTask> {
        let mut state = self.lock();
        state.suspended = true;
        self.room.notify_waiters();
        std::mem::take(&mut state.queue)
    }

    /// Takes requests in again.
    pub(crate) fn resume(&self) {
        self.lock().suspended = false;
    }

    fn take_from(&self, state: &mut State, max: usize) -> VecDeque<EngineTask> {
        let taken = if state.queue.len() <= max {
            std::mem::take(&mut state.queue)
        } else {
            state.queue.drain(..max).collect()
        };
        if !taken.is_empty() {
            self.room.notify_waiters();
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the inbox lock panics")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Regression: a request queued between the last check and the closing was never answered.
    #[test]
    fn nothing_is_queued_between_the_last_take_and_the_closing() {
        for _ in 0..500 {
            let inbox = Arc::new(Inbox::new(10));
            let door = Arc::clone(&inbox);
            let sender =
                thread::spawn(move || while door.submit_unbounded(vec![Command::Tick]).is_ok() {});
            while inbox.lock().queue.is_empty() {
                thread::yield_now();
            }
            inbox.abandon(EngineError::Stopping);
            sender.join().unwrap();
            assert_eq!(inbox.try_take(usize::MAX).len(), 0);
        }
    }
}
