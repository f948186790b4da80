//! Which phase-two call goes to which process, and when. Pure: time and outcomes come in, batches
//! of calls come out.
//!
//! Each resource has a lane of its own, so a dead or slow service delays nobody else's calls. A
//! call is due, delayed by back-off, or in flight with a process. Where no process has registered
//! the resource its calls are parked: due, without a timer, until one registers.
//!
//! A call is for its owner, the process that registered the branch: on some databases no other can
//! end a prepared branch. Another process is asked where the owner is not there, leaves a call
//! unanswered, or has failed this one: then each of them is asked every other time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handfast_core::{BranchId, Decision, Effect, PhaseTwoOutcome, Timestamp, Xid};

use super::call::{Answer, Ask, Call, CallBatch, ProcessId, ResourceKey};
use super::lane::{CallKey, Lane, ResourceLoad};
use super::owner::{ByName, lasting};
use super::pending::{Addressee, Pending, Place, Then};
use super::pick::Picked;
use super::{Backoff, Settings};

/// All calls that are owed and all processes that could carry them out.
#[derive(Debug)]
pub struct Queue {
    pub(super) settings: Settings,
    backoff: Backoff,
    pub(super) calls: BTreeMap<CallKey, Pending>,
    pub(super) lanes: BTreeMap<ResourceKey, Lane>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    pub(super) names: ByName,
    /// When delayed calls become due and calls in flight count as unanswered.
    timers: BTreeSet<(Timestamp, CallKey)>,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    /// What owners of calls are found by.
    name: Option<Arc<str>>,
    pub(super) resources: BTreeSet<ResourceKey>,
    pub(super) in_flight: BTreeSet<CallKey>,
    /// It left a call unanswered and has answered none since: others are preferred.
    pub(super) silent: bool,
    /// How many calls it takes at a time, if fewer than others.
    pub(super) calls_max: Option<usize>,
}

impl Queue {
    /// An empty queue; the seed feeds the jitter.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let backoff = Backoff::new(settings.retry_delay_ms_min, settings.retry_delay_ms_max, seed);
        Self {
            settings,
            backoff,
            calls: BTreeMap::new(),
            lanes: BTreeMap::new(),
            processes: BTreeMap::new(),
            names: ByName::default(),
            timers: BTreeSet::new(),
        }
    }

    /// Takes an effect of the core.
    pub fn take(&mut self, now: Timestamp, effect: Effect) {
        match effect {
            Effect::PhaseTwo(call) => self.call(now, call),
            Effect::Vote(call) => self.call(now, call),
            Effect::Hold { xid, branch: None } => self.hold(xid),
            Effect::Hold { xid, branch: Some(branch) } => self.remove((xid, branch)),
            Effect::Reply { .. } | Effect::NeedsOperator(_) => {}
        }
    }

    /// A call is due at once. A call that is in flight stays there; if its content is another, it
    /// is asked again after the answer to the earlier one. One with the other decision takes its
    /// place: a step of a saga is taken back whether or not its action has been heard of.
    pub fn call(&mut self, now: Timestamp, call: impl Into<Call>) {
        let call = call.into();
        let key = (call.xid, call.branch);
        if self.calls.get(&key).is_some_and(|earlier| earlier.is_reversed_by(&call)) {
            self.remove(key);
        }
        match self.calls.get_mut(&key) {
            Some(Pending { call: earlier, place: Place::InFlight { then, .. }, .. }) => {
                if (earlier.ask, earlier.resolution) != (call.ask, call.resolution) {
                    *then = Then::AskAgain;
                }
                *earlier = call;
            }
            Some(_) => {
                // Out of the place of the earlier one, which may be another.
                self.leave(key);
                self.calls.entry(key).and_modify(|pending| pending.call = call);
                self.enter_due(key);
            }
            None => {
                self.calls.insert(key, Pending::new(call, now));
                self.enter_due(key);
            }
        }
    }

    /// Forgets the calls of a global until further ones come.
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
        for lane in self.lanes.values_mut() {
            lane.due.clear();
            lane.ownerless.clear();
            lane.delayed.clear();
            lane.in_flight = 0;
        }
        self.lanes.retain(|_, lane| !lane.is_idle());
        for process in self.processes.values_mut() {
            process.resources.retain(|resource| self.lanes.contains_key(resource));
        }
    }

    /// A process has connected, under the name that is stored with the branches it registers.
    pub fn connected(&mut self, id: ProcessId, name: Arc<str>) {
        self.names.add(id, &name);
        self.processes.entry(id).or_default().name = Some(name);
    }

    /// A process can do phase two of these resources: their delayed calls are due at once, and so
    /// are those that a silent process has. Of those that wait for any process, because their owner
    /// was not there, its own are for it.
    pub fn registered(&mut self, id: ProcessId, resources: impl IntoIterator<Item = ResourceKey>) {
        let resources: BTreeSet<ResourceKey> = resources.into_iter().collect();
        for resource in &resources {
            let lane = self.lanes.entry(resource.clone()).or_default();
            if !lane.processes.contains(&id) {
                lane.processes.push(id);
            }
            self.processes.entry(id).or_default().resources.insert(resource.clone());
            self.undelay(resource);
            self.give_to_owner(resource, id);
        }
        self.take_from_silent(&resources, id);
    }

    /// A process carries out what is owed of a resource, for as long as something is. It takes at
    /// most so many calls at a time, of all resources.
    pub fn claimed(&mut self, id: ProcessId, resource: &ResourceKey, calls_max: usize) {
        let Some(lane) = self.lanes.get_mut(resource).filter(|it| !it.processes.contains(&id))
        else {
            return;
        };
        lane.processes.push(id);
        lane.claimed = true;
        let process = self.processes.entry(id).or_default();
        process.resources.insert(resource.clone());
        process.calls_max = Some(calls_max);
    }

    /// A process is no more: what it has not answered is due for others.
    pub fn gone(&mut self, id: ProcessId) {
        let Some(process) = self.processes.remove(&id) else { return };
        process.name.into_iter().for_each(|name| self.names.remove(id, &name));
        for resource in &process.resources {
            let Some(lane) = self.lanes.get_mut(resource) else { continue };
            lane.processes.retain(|other| *other != id);
            let due = lane.due_to(id);
            if lane.processes.is_empty() {
                self.undelay(resource);
            }
            self.take_back(due);
        }
        self.take_back(process.in_flight);
        self.lanes.retain(|_, lane| !lane.is_idle());
    }

    /// A process is heard from on another connection, so that this one may be dead without notice:
    /// what it has not answered is due, and others are preferred. It is not given up, for the other
    /// connection may be the dead one, whose greeting was read late.
    pub fn doubt(&mut self, id: ProcessId) {
        self.silence(id);
        let in_flight = self.processes.get(&id).map(|process| process.in_flight.clone());
        self.take_back(in_flight.into_iter().flatten());
    }

    /// The processes that have a resource and may have registered this branch of it: the one that
    /// did if it is there, else those that may be it, and where that is not known, all. None: it is
    /// gone.
    #[must_use]
    pub fn owners(&self, resource: &ResourceKey, registered_by: Option<&str>) -> Vec<ProcessId> {
        match registered_by {
            Some(owner) => self.names.owners(owner, |id| self.has(id, resource)).collect(),
            None => self.lanes.get(resource).map_or_else(Vec::new, |it| it.processes.clone()),
        }
    }

    /// The resource of a call that is owed.
    #[must_use]
    pub fn resource_of(&self, answer: &Answer) -> Option<ResourceKey> {
        self.calls.get(&(answer.xid, answer.branch)).map(|pending| pending.call.resource.clone())
    }

    /// A call was answered, by this process or, where it is not told, by the one that has it. Gives
    /// back how long, in milliseconds, the call was owed when the answer ends it well. An answer to
    /// another decision, or to a call that is not owed, changes nothing here; the core judges it.
    pub fn outcome(
        &mut self,
        now: Timestamp,
        by: Option<ProcessId>,
        answer: &Answer,
    ) -> Option<u64> {
        if let Some(process) = by.and_then(|by| self.processes.get_mut(&by)) {
            process.silent = false;
        }
        let key = (answer.xid, answer.branch);
        let pending = self.calls.get(&key)?;
        if pending.call.ask != answer.ask {
            return None;
        }
        let (since, then) = (pending.since, pending.place.answered_by(by));
        match (&answer.outcome, then) {
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, _) => {
                self.remove(key);
                return Some(now.0.saturating_sub(since.0));
            }
            (PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. }, None) => {}
            (PhaseTwoOutcome::Refused { .. }, Some(Then::BackOff | Then::AskOwner))
                if answer.ask != Ask::Finish(Decision::Commit) =>
            {
                self.remove(key);
            }
            // A commit cannot be refused, so it is asked for again.
            (PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. }, Some(then)) => {
                self.failed(now, key, then)
            }
        }
        None
    }

    /// When time should be let pass next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Lets time pass: delayed calls become due, unanswered ones go elsewhere.
    pub fn tick(&mut self, now: Timestamp) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            // Taken out before the call moves: a pause of nothing ends at the same instant.
            let Some((_, key)) = self.timers.pop_first() else { return };
            match self.calls.get(&key).map(|pending| pending.place) {
                Some(Place::InFlight { process, .. }) => self.unanswered(now, key, process),
                Some(Place::Delayed { .. } | Place::Due { .. }) | None => {
                    self.leave(key);
                    self.enter_due(key);
                }
            }
        }
    }

    /// What is to be sent, which from here on is in flight.
    pub fn sends(&mut self, now: Timestamp) -> Vec<CallBatch> {
        let mut batches = Vec::new();
        let ready: Vec<ResourceKey> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.has_due() && !lane.processes.is_empty())
            .map(|(resource, _)| resource.clone())
            .collect();
        for resource in ready {
            while let Some(batch) = self.send(now, &resource) {
                batches.push(batch);
            }
        }
        batches
    }

    /// How much each resource has to do.
    #[must_use]
    pub fn loads(&self) -> Vec<ResourceLoad> {
        self.lanes.iter().map(|(resource, lane)| lane.load(resource)).collect()
    }

    /// How many calls a process has and has not answered.
    #[must_use]
    pub fn in_flight(&self, process: ProcessId) -> usize {
        self.processes.get(&process).map_or(0, |process| process.in_flight.len())
    }

    fn send(&mut self, now: Timestamp, resource: &ResourceKey) -> Option<CallBatch> {
        let Picked { turn, process, room } = self.pick(resource)?;
        let keys = self.lanes.get(resource)?.due.get(&turn)?;
        let mut bytes = 0;
        let batch: Vec<CallKey> = keys
            .iter()
            .copied()
            .take(room.min(self.settings.batch_branches_max))
            .take_while(|key| {
                let first = bytes == 0;
                bytes += self.calls[key].bytes();
                first || bytes <= self.settings.batch_bytes_max
            })
            .collect();
        let calls = batch.into_iter().map(|key| self.enter_flight(now, key, process)).collect();
        Some(CallBatch { process, resource: resource.clone(), ask: turn.ask, calls })
    }

    fn unanswered(&mut self, now: Timestamp, key: CallKey, process: ProcessId) {
        self.silence(process);
        let elsewhere = self.lane_of(key).is_some_and(|lane| lane.processes.len() > 1);
        if elsewhere {
            self.leave(key);
            self.enter_due(key);
        } else {
            self.back_off(now, key);
        }
    }

    /// Others are preferred to a process, also for what is due to it.
    fn silence(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if std::mem::replace(&mut process.silent, true) {
            return;
        }
        let lanes = process.resources.iter().filter_map(|resource| self.lanes.get(resource));
        let due: Vec<CallKey> = lanes.flat_map(|lane| lane.due_to(id)).collect();
        self.take_back(due);
    }

    /// After a failed attempt of the process that has the call.
    fn failed(&mut self, now: Timestamp, key: CallKey, then: Then) {
        let Some(pending) = self.calls.get_mut(&key) else { return };
        if let (Place::InFlight { process, .. }, Then::BackOff | Then::AskOwner) =
            (pending.place, then)
        {
            pending.failed_by = Some(process);
        }
        let has_owner = matches!(self.addressee(key), Addressee::Owner(_));
        match then {
            Then::AskAgain => self.take_back([key]),
            Then::AskOwner if has_owner => self.take_back([key]),
            Then::AskOwner | Then::BackOff => self.back_off(now, key),
        }
    }

    /// After a failed attempt: later, or parked where no process is left.
    fn back_off(&mut self, now: Timestamp, key: CallKey) {
        self.leave(key);
        let parked = self.lane_of(key).is_none_or(|lane| lane.processes.is_empty());
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.failures = pending.failures.saturating_add(1);
        if parked {
            return self.enter_due(key);
        }
        let failures = pending.failures;
        let delay_ms = match &pending.call.step {
            None => self.backoff.delay_ms(failures),
            Some(step) => self.backoff.jittered(step.retry.pause_ms(failures)),
        };
        let until = now.after_ms(delay_ms);
        pending.place = Place::Delayed { until };
        let resource = pending.call.resource.clone();
        self.lanes.entry(resource).or_default().delayed.insert(key);
        self.timers.insert((until, key));
    }

    fn take_back(&mut self, keys: impl IntoIterator<Item = CallKey>) {
        for key in keys {
            self.leave(key);
            self.enter_due(key);
        }
    }

    fn undelay(&mut self, resource: &ResourceKey) {
        let Some(lane) = self.lanes.get(resource) else { return };
        self.take_back(lane.delayed.clone());
    }

    /// The due calls of an owner that has come are for it.
    fn give_to_owner(&mut self, resource: &ResourceKey, id: ProcessId) {
        let name = self.processes.get(&id).and_then(|process| process.name.as_deref());
        let lane = self.lanes.get(resource);
        let its = name.zip(lane).and_then(|(name, lane)| lane.ownerless.get(lasting(name)));
        let its = its.cloned().unwrap_or_default();
        self.take_back(its);
    }

    /// Where all were silent a call is given to one of them for want of a better one.
    fn take_from_silent(&mut self, resources: &BTreeSet<ResourceKey>, better: ProcessId) {
        let others = self.processes.iter().filter(|(id, _)| **id != better);
        let silent = others.map(|(_, process)| process).filter(|process| process.silent);
        let in_flight = silent.flat_map(|process| process.in_flight.iter().copied());
        let is_of_them = |key: &CallKey| {
            self.lane_key(*key).is_some_and(|resource| resources.contains(resource))
        };
        let its: Vec<CallKey> = in_flight.filter(is_of_them).collect();
        self.take_back(its);
    }

    fn enter_due(&mut self, key: CallKey) {
        let to = self.addressee(key);
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.place = Place::Due { to };
        self.lanes.entry(pending.call.resource.clone()).or_default().add_due(key, pending);
    }

    fn enter_flight(&mut self, now: Timestamp, key: CallKey, process: ProcessId) -> Call {
        self.leave(key);
        let until = now.after_ms(self.settings.answer_timeout_ms);
        let pending = self.calls.get_mut(&key).expect("a due call is among the calls");
        let then = match pending.place.addressee() {
            Addressee::AnyMeanwhile => Then::AskOwner,
            Addressee::Any | Addressee::Owner(_) => Then::BackOff,
        };
        pending.place = Place::InFlight { process, until, then };
        let call = pending.call.clone();
        self.lanes.entry(call.resource.clone()).or_default().in_flight += 1;
        self.processes.entry(process).or_default().in_flight.insert(key);
        self.timers.insert((until, key));
        call
    }

    /// Takes a call out of its place, which its next place must follow.
    fn leave(&mut self, key: CallKey) {
        let Some(pending) = self.calls.get(&key) else { return };
        let lane = self.lanes.entry(pending.call.resource.clone()).or_default();
        match pending.place {
            Place::Due { .. } => lane.remove_due(key, pending),
            Place::Delayed { until } => {
                lane.delayed.remove(&key);
                self.timers.remove(&(until, key));
            }
            Place::InFlight { process, until, .. } => {
                lane.in_flight -= 1;
                self.timers.remove(&(until, key));
                if let Some(process) = self.processes.get_mut(&process) {
                    process.in_flight.remove(&key);
                }
            }
        }
    }

    fn remove(&mut self, key: CallKey) {
        self.leave(key);
        let Some(pending) = self.calls.remove(&key) else { return };
        let resource = pending.call.resource;
        if !self.lanes.get(&resource).is_some_and(Lane::is_idle) {
            return;
        }
        for id in self.lanes.remove(&resource).into_iter().flat_map(|lane| lane.processes) {
            if let Some(process) = self.processes.get_mut(&id) {
                process.resources.remove(&resource);
            }
        }
    }

    fn lane_of(&self, key: CallKey) -> Option<&Lane> {
        self.lanes.get(self.lane_key(key)?)
    }

    fn lane_key(&self, key: CallKey) -> Option<&ResourceKey> {
        self.calls.get(&key).map(|pending| &pending.call.resource)
    }
}
