//! Decides which phase-two call goes to which process, and when. Pure: time and outcomes come in,
//! batches of calls come out.
//!
//! Each resource has a queue of its own, so a dead or slow service delays only its own calls. A
//! call is due, delayed by back-off, or in flight with a process. While no process has registered
//! the resource, its calls are parked: due, without a timer, until one registers.
//!
//! A call is for its owner, the process that registered the branch: on some databases no other
//! process can end a prepared branch. Another process is asked if the owner is not connected,
//! leaves a call unanswered, or has failed this call. In the last case the owner and the others are
//! asked in alternation. A process that left a call unanswered is asked about one that others fail
//! time and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handfast_core::{BranchId, Decision, Effect, PhaseTwoOutcome, Timestamp, Xid};

use super::call::{Ask, Call, CallReply, ProcessId, ResourceKey};
use super::owed_call::{Addressee, CallState, OnFailure, OwedCall};
use super::process_names::{ProcessNames, without_port};
use super::resource_queue::{CallKey, ResourceLoad, ResourceQueue};
use super::{Backoff, Settings};

/// All calls that are owed and all processes that can execute them.
#[derive(Debug)]
pub struct Queue {
    pub(super) settings: Settings,
    backoff: Backoff,
    pub(super) calls: BTreeMap<CallKey, OwedCall>,
    pub(super) queues: BTreeMap<ResourceKey, ResourceQueue>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    pub(super) names: ProcessNames,
    /// When delayed calls become due and calls in flight count as unanswered.
    pub(super) timers: BTreeSet<(Timestamp, CallKey)>,
    /// Calls that were sent and not for the first time, since they were last taken.
    pub(super) resent: u64,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    /// The name under which calls find their owner.
    name: Option<Arc<str>>,
    pub(super) resources: BTreeSet<ResourceKey>,
    pub(super) in_flight: BTreeSet<CallKey>,
    /// The process left a call unanswered and has answered none since. Others are preferred.
    pub(super) silent: bool,
    /// How many calls it takes at a time, if not the limit of the settings.
    pub(super) calls_max: Option<usize>,
}

impl Queue {
    /// Creates an empty queue. The seed feeds the jitter.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let backoff = Backoff::new(settings.retry_delay_ms_min, settings.retry_delay_ms_max, seed);
        Self {
            settings,
            backoff,
            calls: BTreeMap::new(),
            queues: BTreeMap::new(),
            processes: BTreeMap::new(),
            names: ProcessNames::default(),
            timers: BTreeSet::new(),
            resent: 0,
        }
    }

    /// Applies an effect of the core.
    pub fn take(&mut self, now: Timestamp, effect: Effect) {
        match effect {
            Effect::PhaseTwo(call) => self.call(now, call),
            Effect::Vote(call) => self.call(now, call),
            Effect::Hold { xid, branch: None } => self.hold(xid),
            Effect::Hold { xid, branch: Some(branch) } => self.remove((xid, branch)),
            Effect::Reply { .. } | Effect::Alert(_) => {}
        }
    }

    /// Adds a call, due at once. If the same call is in flight, it stays there, and its further
    /// attempts have the content given here. With another question or resolution, a failure of the
    /// earlier version does not count, and it is sent again at once. Other application data leaves
    /// the answer its meaning: what was carried out with the earlier data is finished. A call with
    /// the opposite decision replaces the earlier one: a step of a saga is compensated whether or
    /// not its action has been answered.
    pub fn call(&mut self, now: Timestamp, call: impl Into<Call>) {
        let call = call.into();
        let key = (call.xid, call.branch);
        // In flight it would wait for an answer to the earlier decision, which ends nothing.
        if self.calls.get(&key).is_some_and(|earlier| earlier.is_reversed_by(&call)) {
            self.remove(key);
        }
        let Some(pending) = self.calls.get_mut(&key) else {
            self.calls.insert(key, OwedCall::new(call, now));
            return self.make_due(key);
        };
        match &mut pending.state {
            CallState::InFlight { on_failure, .. } => {
                if (pending.call.ask, pending.call.resolution) != (call.ask, call.resolution) {
                    *on_failure = OnFailure::AskAgain;
                }
                pending.replace(call);
            }
            CallState::Due { .. } | CallState::Delayed { .. } => {
                // Detached before the content changes: the earlier content decides the index entry.
                self.detach(key);
                self.calls.entry(key).and_modify(|pending| pending.replace(call));
                self.make_due(key);
            }
        }
    }

    /// Forgets the calls of a global until the core sends further ones.
    pub fn hold(&mut self, xid: Xid) {
        let keys: Vec<CallKey> = self
            .calls
            .range((xid, BranchId(0))..=(xid, BranchId(u64::MAX)))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Forgets every call; the processes stay.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.timers.clear();
        self.processes.values_mut().for_each(|process| process.in_flight.clear());
        for queue in self.queues.values_mut() {
            queue.due.clear();
            queue.ownerless.clear();
            queue.delayed.clear();
            queue.in_flight = 0;
        }
        self.queues.retain(|_, queue| !queue.is_idle());
        for process in self.processes.values_mut() {
            process.resources.retain(|resource| self.queues.contains_key(resource));
        }
    }

    /// Adds a process under the name that is stored with the branches it registers.
    pub fn connected(&mut self, id: ProcessId, name: Arc<str>) {
        self.names.add(id, &name);
        self.processes.entry(id).or_default().name = Some(name);
    }

    /// Adds resources to a process. Their delayed calls become due at once, and so do those in
    /// flight with a silent process. Calls that were for any process because this one, their owner,
    /// was not connected become its own.
    pub fn registered(&mut self, id: ProcessId, resources: impl IntoIterator<Item = ResourceKey>) {
        let resources: BTreeSet<ResourceKey> = resources.into_iter().collect();
        for resource in &resources {
            let queue = self.queues.entry(resource.clone()).or_default();
            if !queue.processes.contains(&id) {
                queue.processes.push(id);
            }
            // First: only a process that has the resource is taken for an owner below.
            self.processes.entry(id).or_default().resources.insert(resource.clone());
            self.cut_delays(resource);
            self.readdress_to_owner(resource, id);
        }
        self.requeue_from_silent(&resources, id);
    }

    /// Assigns a resource to a process for as long as the resource has calls. The process takes at
    /// most `calls_max` calls at a time, over all its resources.
    pub fn claimed(&mut self, id: ProcessId, resource: &ResourceKey, calls_max: usize) {
        // A claim without calls would keep a queue for every URL that was ever named (BOUNDED).
        let Some(queue) = self.queues.get_mut(resource).filter(|it| !it.processes.contains(&id))
        else {
            return;
        };
        queue.processes.push(id);
        queue.claimed = true;
        let process = self.processes.entry(id).or_default();
        process.resources.insert(resource.clone());
        process.calls_max = Some(calls_max);
    }

    /// Removes a process. Its unanswered calls become due for others.
    pub fn disconnected(&mut self, id: ProcessId) {
        // Removed with its name before its calls are requeued, which look for their owners again.
        let Some(process) = self.processes.remove(&id) else { return };
        process.name.into_iter().for_each(|name| self.names.remove(id, &name));
        for resource in &process.resources {
            let Some(queue) = self.queues.get_mut(resource) else { continue };
            queue.processes.retain(|other| *other != id);
            let due = queue.due_to(id);
            // A pause serves nothing while no process is there: the calls are parked.
            if queue.processes.is_empty() {
                self.cut_delays(resource);
            }
            self.requeue(due);
        }
        // Answers may be lost with the connection; asking again does no harm (EFFECTS-REPEAT).
        self.requeue(process.in_flight);
        self.queues.retain(|_, queue| !queue.is_idle());
    }

    /// Notes that a process was heard from on another connection, so that this one may be dead
    /// without notice. Its unanswered calls become due, and others are preferred. It is not
    /// removed: the other connection may be the dead one, whose greeting was read late.
    pub fn distrust(&mut self, id: ProcessId) {
        // Silent first: the calls would be addressed to the same process again.
        self.silence(id);
        let in_flight = self.processes.get(&id).map(|process| process.in_flight.clone());
        self.requeue(in_flight.into_iter().flatten());
    }

    /// Returns the processes that have the resource and may have registered the branch. That is the
    /// registering process if it is connected, else the processes that may be it by name, and all
    /// processes if no name was stored. An empty result means that it has gone.
    #[must_use]
    pub fn owners(&self, resource: &ResourceKey, registered_by: Option<&str>) -> Vec<ProcessId> {
        match registered_by {
            Some(owner) => self.names.owners(owner, |id| self.has(id, resource)).collect(),
            None => self.queues.get(resource).map_or_else(Vec::new, |it| it.processes.clone()),
        }
    }

    /// Returns the resource of the call that an answer is for, if the call is owed.
    #[must_use]
    pub fn resource_of(&self, answer: &CallReply) -> Option<ResourceKey> {
        self.calls.get(&(answer.xid, answer.branch)).map(|pending| pending.call.resource.clone())
    }

    /// Applies an answer of process `by`, or, without `by`, of the process that has the call.
    /// Returns for how many milliseconds the call was owed if the answer completes it. An answer to
    /// another decision, or to a call that is not owed, changes nothing here; the core judges it.
    pub fn outcome(
        &mut self,
        now: Timestamp,
        by: Option<ProcessId>,
        answer: &CallReply,
    ) -> Option<u64> {
        // Any answer shows that the process is alive, even one that changes nothing below.
        if let Some(process) = by.and_then(|by| self.processes.get_mut(&by)) {
            process.silent = false;
        }
        let key = (answer.xid, answer.branch);
        let pending = self.calls.get(&key)?;
        if pending.call.ask != answer.ask {
            return None;
        }
        let (since, on_failure) = (pending.since, pending.state.answered_by(by));
        match (&answer.outcome, on_failure) {
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, _) => {
                self.remove(key);
                return Some(now.0.saturating_sub(since.0));
            }
            // Late: the call is with another process, or waits for its next attempt.
            (PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. }, None) => {}
            (PhaseTwoOutcome::Refused { .. }, Some(OnFailure::BackOff | OnFailure::AskOwner))
                if answer.ask != Ask::Finish(Decision::Commit) =>
            {
                self.remove(key);
            }
            // A commit cannot be refused, so it is sent again.
            (
                PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. },
                Some(on_failure),
            ) => self.failed(now, key, on_failure),
        }
        None
    }

    /// Returns when `tick` should run next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Advances time: delayed calls become due, and unanswered calls go to another process.
    pub fn tick(&mut self, now: Timestamp) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            // Removed before the call moves, because a pause of length zero inserts a timer for the
            // same instant.
            let Some((_, key)) = self.timers.pop_first() else { return };
            match self.calls.get(&key).map(|pending| pending.state) {
                Some(CallState::InFlight { process, .. }) => self.unanswered(now, key, process),
                Some(CallState::Delayed { .. } | CallState::Due { .. }) | None => {
                    self.detach(key);
                    self.make_due(key);
                }
            }
        }
    }

    /// Returns the load of each resource.
    #[must_use]
    pub fn loads(&self) -> Vec<ResourceLoad> {
        self.queues.iter().map(|(resource, queue)| queue.load(resource)).collect()
    }

    /// Returns the number of calls that a process has not answered.
    #[must_use]
    pub fn in_flight(&self, process: ProcessId) -> usize {
        self.processes.get(&process).map_or(0, |process| process.in_flight.len())
    }

    fn unanswered(&mut self, now: Timestamp, key: CallKey, process: ProcessId) {
        self.silence(process);
        self.calls.entry(key).and_modify(|pending| pending.failed_by = Some(process));
        let elsewhere = self.queue_of(key).is_some_and(|queue| queue.processes.len() > 1);
        if elsewhere {
            self.detach(key);
            self.make_due(key);
        } else {
            self.back_off(now, key);
        }
    }

    /// Marks a process as silent: other processes are preferred, also for the calls due to it.
    fn silence(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if std::mem::replace(&mut process.silent, true) {
            return;
        }
        let queues = process.resources.iter().filter_map(|resource| self.queues.get(resource));
        let due: Vec<CallKey> = queues.flat_map(|queue| queue.due_to(id)).collect();
        self.requeue(due);
    }

    /// Records a failed attempt of the process that has the call.
    fn failed(&mut self, now: Timestamp, key: CallKey, on_failure: OnFailure) {
        let Some(pending) = self.calls.get_mut(&key) else { return };
        if let (CallState::InFlight { process, .. }, OnFailure::BackOff | OnFailure::AskOwner) =
            (pending.state, on_failure)
        {
            pending.failed_by = Some(process);
        }
        // Looked up after `failed_by` is set: a single owner that has just failed counts as none.
        let has_owner = matches!(self.addressee(key), Addressee::Owner(_));
        match on_failure {
            OnFailure::AskAgain => self.requeue([key]),
            OnFailure::AskOwner if has_owner => self.requeue([key]),
            OnFailure::AskOwner | OnFailure::BackOff => self.back_off(now, key),
        }
    }

    /// Delays a call after a failed attempt, or parks it if its resource has no process.
    fn back_off(&mut self, now: Timestamp, key: CallKey) {
        self.detach(key);
        let parked = self.queue_of(key).is_none_or(|queue| queue.processes.is_empty());
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.failures = pending.failures.saturating_add(1);
        // Parked failures count too: they set the pause once a process is there.
        if parked {
            return self.make_due(key);
        }
        let failures = pending.failures;
        let delay_ms = match &pending.call.step {
            None => self.backoff.delay_ms(failures),
            Some(step) => self.backoff.jittered(step.retry.pause_ms(failures)),
        };
        let until = now.after_ms(delay_ms);
        pending.state = CallState::Delayed { until };
        let resource = pending.call.resource.clone();
        self.queues.entry(resource).or_default().delayed.insert(key);
        self.timers.insert((until, key));
    }

    fn requeue(&mut self, keys: impl IntoIterator<Item = CallKey>) {
        for key in keys {
            self.detach(key);
            self.make_due(key);
        }
    }

    fn cut_delays(&mut self, resource: &ResourceKey) {
        let Some(queue) = self.queues.get(resource) else { return };
        self.requeue(queue.delayed.clone());
    }

    /// Addresses the due calls of an owner that has connected to it.
    fn readdress_to_owner(&mut self, resource: &ResourceKey, id: ProcessId) {
        let name = self.processes.get(&id).and_then(|process| process.name.as_deref());
        let queue = self.queues.get(resource);
        let its = name.zip(queue).and_then(|(name, queue)| queue.ownerless.get(without_port(name)));
        let its = its.cloned().unwrap_or_default();
        self.requeue(its);
    }

    /// Requeues the calls of silent processes: while all processes were silent, they were sent to
    /// one for want of a better.
    fn requeue_from_silent(&mut self, resources: &BTreeSet<ResourceKey>, better: ProcessId) {
        let others = self.processes.iter().filter(|(id, _)| **id != better);
        let silent = others.map(|(_, process)| process).filter(|process| process.silent);
        let in_flight = silent.flat_map(|process| process.in_flight.iter().copied());
        let is_of_them = |key: &CallKey| {
            self.resource_of_key(*key).is_some_and(|resource| resources.contains(resource))
        };
        let its: Vec<CallKey> = in_flight.filter(is_of_them).collect();
        self.requeue(its);
    }

    fn make_due(&mut self, key: CallKey) {
        let to = self.addressee(key);
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.state = CallState::Due { to };
        self.queues.entry(pending.call.resource.clone()).or_default().add_due(key, pending);
    }

    /// Removes a call from the indexes of its state. The caller must set the next state.
    pub(super) fn detach(&mut self, key: CallKey) {
        let Some(pending) = self.calls.get(&key) else { return };
        let queue = self.queues.entry(pending.call.resource.clone()).or_default();
        match pending.state {
            CallState::Due { .. } => queue.remove_due(key, pending),
            CallState::Delayed { until } => {
                queue.delayed.remove(&key);
                self.timers.remove(&(until, key));
            }
            CallState::InFlight { process, until, .. } => {
                queue.in_flight -= 1;
                self.timers.remove(&(until, key));
                if let Some(process) = self.processes.get_mut(&process) {
                    process.in_flight.remove(&key);
                }
            }
        }
    }

    fn remove(&mut self, key: CallKey) {
        self.detach(key);
        let Some(pending) = self.calls.remove(&key) else { return };
        let resource = pending.call.resource;
        if !self.queues.get(&resource).is_some_and(ResourceQueue::is_idle) {
            return;
        }
        // An idle queue that still has processes is a claimed one, whose claim ends with its calls.
        for id in self.queues.remove(&resource).into_iter().flat_map(|queue| queue.processes) {
            if let Some(process) = self.processes.get_mut(&id) {
                process.resources.remove(&resource);
            }
        }
    }

    fn queue_of(&self, key: CallKey) -> Option<&ResourceQueue> {
        self.queues.get(self.resource_of_key(key)?)
    }

    fn resource_of_key(&self, key: CallKey) -> Option<&ResourceKey> {
        self.calls.get(&key).map(|pending| &pending.call.resource)
    }
}
