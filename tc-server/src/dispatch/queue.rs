//! Which phase-two call goes to which process, and when. Pure: time and outcomes come in, batches
//! of calls come out.
//!
//! Each resource has a lane of its own, so a dead or slow service delays nobody else's calls. A
//! call is due, delayed by back-off, or in flight with a process. Where no process has registered
//! the resource its calls are parked: due, without a timer, until one registers.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{BranchId, Decision, Effect, PhaseTwoOutcome, Timestamp, Xid};

use super::call::{Answer, Ask, Call, CallBatch, ProcessId, ResourceKey};
use super::lane::{CallKey, Lane, ResourceLoad};
use super::{Backoff, Settings};

/// All calls that are owed and all processes that could carry them out.
#[derive(Debug)]
pub struct Queue {
    settings: Settings,
    backoff: Backoff,
    calls: BTreeMap<CallKey, Pending>,
    lanes: BTreeMap<ResourceKey, Lane>,
    processes: BTreeMap<ProcessId, Process>,
    /// When delayed calls become due and calls in flight count as unanswered.
    timers: BTreeSet<(Timestamp, CallKey)>,
}

#[derive(Debug)]
struct Pending {
    call: Call,
    place: Place,
    failures: u32,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Due,
    Delayed { until: Timestamp },
    InFlight { process: ProcessId, until: Timestamp, then: Then },
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    BackOff,
    /// The call was changed while it was in flight: the answer is to the earlier one.
    AskAgain,
}

#[derive(Debug, Default)]
struct Process {
    resources: BTreeSet<ResourceKey>,
    in_flight: BTreeSet<CallKey>,
    /// It left a call unanswered and has answered none since: others are preferred.
    silent: bool,
    /// How many calls it takes at a time, if fewer than others.
    calls_max: Option<usize>,
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
        if self.calls.get(&key).is_some_and(|earlier| is_reversed(earlier.call.ask, call.ask)) {
            self.remove(key);
        }
        match self.calls.get_mut(&key) {
            Some(Pending { call: earlier, place: Place::InFlight { then, .. }, .. }) => {
                if (earlier.ask, earlier.resolution) != (call.ask, call.resolution) {
                    *then = Then::AskAgain;
                }
                *earlier = call;
            }
            Some(pending) => {
                pending.call = call;
                self.leave(key);
                self.enter_due(key);
            }
            None => {
                let failures = call.attempts;
                let pending = Pending { call, place: Place::Due, failures, since: now };
                self.calls.insert(key, pending);
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
            lane.delayed.clear();
            lane.in_flight = 0;
        }
        self.lanes.retain(|_, lane| !lane.is_idle());
        for process in self.processes.values_mut() {
            process.resources.retain(|resource| self.lanes.contains_key(resource));
        }
    }

    /// A process can do phase two of these resources: their delayed calls are due at once, and so
    /// are those that a silent process has.
    pub fn registered(&mut self, id: ProcessId, resources: impl IntoIterator<Item = ResourceKey>) {
        let resources: BTreeSet<ResourceKey> = resources.into_iter().collect();
        for resource in &resources {
            let lane = self.lanes.entry(resource.clone()).or_default();
            if !lane.processes.contains(&id) {
                lane.processes.push(id);
            }
            self.processes.entry(id).or_default().resources.insert(resource.clone());
            self.undelay(resource);
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
        for resource in &process.resources {
            let Some(lane) = self.lanes.get_mut(resource) else { continue };
            lane.processes.retain(|other| *other != id);
            if lane.processes.is_empty() {
                self.undelay(resource);
            }
        }
        self.take_back(process.in_flight);
        self.lanes.retain(|_, lane| !lane.is_idle());
    }

    /// A process is heard from on another connection, so that this one may be dead without notice:
    /// what it has not answered is due, and others are preferred. It is not given up, for the other
    /// connection may be the dead one, whose greeting was read late.
    pub fn doubt(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.silent = true;
        let in_flight = process.in_flight.clone();
        self.take_back(in_flight);
    }

    /// The resource of a call that is owed.
    #[must_use]
    pub fn resource_of(&self, answer: &Answer) -> Option<ResourceKey> {
        self.calls.get(&(answer.xid, answer.branch)).map(|pending| resource_of(&pending.call))
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
            (PhaseTwoOutcome::Refused { .. }, Some(Then::BackOff))
                if answer.ask != Ask::Finish(Decision::Commit) =>
            {
                self.remove(key);
            }
            // A commit cannot be refused, so it is asked for again.
            (
                PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. },
                Some(Then::BackOff),
            ) => self.back_off(now, key),
            (
                PhaseTwoOutcome::Refused { .. } | PhaseTwoOutcome::Retryable { .. },
                Some(Then::AskAgain),
            ) => {
                self.leave(key);
                self.enter_due(key);
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
                Some(Place::Delayed { .. } | Place::Due) | None => {
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
        // Only what it is given may cost a process its turn.
        self.lanes.get(resource).filter(|lane| lane.has_due())?;
        let (process, room) = self.pick(resource)?;
        let lane = self.lanes.get(resource)?;
        // Rollbacks before commits: their rows stay locked until they are done. What is decided
        // before what is not.
        let (ask, keys) = lane.due.iter().rev().find(|(_, keys)| !keys.is_empty())?;
        let ask = *ask;
        let mut bytes = 0;
        let batch: Vec<CallKey> = keys
            .iter()
            .copied()
            .take(room.min(self.settings.batch_branches_max))
            .take_while(|key| {
                let first = bytes == 0;
                bytes += bytes_of(&self.calls[key].call);
                first || bytes <= self.settings.batch_bytes_max
            })
            .collect();
        let calls = batch.into_iter().map(|key| self.enter_flight(now, key, process)).collect();
        Some(CallBatch { process, resource: resource.clone(), ask, calls })
    }

    /// The next process in turn that has room; silent ones only where all are silent.
    fn pick(&mut self, resource: &ResourceKey) -> Option<(ProcessId, usize)> {
        let lane = self.lanes.get_mut(resource)?;
        let in_turn =
            (0..lane.processes.len()).map(|step| (lane.next + step) % lane.processes.len());
        let candidates: Vec<(usize, &Process)> = in_turn
            .filter_map(|at| self.processes.get(&lane.processes[at]).map(|process| (at, process)))
            .collect();
        let all_silent = candidates.iter().all(|(_, process)| process.silent);
        let (at, room) = candidates
            .into_iter()
            .filter(|(_, process)| all_silent || !process.silent)
            .map(|(at, process)| {
                let max = process.calls_max.unwrap_or(self.settings.in_flight_max);
                (at, max.saturating_sub(process.in_flight.len()))
            })
            .find(|(_, room)| *room > 0)?;
        lane.next = (at + 1) % lane.processes.len();
        Some((lane.processes[at], room))
    }

    fn unanswered(&mut self, now: Timestamp, key: CallKey, process: ProcessId) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.silent = true;
        }
        let elsewhere = self.lane_of(key).is_some_and(|lane| lane.processes.len() > 1);
        if elsewhere {
            self.leave(key);
            self.enter_due(key);
        } else {
            self.back_off(now, key);
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
        let resource = resource_of(&pending.call);
        self.lanes.entry(resource).or_default().delayed.insert(key);
        self.timers.insert((until, key));
    }

    fn take_back(&mut self, in_flight: BTreeSet<CallKey>) {
        for key in in_flight {
            self.leave(key);
            self.enter_due(key);
        }
    }

    fn undelay(&mut self, resource: &ResourceKey) {
        let Some(lane) = self.lanes.get(resource) else { return };
        for key in lane.delayed.clone() {
            self.leave(key);
            self.enter_due(key);
        }
    }

    /// Where all were silent a call is given to one of them for want of a better one.
    fn take_from_silent(&mut self, resources: &BTreeSet<ResourceKey>, better: ProcessId) {
        let others = self.processes.iter().filter(|(id, _)| **id != better);
        let silent = others.map(|(_, process)| process).filter(|process| process.silent);
        let in_flight = silent.flat_map(|process| process.in_flight.iter().copied());
        let is_of_them = |key: &CallKey| {
            self.lane_key(*key).is_some_and(|resource| resources.contains(resource))
        };
        self.take_back(in_flight.filter(is_of_them).collect());
    }

    fn enter_due(&mut self, key: CallKey) {
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.place = Place::Due;
        let lane = self.lanes.entry(resource_of(&pending.call)).or_default();
        lane.due.entry(pending.call.ask).or_default().insert(key);
    }

    fn enter_flight(&mut self, now: Timestamp, key: CallKey, process: ProcessId) -> Call {
        self.leave(key);
        let until = now.after_ms(self.settings.answer_timeout_ms);
        let pending = self.calls.get_mut(&key).expect("a due call is among the calls");
        pending.place = Place::InFlight { process, until, then: Then::BackOff };
        let call = pending.call.clone();
        self.lanes.entry(resource_of(&call)).or_default().in_flight += 1;
        self.processes.entry(process).or_default().in_flight.insert(key);
        self.timers.insert((until, key));
        call
    }

    /// Takes a call out of its place, which its next place must follow.
    fn leave(&mut self, key: CallKey) {
        let Some(pending) = self.calls.get(&key) else { return };
        let lane = self.lanes.entry(resource_of(&pending.call)).or_default();
        match pending.place {
            Place::Due => {
                if let Some(due) = lane.due.get_mut(&pending.call.ask) {
                    due.remove(&key);
                }
            }
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
        let resource = resource_of(&pending.call);
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

impl Place {
    /// What follows a failure reported by this process, if the call is its own.
    fn answered_by(self, by: Option<ProcessId>) -> Option<Then> {
        match self {
            Self::InFlight { process, then, .. } if by.is_none_or(|by| by == process) => Some(then),
            Self::InFlight { .. } | Self::Due | Self::Delayed { .. } => None,
        }
    }
}

fn is_reversed(earlier: Ask, now: Ask) -> bool {
    matches!((earlier, now), (Ask::Finish(earlier), Ask::Finish(now)) if earlier != now)
}

fn bytes_of(call: &Call) -> usize {
    let outputs = call.step.iter().flat_map(|step| &step.outputs);
    call.application_data.len() + outputs.map(|given| given.output.len()).sum::<usize>()
}

fn resource_of(call: &Call) -> ResourceKey {
    call.resource.clone()
}
