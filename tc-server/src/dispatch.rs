//! Phase-two dispatch: carries the core's phase-two calls to live processes.

use std::fmt;

use handfast_core::Effect;

/// Takes the phase-two effects that the engine lets out.
pub trait PhaseTwo: fmt::Debug + Send + Sync + 'static {
    /// Takes `PhaseTwo` and `Hold` effects, in order. Runs on the engine's task: returns at once.
    fn take(&self, effects: Vec<Effect>);

    /// Drops every call: the state that owed them is dropped.
    fn clear(&self);
}
