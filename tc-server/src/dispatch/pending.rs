//! A call that is owed, and where it stands.

use std::sync::Arc;

use handfast_core::Timestamp;

use super::call::{Ask, Call, ProcessId, ResourceKey};
use super::lane::Turn;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) place: Place,
    pub(super) failures: u32,
    pub(super) since: Timestamp,
    /// The process that failed the last attempt: another one is asked before it is again.
    pub(super) failed_by: Option<ProcessId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Due { to: Addressee },
    Delayed { until: Timestamp },
    InFlight { process: ProcessId, until: Timestamp, then: Then },
}

/// Whom a due call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    /// Any process of the resource.
    Any,
    /// The same, for as long as the one that registered the branch is not there.
    AnyMeanwhile,
    /// The one that registered the branch.
    Owner(ProcessId),
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    BackOff,
    /// The owner of the call is asked at once if it has come by then.
    AskOwner,
    /// The call was changed while it was in flight: the answer is to the earlier one.
    AskAgain,
}

impl Pending {
    pub(super) fn new(call: Call, now: Timestamp) -> Self {
        let failures = call.attempts;
        let place = Place::Due { to: Addressee::Any };
        Self { call, place, failures, since: now, failed_by: None }
    }

    /// The resource and the process that registered the branch, if that is known.
    pub(super) fn owner(&self) -> Option<(&ResourceKey, &Arc<str>)> {
        self.call.registered_by.as_ref().map(|owner| (&self.call.resource, owner))
    }

    /// What it can go together with.
    pub(super) fn turn(&self) -> Turn {
        Turn { ask: self.call.ask, to: self.place.addressee().process() }
    }

    pub(super) fn bytes(&self) -> usize {
        let outputs = self.call.step.iter().flat_map(|step| &step.outputs);
        let outputs = outputs.map(|given| given.output.len());
        self.call.application_data.len() + outputs.sum::<usize>()
    }

    /// Whether a step of a saga is to be taken back that was to be done, or the other way round.
    pub(super) fn is_reversed_by(&self, call: &Call) -> bool {
        match (self.call.ask, call.ask) {
            (Ask::Finish(earlier), Ask::Finish(now)) => earlier != now,
            (Ask::Vote(_) | Ask::Finish(_), Ask::Vote(_)) | (Ask::Vote(_), Ask::Finish(_)) => false,
        }
    }
}

impl Place {
    /// What follows a failure reported by this process, if the call is its own.
    pub(super) fn answered_by(self, by: Option<ProcessId>) -> Option<Then> {
        match self {
            Self::InFlight { process, then, .. } if by.is_none_or(|by| by == process) => Some(then),
            Self::InFlight { .. } | Self::Due { .. } | Self::Delayed { .. } => None,
        }
    }

    /// Whom a due call is for; a call in another place is for no process in particular.
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
