//! The calls of one resource, and the processes that can carry them out.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{BranchId, Xid};

use super::call::{Ask, ProcessId, ResourceKey};
use super::owner::lasting;
use super::pending::{Addressee, Pending};

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

/// Due calls that can go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) ask: Ask,
    /// The process that they are for; any without one.
    pub(super) to: Option<ProcessId>,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// None of them is empty.
    pub(super) due: BTreeMap<Turn, BTreeSet<CallKey>>,
    /// The due calls whose owner is not there, by what lasts of its name.
    pub(super) ownerless: BTreeMap<Box<str>, BTreeSet<CallKey>>,
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
        !self.due.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        (self.claimed || self.processes.is_empty())
            && !self.has_due()
            && self.delayed.is_empty()
            && self.in_flight == 0
    }

    pub(super) fn add_due(&mut self, key: CallKey, pending: &Pending) {
        let (to, turn) = (pending.place.addressee(), pending.turn());
        self.due.entry(turn).or_default().insert(key);
        if let (Addressee::AnyMeanwhile, Some((_, owner))) = (to, pending.owner()) {
            self.ownerless.entry(lasting(owner).into()).or_default().insert(key);
        }
    }

    pub(super) fn remove_due(&mut self, key: CallKey, pending: &Pending) {
        remove(&mut self.due, &pending.turn(), key);
        if let (Addressee::AnyMeanwhile, Some((_, owner))) =
            (pending.place.addressee(), pending.owner())
        {
            remove(&mut self.ownerless, lasting(owner), key);
        }
    }

    /// The due calls that are for this process.
    pub(super) fn due_to(&self, process: ProcessId) -> Vec<CallKey> {
        let its = self.due.iter().filter(|(turn, _)| turn.to == Some(process));
        its.flat_map(|(_, keys)| keys).copied().collect()
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

fn remove<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(
    sets: &mut BTreeMap<K, BTreeSet<CallKey>>,
    of: &Q,
    key: CallKey,
) {
    let Some(keys) = sets.get_mut(of) else { return };
    keys.remove(&key);
    if keys.is_empty() {
        sets.remove(of);
    }
}
