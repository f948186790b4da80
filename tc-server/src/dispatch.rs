//! Phase-two dispatch: carries the core's phase-two calls, and its questions before a commit, to
//! connected processes.
//!
//! [`Queue`] decides which call goes to which process and when, without a clock or a task.
//! [`Dispatcher`] drives it. Both may lose their state at any moment: the core's `owed` rebuilds it
//! (EFFECTS-REPEAT). BOUNDED: there is at most one entry per branch of a decided global, and the
//! core bounds those globals; calls in flight are bounded per process.

mod backoff;
mod call;
mod driver;
mod next_attempt;
mod owed_call;
mod pick;
mod process;
mod process_names;
mod queue;
mod resource_queue;
mod sending;
mod standing;

use std::fmt;

use handfast_core::Effect;

pub use backoff::Backoff;
pub use call::{Ask, Call, CallBatch, CallReply, ProcessId, ResourceKey};
pub use driver::{Dispatcher, ProcessRegistration};
pub use next_attempt::{AttemptWait, NextAttempt};
pub use process::{CallSink, NewProcess, ProcessView, RegisteredResource, ResourceMatcher};
pub use queue::Queue;
pub use resource_queue::ResourceLoad;
pub use standing::{CallStanding, OverdueCalls};

/// The limits and pauses of phase two.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The first pause after a failed attempt; it doubles with each further one. Too short: a
    /// database that is down is hammered. Too long: a hiccup keeps rows locked.
    pub retry_delay_ms_min: u64,
    /// The longest pause between attempts. Too long: rows stay locked after the database is back.
    pub retry_delay_ms_max: u64,
    /// How long a call waits for its answer before another process is asked. Too short: slow
    /// rollbacks are done twice, harmlessly. Too long: a stuck process delays them.
    pub answer_timeout_ms: u64,
    /// Branches in one call. Too small: one message per branch. Too large: one late answer.
    pub batch_branches_max: usize,
    /// Application data in one call, in bytes; keeps a call under the clients' message limit.
    pub batch_bytes_max: usize,
    /// Branches that one process may owe an answer for. Too small: idle processes. Too large: a
    /// stuck process takes more with it.
    pub in_flight_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retry_delay_ms_min: 100,
            retry_delay_ms_max: 30_000,
            answer_timeout_ms: 30_000,
            batch_branches_max: 1_024,
            batch_bytes_max: 1 << 20,
            in_flight_max: 4_096,
        }
    }
}

/// Takes the phase-two effects that the engine releases once they are durable.
pub trait EffectSink: fmt::Debug + Send + Sync + 'static {
    /// Takes `PhaseTwo`, `Vote` and `Hold` effects, in order. Runs on the engine's task, so it
    /// must return at once.
    fn take(&self, effects: Vec<Effect>);

    /// Drops every call. The engine uses it when it drops the state that owed them.
    fn clear(&self);
}
