//! The dispatcher around the queue: the connected processes, the sinks of their calls, and the
//! timer.
//!
//! All work runs on the caller's task under one mutex that is held briefly. Only the timer has a
//! task of its own. Which call goes where is decided in [`Queue`], not here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use handfast_core::{Effect, PhaseTwoOutcome, RowStanding, Timestamp, Xid};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::call::{CallReply, ProcessId, ResourceKey};
use super::next_attempt::NextAttempt;
use super::process::{CallSink, NewProcess, ProcessView, RegisteredResource, ResourceMatcher};
use super::queue::Queue;
use super::resource_queue::ResourceLoad;
use super::{EffectSink, Settings};
use crate::clock::Clock;
use crate::crash_point::crash_point;
use crate::metrics::{count_dirty_write, count_retries};
use crate::recent::{self, Timed};
use crate::spans::{CallSpans, Leaving, Spans};
use crate::turned_away::{PortName, Why, note};

/// Carries phase-two calls to processes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    /// Notified when the next deadline may have become earlier.
    moved: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    connected: BTreeMap<ProcessId, Connected>,
    /// A few matchers, fixed at the start.
    matchers: Vec<(ProcessId, Arc<dyn ResourceMatcher>)>,
    id_last: u64,
    spans: CallSpans,
    /// The deadline that the timer sleeps until.
    alarm: Option<Timestamp>,
}

#[derive(Debug)]
struct Connected {
    process: NewProcess,
    since: Timestamp,
    /// Labels by key. A map, because one registration may name a thousand resources.
    resources: BTreeMap<ResourceKey, Option<Arc<str>>>,
    sink: Arc<dyn CallSink>,
}

impl Dispatcher {
    /// Starts without calls and without processes. The returned task is the timer; the caller
    /// aborts it when the server stops.
    #[must_use]
    pub fn start(clock: Arc<dyn Clock>, settings: Settings, seed: u64) -> (Self, JoinHandle<()>) {
        let (dispatcher, timer) = Self::prepare(clock, settings, seed);
        (dispatcher, tokio::spawn(timer))
    }

    /// Like [`Dispatcher::start`], but leaves running the timer to the caller.
    pub fn prepare(
        clock: Arc<dyn Clock>,
        settings: Settings,
        seed: u64,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let queue = Queue::new(settings, seed);
        let (connected, matchers) = (BTreeMap::new(), Vec::new());
        let spans = CallSpans::default();
        let state = State { queue, connected, matchers, id_last: 0, spans, alarm: None };
        let shared = Shared { state: Mutex::new(state), clock, moved: Notify::new() };
        let dispatcher = Self { shared: Arc::new(shared) };
        let timer = dispatcher.clone().run_timer();
        (dispatcher, timer)
    }

    /// Has the spans of calls go there.
    pub fn export_spans(&self, spans: Spans) {
        self.lock().spans = CallSpans::new(spans);
    }

    /// Returns where the spans of calls go.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.lock().spans.sink().clone()
    }

    /// Adds a connected process. Its calls go to the sink until the registration is dropped.
    #[must_use]
    pub fn connect(&self, process: NewProcess, sink: Arc<dyn CallSink>) -> ProcessRegistration {
        let since = self.shared.clock.now();
        let mut state = self.lock();
        state.id_last += 1;
        let id = ProcessId(state.id_last);
        state.queue.connected(id, Arc::clone(&process.client_id));
        state.connected.insert(id, Connected { process, since, resources: BTreeMap::new(), sink });
        self.pump(&mut state);
        ProcessRegistration { dispatcher: self.clone(), id }
    }

    /// Like [`Dispatcher::connect`], for an executor of calls whose resources no process registers.
    /// The matcher claims resources that already have calls as well as later ones.
    #[must_use]
    pub fn connect_claiming(
        &self,
        process: NewProcess,
        sink: Arc<dyn CallSink>,
        matcher: Arc<dyn ResourceMatcher>,
    ) -> ProcessRegistration {
        let registration = self.connect(process, sink);
        let mut state = self.lock();
        state.matchers.push((registration.id, matcher));
        // The engine may have gained the lead, and owed its calls, before this registration.
        let owed = state.queue.loads().into_iter().map(|load| load.resource);
        owed.for_each(|resource| state.claim(&resource));
        self.pump(&mut state);
        drop(state);
        registration
    }

    /// Returns the connected processes, the longest connected first.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessView> {
        self.processes_within(usize::MAX, usize::MAX)
    }

    /// Like [`Dispatcher::processes`], limited to `max` processes with `resources_max` resources
    /// each.
    #[must_use]
    pub fn processes_within(&self, max: usize, resources_max: usize) -> Vec<ProcessView> {
        let state = self.lock();
        let view = |(id, connected): (&ProcessId, &Connected)| ProcessView {
            process: connected.process.clone(),
            since: connected.since,
            resources: connected.resources.iter().take(resources_max).map(registered).collect(),
            resource_count: connected.resources.len(),
            in_flight: state.queue.in_flight(*id),
        };
        state.connected.iter().take(max).map(view).collect()
    }

    /// Returns the number of connected processes.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.lock().connected.len()
    }

    /// Returns the label that a connected process gave the resource.
    #[must_use]
    pub fn label(&self, resource: &ResourceKey) -> Option<Arc<str>> {
        let state = self.lock();
        let mut served = state.connected.values();
        served.find_map(|connected| connected.resources.get(resource).cloned().flatten())
    }

    /// Returns the clock that calls are timed by.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    pub(crate) fn shared_clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// Returns what is owed to the branches of a global, as [`Queue::next_attempts`] does.
    #[must_use]
    pub fn next_attempts(&self, xid: Xid, max: usize) -> Vec<NextAttempt> {
        self.lock().queue.next_attempts(xid, max)
    }

    /// Returns the phase-two load of each resource.
    #[must_use]
    pub fn loads(&self) -> Vec<ResourceLoad> {
        self.lock().queue.loads()
    }

    /// Returns the client ids of the processes that have the resource and may have registered the
    /// branch, by the rule of [`Queue::owners`].
    #[must_use]
    pub fn owners(&self, resource: &ResourceKey, registered_by: Option<&str>) -> Vec<Arc<str>> {
        let state = self.lock();
        let owners = state.queue.owners(resource, registered_by).into_iter();
        let client_id = |id| state.connected.get(&id).map(|it| Arc::clone(&it.process.client_id));
        owners.filter_map(client_id).collect()
    }

    /// Takes answers that a process sent outside the stream on which it received the calls. Returns
    /// the answers that count, as [`ProcessRegistration::outcomes`] does; none if no such process
    /// is connected.
    #[must_use]
    pub fn outcomes(&self, client_id: &str, answers: Vec<CallReply>) -> Vec<CallReply> {
        let is_its = |connected: &Connected| *connected.process.client_id == *client_id;
        // The latest connection: an earlier one may have died without notice.
        let by = self.lock().connected.iter().rfind(|(_, it)| is_its(it)).map(|(id, _)| *id);
        let Some(by) = by else {
            let what = format_args!("{} answer(s) ignored: it is not connected", answers.len());
            note(PortName::Answers, Why::Malformed, Some(&client_id), &what);
            return Vec::new();
        };
        self.accept(by, answers)
    }

    fn accept(&self, by: ProcessId, mut answers: Vec<CallReply>) -> Vec<CallReply> {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        answers.retain(|answer| state.may_answer(by, answer));
        for answer in &answers {
            state.spans.end(answer);
            let was_owed = has_dirty_rows(answer) && state.queue.resource_of(answer).is_some();
            if let Some(owed_ms) = state.queue.outcome(now, Some(by), answer) {
                let owed = Duration::from_millis(owed_ms);
                metrics::histogram!("handfast_phase_two_seconds").record(owed);
                recent::record(Timed::PhaseTwo, owed);
            }
            // A refusal that counts ends the call; a repeated or late one does not.
            if was_owed && state.queue.resource_of(answer).is_none() {
                count_dirty_write();
            }
        }
        self.pump(&mut state);
        answers
    }

    async fn run_timer(self) {
        loop {
            let moved = self.shared.moved.notified();
            let due = {
                let mut state = self.lock();
                // Set under the lock under which `pump` compares: no deadline is missed.
                state.alarm = state.queue.next_deadline();
                state.alarm
            };
            let Some(due) = due else {
                moved.await;
                continue;
            };
            let reached = self.shared.clock.reach(due);
            tokio::select! {
                biased;
                () = reached => {}
                () = moved => continue,
            }
            let mut state = self.lock();
            state.queue.tick(self.shared.clock.now());
            self.pump(&mut state);
        }
    }

    /// Sends the calls that can be sent, and wakes the timer if it would sleep past a deadline.
    fn pump(&self, state: &mut State) {
        let now = self.shared.clock.now();
        for mut batch in state.queue.sends(now) {
            if let Some(connected) = state.connected.get(&batch.process) {
                let leaving = Leaving {
                    now,
                    process: &connected.process.client_id,
                    together: batch.calls.len(),
                };
                batch.calls.iter_mut().for_each(|call| state.spans.begin(leaving, call));
                connected.sink.put(batch);
                crash_point("mid-dispatch");
            }
        }
        count_retries(state.queue.take_resent());
        // A deadline later than the alarm needs no wake-up: the timer looks again at its alarm.
        let sleeps_past = |due| state.alarm.is_none_or(|alarm| due < alarm);
        if state.queue.next_deadline().is_some_and(sleeps_past) {
            self.shared.moved.notify_one();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no holder of the dispatcher lock panics")
    }
}

impl State {
    /// Takes an effect, and assigns its resource to the process that claims it, if one does.
    fn take(&mut self, now: Timestamp, effect: Effect) {
        if let Effect::Hold { xid, branch } = effect {
            self.spans.hold(xid, branch);
        }
        let resource = self.claimable(&effect);
        self.queue.take(now, effect);
        // After the call is queued: a claim is kept only while the resource has calls.
        resource.into_iter().for_each(|resource| self.claim(&resource));
    }

    fn claimable(&self, effect: &Effect) -> Option<ResourceKey> {
        let (id, mode) = match effect {
            Effect::PhaseTwo(call) => (&call.resource, call.mode),
            Effect::Vote(call) => (&call.resource, call.mode),
            Effect::Hold { .. } | Effect::Reply { .. } | Effect::Alert(_) => return None,
        };
        (!self.matchers.is_empty()).then(|| ResourceKey { id: Arc::clone(id), mode })
    }

    fn claim(&mut self, resource: &ResourceKey) {
        for (process, matcher) in &self.matchers {
            if let Some(calls_max) = matcher.calls_max(resource) {
                self.queue.claimed(*process, resource, calls_max);
            }
        }
    }

    /// Returns whether the resource is claimed, so that no process may register it.
    fn is_claimed(&self, resource: &ResourceKey) -> bool {
        self.matchers.iter().any(|(_, matcher)| matcher.calls_max(resource).is_some())
    }

    /// Returns whether this process claims the resource.
    fn is_claimed_by(&self, resource: &ResourceKey, by: ProcessId) -> bool {
        let its = self.matchers.iter().filter(|(process, _)| *process == by);
        its.map(|(_, matcher)| matcher).any(|matcher| matcher.calls_max(resource).is_some())
    }

    /// Returns the other connections of the same process.
    fn other_connections(&self, id: ProcessId) -> Vec<ProcessId> {
        let Some(own) = self.connected.get(&id) else { return Vec::new() };
        let same = |(other, connected): &(&ProcessId, &Connected)| {
            **other != id && connected.process.client_id == own.process.client_id
        };
        self.connected.iter().filter(same).map(|(other, _)| *other).collect()
    }
}

impl EffectSink for Dispatcher {
    fn take(&self, effects: Vec<Effect>) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        effects.into_iter().for_each(|effect| state.take(now, effect));
        self.pump(&mut state);
    }

    fn clear(&self) {
        let mut state = self.lock();
        state.queue.clear();
        state.spans.clear();
    }
}

/// A connected process's registration with the dispatcher. Dropping it disconnects the process.
#[derive(Debug)]
pub struct ProcessRegistration {
    dispatcher: Dispatcher,
    id: ProcessId,
}

impl ProcessRegistration {
    /// Adds resources for which the process can do phase two. Ignores claimed resources.
    pub fn register(&self, mut resources: Vec<RegisteredResource>) {
        let mut state = self.dispatcher.lock();
        resources.retain(|resource| {
            let is_claimed = state.is_claimed(&resource.key);
            if is_claimed {
                let what = format_args!("{} is not for a process to register", resource.key.id);
                note(PortName::Answers, Why::Malformed, None, &what);
            }
            !is_claimed
        });
        state.queue.registered(self.id, resources.iter().map(|resource| resource.key.clone()));
        // Another connection of the same process may be dead without either side having noticed.
        // Its calls move to the connection that the process has just used.
        state.other_connections(self.id).into_iter().for_each(|other| state.queue.distrust(other));
        if let Some(connected) = state.connected.get_mut(&self.id) {
            let labelled = resources.into_iter().map(|resource| (resource.key, resource.label));
            connected.resources.extend(labelled);
        }
        self.dispatcher.pump(&mut state);
    }

    /// Returns how many resources the process would have with these.
    #[must_use]
    pub fn count_with(&self, resources: &[RegisteredResource]) -> usize {
        let state = self.dispatcher.lock();
        let known = state.connected.get(&self.id).map(|it| it.resources.keys());
        let wanted = resources.iter().map(|resource| &resource.key);
        known.into_iter().flatten().chain(wanted).collect::<BTreeSet<_>>().len()
    }

    /// Takes the process's answers to calls and returns those that count. An answer for a resource
    /// that the process has never registered does not: the process cannot have executed the call.
    #[must_use]
    pub fn outcomes(&self, answers: Vec<CallReply>) -> Vec<CallReply> {
        let answers = self.dispatcher.accept(self.id, answers);
        if !answers.is_empty() {
            crash_point("after-outcome");
        }
        answers
    }
}

impl State {
    fn may_answer(&self, by: ProcessId, answer: &CallReply) -> bool {
        // The call is not owed here, such as after a change of leader. The core judges the answer.
        let Some(resource) = self.queue.resource_of(answer) else { return true };
        let Some(connected) = self.connected.get(&by) else { return false };
        let may = connected.resources.contains_key(&resource) || self.is_claimed_by(&resource, by);
        if !may {
            let client = &*connected.process.client_id;
            let CallReply { xid, branch, .. } = answer;
            let what = format_args!("answer for {xid}/{branch} on {} ignored", resource.id);
            note(PortName::Answers, Why::Malformed, Some(&client), &what);
        }
        may
    }
}

/// Returns whether a rollback was refused because rows were written by others.
fn has_dirty_rows(answer: &CallReply) -> bool {
    match &answer.outcome {
        PhaseTwoOutcome::Refused { rows, .. } => {
            rows.dirty > 0 || rows.listed.iter().any(|row| row.standing == RowStanding::Dirty)
        }
        PhaseTwoOutcome::Done
        | PhaseTwoOutcome::Output { .. }
        | PhaseTwoOutcome::Retryable { .. } => false,
    }
}

fn registered((key, label): (&ResourceKey, &Option<Arc<str>>)) -> RegisteredResource {
    RegisteredResource { key: key.clone(), label: label.clone() }
}

impl Drop for ProcessRegistration {
    fn drop(&mut self) {
        let mut state = self.dispatcher.lock();
        state.connected.remove(&self.id);
        state.matchers.retain(|(process, _)| *process != self.id);
        state.queue.disconnected(self.id);
        self.dispatcher.pump(&mut state);
    }
}
