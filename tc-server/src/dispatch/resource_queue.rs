//! The calls of one resource, and the processes that can execute them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{BranchId, Xid};

use super::call::{Ask, ProcessId, ResourceKey};
use super::owed_call::{Addressee, OwedCall};
use super::process_names::without_port;

/// The phase-two load of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLoad {
    /// The resource.
    pub resource: ResourceKey,
    /// Connected processes that registered it.
    pub processes: usize,
    /// Calls that wait for a process.
    pub due: usize,
    /// Calls that wait for their next attempt.
    pub delayed: usize,
    /// Calls sent to a process and not answered.
    pub in_flight: usize,
}

pub(crate) type CallKey = (Xid, BranchId);

/// The key of due calls that can be sent in one batch. The order of its values is the order of
/// sending, last first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallGroup {
    pub(super) ask: Ask,
    /// The process that the calls are for; `None` for any process.
    pub(super) to: Option<ProcessId>,
}

#[derive(Debug, Default)]
pub(super) struct ResourceQueue {
    /// No set is empty.
    pub(super) due: BTreeMap<CallGroup, BTreeSet<CallKey>>,
    /// The due calls whose owner is not connected, by the owner's name without its port.
    pub(super) ownerless: BTreeMap<Box<str>, BTreeSet<CallKey>>,
    pub(super) delayed: BTreeSet<CallKey>,
    pub(super) in_flight: usize,
    pub(super) processes: Vec<ProcessId>,
    /// The resource is claimed, not registered: an empty queue is dropped with its processes.
    pub(super) claimed: bool,
    /// The index in `processes` at which the round robin continues.
    pub(super) next: usize,
}

impl ResourceQueue {
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        (self.claimed || self.processes.is_empty())
            && !self.has_due()
            && self.delayed.is_empty()
            && self.in_flight == 0
    }

    pub(super) fn add_due(&mut self, key: CallKey, pending: &OwedCall) {
        let (to, group) = (pending.state.addressee(), pending.group());
        self.due.entry(group).or_default().insert(key);
        if let (Addressee::AnyMeanwhile, Some((_, owner))) = (to, pending.owner()) {
            self.ownerless.entry(without_port(owner).into()).or_default().insert(key);
        }
    }

    pub(super) fn remove_due(&mut self, key: CallKey, pending: &OwedCall) {
        remove(&mut self.due, &pending.group(), key);
        if let (Addressee::AnyMeanwhile, Some((_, owner))) =
            (pending.state.addressee(), pending.owner())
        {
            remove(&mut self.ownerless, without_port(owner), key);
        }
    }

    /// Returns the due calls that are for this process.
    pub(super) fn due_to(&self, process: ProcessId) -> Vec<CallKey> {
        let its = self.due.iter().filter(|(group, _)| group.to == Some(process));
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
