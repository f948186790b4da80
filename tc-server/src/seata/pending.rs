//! The questions of one connection that are not answered yet, handed over or not.
//!
//! What comes together is handed over together, and no task waits for any of it: a reply goes to
//! the connection's queue. BOUNDED: the connection asks no more than it may have under way.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use handfast_core::{Asker, Correlation, Decision, What, Xid};
use hashbrown::HashMap;

use super::outbox::{Addressee, Outbox};
use super::request::Question;
use crate::engine::{Answered, EngineError, EngineHandle, ReplySink};

/// The questions. Dropping them gives up their places in the lock queues.
#[derive(Debug)]
pub(super) struct Pending {
    engine: EngineHandle,
    replies: Arc<Replies>,
    mailbox: Arc<dyn ReplySink>,
    /// Not handed over yet.
    gathered: Vec<(Correlation, What)>,
    /// Not before this there is a decision that has waited long enough.
    next_overdue: Option<Instant>,
}

/// Where the engine's replies come in.
#[derive(Debug)]
struct Replies {
    expected: Mutex<HashMap<Correlation, Expected>>,
    outbox: Outbox,
    /// Who asks before the first registration, and from then on.
    unnamed: Asker,
    named: OnceLock<Asker>,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    to: Addressee,
    question: Question,
    /// Until when a decision waits for its phase two, if there is an end to that.
    until: Option<Instant>,
}

/// A decision that is to be brought to its answer in another way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) to: Addressee,
    pub(super) xid: Xid,
    pub(super) decision: Decision,
}

impl Pending {
    pub(super) fn new(engine: EngineHandle, outbox: Outbox, unnamed: Asker) -> Self {
        let (expected, named) = (Mutex::default(), OnceLock::new());
        let replies = Arc::new(Replies { expected, outbox, unnamed, named });
        let mailbox: Arc<dyn ReplySink> = Arc::<Replies>::clone(&replies);
        Self { engine, replies, mailbox, gathered: Vec::new(), next_overdue: None }
    }

    /// Says whose the questions are; the first word counts.
    pub(super) fn belongs_to(&self, asker: Asker) {
        drop(self.replies.named.set(asker));
    }

    /// How many there are, handed over or not.
    pub(super) fn len(&self) -> usize {
        self.replies.lock().len()
    }

    /// Notes a question, to be handed over with those that come with it. A decision waits for its
    /// phase two until `until`.
    pub(super) fn ask(
        &mut self,
        what: What,
        to: Addressee,
        question: Question,
        until: Option<Instant>,
    ) {
        let correlation = self.engine.next_correlation();
        self.replies.lock().insert(correlation, Expected { to, question, until });
        self.gathered.push((correlation, what));
        if matches!(question, Question::End { .. }) {
            // It is not earlier than those before it.
            self.next_overdue = self.next_overdue.or(until);
        }
    }

    /// Hands over what has been gathered, and gives back the decisions for which there is no room:
    /// those cannot be refused.
    pub(super) fn hand_over(&mut self) -> Vec<Ending> {
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

    fn refuse(&self, correlation: Correlation, reason: EngineError) -> Option<Ending> {
        let expected = self.replies.lock().remove(&correlation)?;
        let Expected { to, question, .. } = expected;
        match (question, reason) {
            (Question::End { xid, decision }, EngineError::Busy) => {
                Some(Ending { to, xid, decision })
            }
            (_, reason) => {
                self.replies.outbox.reply(to, question, Err(reason));
                None
            }
        }
    }

    /// When to look for decisions that have waited long enough.
    pub(super) fn next_overdue(&self) -> Option<Instant> {
        self.next_overdue
    }

    /// The decisions that have waited long enough for their phase two. They are expected no more.
    /// What has been gathered must have been handed over: the engine cannot forget what it has yet
    /// to be asked.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Ending> {
        debug_assert!(self.gathered.is_empty(), "handed over first");
        if self.next_overdue.is_none_or(|next| now < next) {
            return Vec::new();
        }
        let (mut overdue, mut next_overdue) = (Vec::new(), None);
        let mut expected = self.replies.lock();
        expected.retain(|&correlation, it| match it.question {
            Question::End { xid, decision } if it.until.is_some_and(|until| until <= now) => {
                overdue.push((correlation, Ending { to: it.to, xid, decision }));
                false
            }
            Question::End { .. } => {
                next_overdue = next_overdue.into_iter().chain(it.until).min();
                true
            }
            Question::Begin | Question::Branch { .. } | Question::Report => true,
        });
        drop(expected);
        self.next_overdue = next_overdue;
        // In the order of asking, not of hashing.
        overdue.sort_unstable_by_key(|&(correlation, _)| correlation);
        self.engine.forget(overdue.iter().map(|&(correlation, _)| correlation));
        overdue.into_iter().map(|(_, ending)| ending).collect()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let expected = std::mem::take(&mut *self.replies.lock());
        let mut abandoned: Vec<Correlation> = expected.into_keys().collect();
        // In the order of asking, not of hashing: whose place goes first decides who is next.
        abandoned.sort_unstable();
        self.engine.forget(abandoned);
    }
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, HashMap<Correlation, Expected>> {
        self.expected.lock().expect("no holder of the replies' lock panics")
    }
}

impl ReplySink for Replies {
    fn put(&self, correlation: Correlation, answered: Answered) {
        let expected = self.lock().remove(&correlation);
        if let Some(Expected { to, question, .. }) = expected {
            self.outbox.reply(to, question, answered);
        }
    }

    /// The queue has woken its reader.
    fn flush(&self) {}

    fn asker(&self) -> Option<&Asker> {
        Some(self.named.get().unwrap_or(&self.unnamed))
    }
}
