//! The calls of one resource, and the processes that can carry them out.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{BranchId, Xid};

use super::call::{Ask, ProcessId, ResourceKey};

/// How much phase two a resource has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLoad {
    /// The resource.
    pub resource: ResourceKey,
    /// Live processes that registered it.
    pub processes: usize,
    /// Calls that wait for a process.
    pub due: usize,
    /// Calls that wait for their next attempt.
    pub delayed: usize,
    /// Calls that a process has and has not answered.
    pub in_flight: usize,
}

pub(super) type CallKey = (Xid, BranchId);

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) due: BTreeMap<Ask, BTreeSet<CallKey>>,
    pub(super) delayed: BTreeSet<CallKey>,
    pub(super) in_flight: usize,
    pub(super) processes: Vec<ProcessId>,
    /// Its processes are there for the calls alone: without one the lane goes.
    pub(super) claimed: bool,
    /// Where the round robin goes on.
    pub(super) next: usize,
}

impl Lane {
    pub(super) fn has_due(&self) -> bool {
        self.due.values().any(|keys| !keys.is_empty())
    }

    pub(super) fn is_idle(&self) -> bool {
        (self.claimed || self.processes.is_empty())
            && !self.has_due()
            && self.delayed.is_empty()
            && self.in_flight == 0
    }

    pub(super) fn load(&self, resource: &ResourceKey) -> ResourceLoad {
        ResourceLoad {
            resource: resource.clone(),
            processes: self.processes.len(),
            due: self.due.values().map(BTreeSet::len).sum(),
            delayed: self.delayed.len(),
            in_flight: self.in_flight,
        }
    }
}
