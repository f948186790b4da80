//! A call that is owed, and its state.

use std::sync::Arc;

use handfast_core::Timestamp;

use super::call::{Ask, Call, ProcessId, ResourceKey};
use super::resource_queue::CallGroup;

#[derive(Debug)]
pub(super) struct OwedCall {
    pub(super) call: Call,
    pub(super) state: CallState,
    pub(super) failures: u32,
    /// Whether it was sent with this question, also by an earlier leader.
    pub(super) was_sent: bool,
    pub(super) since: Timestamp,
    /// The process that failed the last attempt, or left it unanswered. Another process is asked
    /// before it is again.
    pub(super) failed_by: Option<ProcessId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CallState {
    Due { to: Addressee },
    Delayed { until: Timestamp },
    InFlight { process: ProcessId, until: Timestamp, on_failure: OnFailure },
}

/// The process that a due call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    /// Any process of the resource.
    Any,
    /// Any process of the resource, for as long as the owner is not connected.
    AnyMeanwhile,
    /// The process that registered the branch.
    Owner(ProcessId),
}

/// The plan after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    BackOff,
    /// Ask the owner at once if it has connected in the meantime, else back off.
    AskOwner,
    /// Ask again at once: the call was changed in flight, so the answer is to the earlier version.
    AskAgain,
}

impl OwedCall {
    pub(super) fn new(call: Call, now: Timestamp) -> Self {
        // Attempts under earlier leaders count: a change of leader does not begin the pauses again.
        let failures = call.attempts;
        let (state, was_sent) = (CallState::Due { to: Addressee::Any }, failures > 0);
        Self { call, state, failures, was_sent, since: now, failed_by: None }
    }

    /// Takes the content of a later version of the call.
    pub(super) fn replace(&mut self, call: Call) {
        if self.call.ask != call.ask {
            self.was_sent = call.attempts > 0;
        }
        self.call = call;
    }

    /// Returns the resource and the process that registered the branch, if it is known.
    pub(super) fn owner(&self) -> Option<(&ResourceKey, &Arc<str>)> {
        self.call.registered_by.as_ref().map(|owner| (&self.call.resource, owner))
    }

    /// Returns the key of the batch in which the call can be sent.
    pub(super) fn group(&self) -> CallGroup {
        CallGroup { ask: self.call.ask, to: self.state.addressee().process() }
    }

    pub(super) fn bytes(&self) -> usize {
        let outputs = self.call.step.iter().flat_map(|step| &step.outputs);
        let outputs = outputs.map(|given| given.output.len());
        self.call.application_data.len() + outputs.sum::<usize>()
    }

    /// Returns whether `call` has the opposite decision: a saga's step is compensated instead of
    /// executed, or the other way round.
    pub(super) fn is_reversed_by(&self, call: &Call) -> bool {
        match (self.call.ask, call.ask) {
            (Ask::Finish(earlier), Ask::Finish(now)) => earlier != now,
            (Ask::Vote(_) | Ask::Finish(_), Ask::Vote(_)) | (Ask::Vote(_), Ask::Finish(_)) => false,
        }
    }
}

impl CallState {
    /// Returns what to do after a failure reported by process `by`, or `None` if the call is not in
    /// flight with it.
    pub(super) fn answered_by(self, by: Option<ProcessId>) -> Option<OnFailure> {
        match self {
            Self::InFlight { process, on_failure, .. } if by.is_none_or(|by| by == process) => {
                Some(on_failure)
            }
            Self::InFlight { .. } | Self::Due { .. } | Self::Delayed { .. } => None,
        }
    }

    /// Returns the process that a due call is for. A call in another state is for any process.
    pub(super) fn addressee(self) -> Addressee {
        match self {
            Self::Due { to } => to,
            Self::Delayed { .. } | Self::InFlight { .. } => Addressee::Any,
        }
    }
}

impl Addressee {
    pub(super) fn process(self) -> Option<ProcessId> {
        match self {
            Self::Owner(process) => Some(process),
            Self::Any | Self::AnyMeanwhile => None,
        }
    }
}
