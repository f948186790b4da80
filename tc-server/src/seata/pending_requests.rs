//! The requests of one connection that are not answered, whether submitted to the engine or not.
//!
//! Requests that arrive together are submitted together. No task waits for them: a reply goes to
//! the connection's send queue. BOUNDED: the connection limits its requests in progress.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use handfast_core::{Asker, Command, Correlation, Decision, Xid};
use hashbrown::HashMap;

use super::request::ReplyContext;
use super::send_queue::{ReplyAddress, SendQueue};
use crate::engine::{EngineError, EngineHandle, EngineResult, ReplySink};
use crate::spans::RequestSpan;

/// The requests. Dropping them gives up their places in the lock queues.
#[derive(Debug)]
pub(super) struct PendingRequests {
    engine: EngineHandle,
    replies: Arc<Replies>,
    mailbox: Arc<dyn ReplySink>,
    /// Requests not submitted yet.
    gathered: Vec<(Correlation, Command)>,
    /// The earliest time at which a decision may be overdue.
    next_overdue: Option<Instant>,
}

/// Receives the engine's replies.
#[derive(Debug)]
struct Replies {
    expected: Mutex<HashMap<Correlation, ExpectedReply>>,
    /// The spans of those that stand in a trace: few, or none.
    spans: Mutex<HashMap<Correlation, RequestSpan>>,
    send_queue: SendQueue,
    /// The asker before the first registration, and the one after it.
    unnamed: Asker,
    named: OnceLock<Asker>,
}

/// A reply that is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedReply {
    pub(super) to: ReplyAddress,
    pub(super) context: ReplyContext,
    /// The time until which a decision waits for its phase two, if there is one.
    pub(super) until: Option<Instant>,
}

/// A decision that the caller must answer in another way.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnansweredDecision {
    pub(super) to: ReplyAddress,
    pub(super) xid: Xid,
    pub(super) decision: Decision,
}

impl PendingRequests {
    pub(super) fn new(engine: EngineHandle, send_queue: SendQueue, unnamed: Asker) -> Self {
        let (expected, spans, named) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let replies = Arc::new(Replies { expected, spans, send_queue, unnamed, named });
        let mailbox: Arc<dyn ReplySink> = Arc::<Replies>::clone(&replies);
        Self { engine, replies, mailbox, gathered: Vec::new(), next_overdue: None }
    }

    /// Sets the asker of all requests. Only the first call has an effect.
    pub(super) fn set_asker(&self, asker: Asker) {
        drop(self.replies.named.set(asker));
    }

    /// Returns the number of requests, submitted or not.
    pub(super) fn len(&self) -> usize {
        self.replies.lock().len()
    }

    /// Adds a request, to be submitted with those that arrive with it.
    pub(super) fn ask(
        &mut self,
        mut command: Command,
        span: Option<RequestSpan>,
        expected: ExpectedReply,
    ) {
        let correlation = self.engine.next_correlation();
        // Expected before it is submitted: the engine may answer at once.
        self.replies.lock().insert(correlation, expected);
        if let Some(span) = span {
            command = span.traced(command);
            self.replies.spans().insert(correlation, span);
        }
        self.gathered.push((correlation, command));
        if matches!(expected.context, ReplyContext::End { .. }) {
            // Its time is not earlier than those of the requests before it.
            self.next_overdue = self.next_overdue.or(expected.until);
        }
    }

    /// Submits the gathered requests. Returns the decisions for which the engine has no room: those
    /// cannot be refused.
    pub(super) fn hand_over(&mut self) -> Vec<UnansweredDecision> {
        if self.gathered.is_empty() {
            return Vec::new();
        }
        let gathered = std::mem::take(&mut self.gathered);
        match self.engine.try_submit(&self.mailbox, gathered) {
            Ok(()) => Vec::new(),
            Err((reason, refused)) => {
                refused.into_iter().filter_map(|it| self.refuse(it, reason)).collect()
            }
        }
    }

    fn refuse(&self, correlation: Correlation, reason: EngineError) -> Option<UnansweredDecision> {
        self.replies.end_span(correlation, &Err(reason));
        let expected = self.replies.lock().remove(&correlation)?;
        let ExpectedReply { to, context, .. } = expected;
        match (context, reason) {
            (ReplyContext::End { xid, decision }, EngineError::Busy) => {
                Some(UnansweredDecision { to, xid, decision })
            }
            (_, reason) => {
                self.replies.send_queue.reply(to, context, Err(reason));
                None
            }
        }
    }

    /// Returns when to call [`Self::overdue`].
    pub(super) fn next_overdue(&self) -> Option<Instant> {
        self.next_overdue
    }

    /// Removes and returns the decisions that have waited long enough for their phase two. Gathered
    /// requests must have been submitted: the engine cannot forget a request it does not have.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<UnansweredDecision> {
        debug_assert!(self.gathered.is_empty(), "gathered requests are submitted first");
        if self.next_overdue.is_none_or(|next| now < next) {
            return Vec::new();
        }
        let (mut overdue, mut next_overdue) = (Vec::new(), None);
        let mut expected = self.replies.lock();
        expected.retain(|&correlation, it| match it.context {
            ReplyContext::End { xid, decision } if it.until.is_some_and(|until| until <= now) => {
                overdue.push((correlation, UnansweredDecision { to: it.to, xid, decision }));
                false
            }
            ReplyContext::End { .. } => {
                next_overdue = next_overdue.into_iter().chain(it.until).min();
                true
            }
            ReplyContext::Begin | ReplyContext::Branch { .. } | ReplyContext::Report => true,
        });
        // A reply that comes from here on finds no addressee, so that the request is answered once.
        drop(expected);
        self.next_overdue = next_overdue;
        // Sorted into the order of arrival: the order of the hash map is arbitrary.
        overdue.sort_unstable_by_key(|&(correlation, _)| correlation);
        for &(correlation, _) in &overdue {
            // It is decided, and what it decided is carried out without it.
            if let Some(span) = self.replies.spans().remove(&correlation) {
                span.end(None, None);
            }
        }
        self.engine.forget(overdue.iter().map(|&(correlation, _)| correlation));
        overdue.into_iter().map(|(_, ending)| ending).collect()
    }
}

impl Drop for PendingRequests {
    fn drop(&mut self) {
        let expected = std::mem::take(&mut *self.replies.lock());
        let mut abandoned: Vec<Correlation> = expected.into_keys().collect();
        // Sorted into the order of arrival, since the order of the hash map is arbitrary: which
        // place is given up first decides which waiter is next.
        abandoned.sort_unstable();
        self.engine.forget(abandoned);
    }
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, HashMap<Correlation, ExpectedReply>> {
        self.expected.lock().expect("no holder of the replies' lock panics")
    }

    fn spans(&self) -> MutexGuard<'_, HashMap<Correlation, RequestSpan>> {
        self.spans.lock().expect("no holder of the spans' lock panics")
    }

    fn end_span(&self, correlation: Correlation, answered: &EngineResult) {
        let span = self.spans().remove(&correlation);
        if let Some(span) = span {
            span.end_with(answered);
        }
    }
}

impl ReplySink for Replies {
    fn put(&self, correlation: Correlation, answered: EngineResult) {
        self.end_span(correlation, &answered);
        let expected = self.lock().remove(&correlation);
        if let Some(ExpectedReply { to, context, .. }) = expected {
            self.send_queue.reply(to, context, answered);
        }
    }

    /// Does nothing: the send queue has already woken its reader.
    fn flush(&self) {}

    fn asker(&self) -> Option<&Asker> {
        Some(self.named.get().unwrap_or(&self.unnamed))
    }
}
