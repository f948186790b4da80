//! The messages to be written to one connection.
//!
//! The engine and the dispatcher put messages in, the connection's response stream takes them out:
//! everything that is queued leaves in one frame. BOUNDED: a client that does not read is cut off
//! when the queue is full.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use handfast_core::{Asker, Correlation};
use handfast_proto::v1 as wire;
use handfast_proto::v1::server_message::Body;
use hashbrown::HashMap;
use prost::Message;
use tokio::sync::Notify;
use tonic::Status;

use super::refusal;
use super::to_wire;
use crate::dispatch::{CallBatch, CallSink};
use crate::engine::{EngineResult, ReplySink};
use crate::spans::RequestSpan;
use crate::turned_away::{PortName, Why, note};

/// Frames are ended at this size, which leaves room for one more message below what gRPC clients
/// accept by default (4 MiB).
const FRAME_BYTES_ENOUGH: usize = 1 << 20;

/// The outgoing queue of one connection and the requests it waits for.
#[derive(Debug)]
pub(super) struct SendQueue {
    state: Mutex<State>,
    /// Wakes the writer.
    filled: Notify,
    /// Wakes the reader: nothing more can be written.
    ended: Notify,
    queue_max: usize,
    /// Set by the handshake.
    asker: OnceLock<Asker>,
    /// Whether the handshake waits until a leader is known.
    awaits_leader: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The ids that clients gave the requests whose replies are expected.
    expected: HashMap<Correlation, u64>,
    /// The spans of those that stand in a trace: few, or none.
    spans: HashMap<Correlation, RequestSpan>,
    /// How many replies tasks of their own have yet to give.
    promised: usize,
    queue: VecDeque<Outgoing>,
    phase: Phase,
}

impl State {
    fn is_answered(&self) -> bool {
        self.expected.is_empty() && self.promised == 0
    }
}

/// A reply that a task will give. The stream of a client that sends nothing more ends after the
/// reply, or when the task ends without one.
#[derive(Debug)]
pub(super) struct PromisedReply {
    queue: Arc<SendQueue>,
    id: u64,
}

impl PromisedReply {
    pub(super) fn say(self, body: Body) {
        self.queue.say(self.id, body);
    }
}

impl Drop for PromisedReply {
    fn drop(&mut self) {
        self.queue.lock().promised -= 1;
        self.queue.filled.notify_one();
        self.queue.ended.notify_waiters();
    }
}

#[derive(Debug)]
enum Outgoing {
    Reply { id: u64, answered: EngineResult },
    Message { id: u64, body: Body },
    Calls(CallBatch),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Open,
    /// The client sends nothing more: ends when every reply is written.
    Draining,
    /// Ends when what is queued is written.
    Finishing,
    /// The client does not read.
    Overfull,
    /// The response stream has ended.
    Gone,
}

impl SendQueue {
    pub(super) fn new(queue_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            ended: Notify::new(),
            queue_max,
            asker: OnceLock::new(),
            awaits_leader: AtomicBool::new(false),
        }
    }

    /// Sets the sender of the connection's requests, once.
    pub(super) fn belongs_to(&self, asker: Asker) {
        drop(self.asker.set(asker));
    }

    /// Sets whether the connection's handshake waits until a leader is known.
    pub(super) fn set_awaits_leader(&self, awaits: bool) {
        self.awaits_leader.store(awaits, Ordering::SeqCst);
    }

    pub(super) fn awaits_leader(&self) -> bool {
        self.awaits_leader.load(Ordering::SeqCst)
    }

    /// Remembers which request a reply answers.
    pub(super) fn expect(&self, correlation: Correlation, id: u64) {
        self.lock().expected.insert(correlation, id);
    }

    /// Ends this span with the reply.
    pub(super) fn trace(&self, correlation: Correlation, span: RequestSpan) {
        self.lock().spans.insert(correlation, span);
    }

    /// Remembers that a task will reply to the request with this id.
    pub(super) fn promise(self: &Arc<Self>, id: u64) -> PromisedReply {
        self.lock().promised += 1;
        PromisedReply { queue: Arc::clone(self), id }
    }

    /// Queues a message of the connection's own.
    pub(super) fn say(&self, id: u64, body: Body) {
        self.enqueue(&mut self.lock(), Outgoing::Message { id, body });
        self.filled.notify_one();
    }

    pub(super) fn go_away(&self, reason: &str, leader: &wire::NotLeading) {
        let wire::NotLeading { leader, epoch } = leader.clone();
        self.say(0, Body::GoAway(wire::GoAway { reason: reason.to_owned(), leader, epoch }));
    }

    /// Sends the client to the leader, since this server does not lead.
    pub(super) fn leave_to_the_leader(&self, leader: &wire::NotLeading) {
        self.go_away("this coordinator does not lead", leader);
        self.finish();
    }

    /// The client sends nothing more: the stream ends when every reply is written.
    pub(super) fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// The stream ends when what is queued is written.
    pub(super) fn finish(&self) {
        self.advance(Phase::Finishing);
    }

    /// The response stream has ended: nothing is written any more.
    pub(super) fn leave(&self) {
        self.advance(Phase::Gone);
    }

    /// Waits until nothing more can be written.
    pub(super) async fn ended(&self) {
        loop {
            // Created before the check: `notify_waiters` wakes only waiters that exist already.
            let ended = self.ended.notified();
            if self.lock().phase > Phase::Draining {
                return;
            }
            ended.await;
        }
    }

    /// Waits until every reply is put in, or nothing more can be written.
    pub(super) async fn ended_or_answered(&self) {
        loop {
            let ended = self.ended.notified();
            {
                let state = self.lock();
                if state.phase > Phase::Draining || state.is_answered() {
                    return;
                }
            }
            ended.await;
        }
    }

    /// Takes the requests whose replies are still expected.
    pub(super) fn abandon(&self) -> Vec<Correlation> {
        let mut state = self.lock();
        state.spans.clear();
        let expected = std::mem::take(&mut state.expected);
        drop(state);
        let mut abandoned: Vec<Correlation> = expected.into_keys().collect();
        // In the order of arrival, not of hashing: the first place given up decides which waiter is
        // next.
        abandoned.sort_unstable();
        abandoned
    }

    /// Waits for something to write; `None` at the end of the stream.
    pub(super) async fn next_frame(&self) -> Option<Result<wire::ServerFrame, Status>> {
        let messages = self.next(|outgoing| Some(outgoing.into_message())).await?;
        Some(messages.map(|messages| wire::ServerFrame { messages }))
    }

    /// As [`SendQueue::next_frame`], phase-two calls only.
    pub(super) async fn next_calls(&self) -> Option<Result<wire::PhaseTwoFrame, Status>> {
        let calls = self.next(Outgoing::into_call).await?;
        Some(calls.map(|calls| wire::PhaseTwoFrame { calls }))
    }

    async fn next<M: Message>(
        &self,
        into: impl Fn(Outgoing) -> Option<M>,
    ) -> Option<Result<Vec<M>, Status>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                // Whatever the phase, what is queued goes first: a `GoAway` reaches its client.
                if !state.queue.is_empty() {
                    return Some(Ok(taken(&mut state.queue, into)));
                }
                match state.phase {
                    Phase::Open => {}
                    Phase::Draining if !state.is_answered() => {}
                    Phase::Overfull => {
                        state.phase = Phase::Gone;
                        return Some(Err(refusal::status_of_slow_reader(self.queue_max)));
                    }
                    Phase::Draining | Phase::Finishing | Phase::Gone => return None,
                }
            }
            filled.await;
        }
    }

    fn enqueue(&self, state: &mut State, outgoing: Outgoing) {
        if matches!(state.phase, Phase::Gone | Phase::Overfull) {
            return;
        }
        if state.queue.len() < self.queue_max {
            return state.queue.push_back(outgoing);
        }
        let what = format_args!("it does not read: {} messages are queued", self.queue_max);
        note(PortName::Grpc, Why::SlowReader, None, &what);
        // The memory is free at once, and the error is the next thing that the client reads.
        state.queue.clear();
        state.phase = Phase::Overfull;
        self.ended.notify_waiters();
    }

    fn advance(&self, to: Phase) {
        let mut state = self.lock();
        // A phase never goes back: a reader that ends later does not keep a finished stream open.
        state.phase = state.phase.max(to);
        if state.phase == Phase::Gone {
            state.queue.clear();
        }
        drop(state);
        self.filled.notify_one();
        self.ended.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the send queue's lock panics")
    }
}

impl ReplySink for SendQueue {
    fn put(&self, correlation: Correlation, answered: EngineResult) {
        let mut state = self.lock();
        if !state.spans.is_empty()
            && let Some(span) = state.spans.remove(&correlation)
        {
            span.end_with(&answered);
        }
        if let Some(id) = state.expected.remove(&correlation) {
            self.enqueue(&mut state, Outgoing::Reply { id, answered });
        }
    }

    fn flush(&self) {
        self.filled.notify_one();
        self.ended.notify_waiters();
    }

    fn asker(&self) -> Option<&Asker> {
        self.asker.get()
    }
}

impl CallSink for SendQueue {
    fn put(&self, batch: CallBatch) {
        self.enqueue(&mut self.lock(), Outgoing::Calls(batch));
        self.filled.notify_one();
    }
}

/// Messages from the front of the queue, until there are enough bytes for one frame.
fn taken<M: Message>(
    queue: &mut VecDeque<Outgoing>,
    into: impl Fn(Outgoing) -> Option<M>,
) -> Vec<M> {
    let mut messages = Vec::with_capacity(queue.len().min(1_024));
    let mut bytes = 0;
    while bytes < FRAME_BYTES_ENOUGH
        && let Some(outgoing) = queue.pop_front()
    {
        if let Some(message) = into(outgoing) {
            bytes += message.encoded_len();
            messages.push(message);
        }
    }
    messages
}

impl Outgoing {
    fn into_message(self) -> wire::ServerMessage {
        let (id, body) = match self {
            Self::Reply { id, answered } => (id, to_wire::body(answered)),
            Self::Message { id, body } => (id, body),
            Self::Calls(batch) => (0, Body::PhaseTwo(to_wire::phase_two_call(batch))),
        };
        wire::ServerMessage { id, body: Some(body) }
    }

    /// A subscriber is sent nothing but calls.
    fn into_call(self) -> Option<wire::PhaseTwoCall> {
        match self {
            Self::Calls(batch) => Some(to_wire::phase_two_call(batch)),
            Self::Reply { .. } | Self::Message { .. } => None,
        }
    }
}
