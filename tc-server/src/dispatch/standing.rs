//! Where the calls of one global stand, for operators.

use std::collections::BTreeMap;

use handfast_core::{BranchId, Timestamp, Xid};

use super::call::ResourceKey;
use super::driver::Dispatcher;
use super::owed_call::CallState;
use super::queue::Queue;

/// Where a call stands that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStanding {
    /// No connected process serves its resource.
    Parked,
    /// It is sent as soon as a process has room for it.
    Due,
    /// Its last attempt failed.
    Delayed {
        /// When the next one is made.
        until: Timestamp,
    },
    /// A process has it.
    Asked {
        /// When it counts as unanswered.
        until: Timestamp,
    },
}

impl Queue {
    /// Returns the calls of a global that are owed, by branch.
    #[must_use]
    pub fn standings(&self, xid: Xid) -> BTreeMap<BranchId, CallStanding> {
        let calls = self.calls.range((xid, BranchId(0))..=(xid, BranchId(u64::MAX)));
        let is_served = |resource: &ResourceKey| {
            self.queues.get(resource).is_some_and(|queue| !queue.processes.is_empty())
        };
        let standing = |state, resource| match state {
            CallState::Delayed { until } => CallStanding::Delayed { until },
            CallState::InFlight { until, .. } => CallStanding::Asked { until },
            CallState::Due { .. } if is_served(resource) => CallStanding::Due,
            CallState::Due { .. } => CallStanding::Parked,
        };
        let standings = calls.map(|(&(_, branch), pending)| {
            (branch, standing(pending.state, &pending.call.resource))
        });
        standings.collect()
    }
}

impl Dispatcher {
    /// Returns the calls of a global that are owed, by branch.
    #[must_use]
    pub fn standings(&self, xid: Xid) -> BTreeMap<BranchId, CallStanding> {
        self.lock().queue.standings(xid)
    }
}
