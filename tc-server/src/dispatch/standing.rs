//! Where calls stand, for operators: those of one global, and those that are owed for long.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use handfast_core::{BranchId, Timestamp, Xid};

use super::call::ResourceKey;
use super::driver::Dispatcher;
use super::owed_call::CallState;
use super::queue::Queue;
use super::resource_queue::CallKey;

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

/// The calls of one resource that are owed since before some point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdueCalls {
    /// How many they are.
    pub count: usize,
    /// Since when the oldest one is owed.
    pub since: Timestamp,
    /// The global of that one.
    pub xid: Xid,
    /// The branch of that one.
    pub branch: BranchId,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
}

impl Queue {
    /// Adds the calls that are owed until they are answered, and are so since before a point in
    /// time, by resource. Looks at a bounded number of calls behind `from`, and returns where to go
    /// on, unless it is the end.
    pub fn find_overdue(
        &self,
        before: Timestamp,
        from: Option<CallKey>,
        scanned_max: usize,
        found: &mut BTreeMap<ResourceKey, OverdueCalls>,
    ) -> Option<CallKey> {
        let behind = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut calls = self.calls.range((behind, Bound::Unbounded)).take(scanned_max.max(1));
        let mut last = None;
        for (&(xid, branch), pending) in &mut calls {
            last = Some((xid, branch));
            if !pending.call.ask.is_owed_until_answered() || pending.since >= before {
                continue;
            }
            let (since, address) = (pending.since, Arc::clone(&pending.call.address));
            let one = OverdueCalls { count: 1, since, xid, branch, address };
            let known = found.entry(pending.call.resource.clone());
            known.and_modify(|known| known.add(&one)).or_insert(one);
        }
        last.filter(|last| {
            self.calls.range((Bound::Excluded(last), Bound::Unbounded)).next().is_some()
        })
    }

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

impl OverdueCalls {
    fn add(&mut self, one: &Self) {
        let count = self.count + one.count;
        if one.since < self.since {
            *self = one.clone();
        }
        self.count = count;
    }
}

impl Dispatcher {
    /// Adds the calls that are owed since before a point in time, by the rule of
    /// [`Queue::find_overdue`].
    #[must_use]
    pub fn find_overdue(
        &self,
        before: Timestamp,
        from: Option<(Xid, BranchId)>,
        scanned_max: usize,
        found: &mut BTreeMap<ResourceKey, OverdueCalls>,
    ) -> Option<(Xid, BranchId)> {
        self.lock().queue.find_overdue(before, from, scanned_max, found)
    }

    /// Returns the calls of a global that are owed, by branch.
    #[must_use]
    pub fn standings(&self, xid: Xid) -> BTreeMap<BranchId, CallStanding> {
        self.lock().queue.standings(xid)
    }
}
