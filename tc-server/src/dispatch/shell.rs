//! The dispatcher around the queue: who is connected, where calls are put, and the timer.
//!
//! Everything happens under one short lock on the caller's task; only the passing of time has a
//! task of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use handfast_core::{Effect, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::call::{Answer, CallBatch, ProcessId, ResourceKey};
use super::lane::ResourceLoad;
use super::queue::Queue;
use super::{PhaseTwo, Settings};
use crate::clock::Clock;
use crate::crash_point::crash_point;
use crate::turned_away::{PortName, Why, note};

/// Where a process receives its calls, such as the outgoing queue of its connection.
pub trait CallSink: fmt::Debug + Send + Sync + 'static {
    /// Takes calls; must return at once. What cannot be delivered is noticed by the connection's
    /// end or by the answer's absence.
    fn put(&self, batch: CallBatch);
}

/// Resources that say themselves where to go, so that nobody registers them.
pub trait Claim: fmt::Debug + Send + Sync + 'static {
    /// How many calls at a time are taken, of all resources together; `None` for a resource that is
    /// not claimed.
    fn calls_max(&self, resource: &ResourceKey) -> Option<usize>;
}

/// A process that connects.
#[derive(Clone, Debug)]
pub struct NewProcess {
    /// Unique per process life, the same after a reconnect; or, of a client of Seata, of one
    /// connection, and the same but for the port at its end. Stored with the branches that the
    /// process registers.
    pub client_id: Arc<str>,
    /// The application it belongs to.
    pub application: Arc<str>,
    /// Library name and version.
    pub agent: Arc<str>,
    /// Its network address.
    pub peer: Arc<str>,
}

/// A resource as a process registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredResource {
    /// Id and mode.
    pub key: ResourceKey,
    /// For people: product, host and database. `None` where the process may have meant something
    /// else that nobody is to see: such a resource is not listed before something is owed of it.
    pub label: Option<Arc<str>>,
}

/// A connected process, for operators.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// Who it is.
    pub process: NewProcess,
    /// Since when it is connected.
    pub since: Timestamp,
    /// What it can do phase two for.
    pub resources: Vec<RegisteredResource>,
    /// How many they are, also where not all of them are here.
    pub resource_count: usize,
    /// Calls that it has and has not answered.
    pub in_flight: usize,
}

/// Carries phase-two calls to processes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    /// The next deadline may have moved.
    moved: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    connected: BTreeMap<ProcessId, Connected>,
    /// Few, and fixed at the start.
    claims: Vec<(ProcessId, Arc<dyn Claim>)>,
    id_last: u64,
    /// What the timer sleeps for.
    alarm: Option<Timestamp>,
}

#[derive(Debug)]
struct Connected {
    process: NewProcess,
    since: Timestamp,
    /// By key, with their labels: a registration names a thousand.
    resources: BTreeMap<ResourceKey, Option<Arc<str>>>,
    sink: Arc<dyn CallSink>,
}

impl Dispatcher {
    /// Starts with nothing owed and nobody connected. The task lets time pass; whoever stops the
    /// server aborts it.
    #[must_use]
    pub fn start(clock: Arc<dyn Clock>, settings: Settings, seed: u64) -> (Self, JoinHandle<()>) {
        let (dispatcher, timer) = Self::prepare(clock, settings, seed);
        (dispatcher, tokio::spawn(timer))
    }

    /// As [`Dispatcher::start`], but leaves it to the caller to run the task.
    pub fn prepare(
        clock: Arc<dyn Clock>,
        settings: Settings,
        seed: u64,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let queue = Queue::new(settings, seed);
        let (connected, claims) = (BTreeMap::new(), Vec::new());
        let state = State { queue, connected, claims, id_last: 0, alarm: None };
        let shared = Shared { state: Mutex::new(state), clock, moved: Notify::new() };
        let dispatcher = Self { shared: Arc::new(shared) };
        let timer = dispatcher.clone().let_time_pass();
        (dispatcher, timer)
    }

    /// A process has connected; its calls go to the sink until the seat is dropped.
    #[must_use]
    pub fn connect(&self, process: NewProcess, sink: Arc<dyn CallSink>) -> Seat {
        let since = self.shared.clock.now();
        let mut state = self.lock();
        state.id_last += 1;
        let id = ProcessId(state.id_last);
        state.queue.connected(id, Arc::clone(&process.client_id));
        state.connected.insert(id, Connected { process, since, resources: BTreeMap::new(), sink });
        self.pump(&mut state);
        Seat { dispatcher: self.clone(), id }
    }

    /// As [`Dispatcher::connect`], for what carries out the calls of resources that nobody
    /// registers: those that are owed, and those to come.
    #[must_use]
    pub fn connect_claiming(
        &self,
        process: NewProcess,
        sink: Arc<dyn CallSink>,
        claim: Arc<dyn Claim>,
    ) -> Seat {
        let seat = self.connect(process, sink);
        let mut state = self.lock();
        state.claims.push((seat.id, claim));
        let owed = state.queue.loads().into_iter().map(|load| load.resource);
        owed.for_each(|resource| state.claim(&resource));
        self.pump(&mut state);
        drop(state);
        seat
    }

    /// The connected processes, the longest connected first.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessView> {
        self.processes_within(usize::MAX, usize::MAX)
    }

    /// As [`Dispatcher::processes`], at most so many, with at most so many resources each.
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

    /// How many processes are connected.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.lock().connected.len()
    }

    /// What a connected process that serves the resource calls it.
    #[must_use]
    pub fn label(&self, resource: &ResourceKey) -> Option<Arc<str>> {
        let state = self.lock();
        let mut served = state.connected.values();
        served.find_map(|connected| connected.resources.get(resource).cloned().flatten())
    }

    /// The time that the dispatcher goes by.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// How much phase two each resource has to do.
    #[must_use]
    pub fn loads(&self) -> Vec<ResourceLoad> {
        self.lock().queue.loads()
    }

    /// The client ids of the processes that have a resource and may have registered this branch of
    /// it, as [`Queue::owners`] tells them.
    #[must_use]
    pub fn owners(&self, resource: &ResourceKey, registered_by: Option<&str>) -> Vec<Arc<str>> {
        let state = self.lock();
        let owners = state.queue.owners(resource, registered_by).into_iter();
        let client_id = |id| state.connected.get(&id).map(|it| Arc::clone(&it.process.client_id));
        owners.filter_map(client_id).collect()
    }

    /// A process answered calls outside of the stream that it received them on. Gives back the
    /// answers that count, as [`Seat::outcomes`] does: none if no such process is connected.
    #[must_use]
    pub fn outcomes(&self, client_id: &str, answers: Vec<Answer>) -> Vec<Answer> {
        let is_its = |connected: &Connected| *connected.process.client_id == *client_id;
        // The latest connection, if an earlier one has died without notice.
        let by = self.lock().connected.iter().rfind(|(_, it)| is_its(it)).map(|(id, _)| *id);
        let Some(by) = by else {
            let what = format_args!("{} answer(s) ignored: it is not connected", answers.len());
            note(PortName::Answers, Why::Malformed, Some(&client_id), &what);
            return Vec::new();
        };
        self.settle(by, answers)
    }

    fn settle(&self, by: ProcessId, mut answers: Vec<Answer>) -> Vec<Answer> {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        answers.retain(|answer| state.may_answer(by, answer));
        for answer in &answers {
            if let Some(owed_ms) = state.queue.outcome(now, Some(by), answer) {
                let owed = Duration::from_millis(owed_ms);
                metrics::histogram!("handfast_phase_two_seconds").record(owed);
            }
        }
        self.pump(&mut state);
        answers
    }

    async fn let_time_pass(self) {
        loop {
            let moved = self.shared.moved.notified();
            let due = {
                let mut state = self.lock();
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

    /// Sends what can be sent, and wakes the timer if it sleeps for too long.
    fn pump(&self, state: &mut State) {
        for batch in state.queue.sends(self.shared.clock.now()) {
            if let Some(connected) = state.connected.get(&batch.process) {
                connected.sink.put(batch);
                crash_point("mid-dispatch");
            }
        }
        let sleeps_past = |due| state.alarm.is_none_or(|alarm| due < alarm);
        if state.queue.next_deadline().is_some_and(sleeps_past) {
            self.shared.moved.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no holder of the dispatcher lock panics")
    }
}

impl State {
    /// Takes a call, and finds who carries it out if its resource is claimed.
    fn take(&mut self, now: Timestamp, effect: Effect) {
        let resource = self.claimable(&effect);
        self.queue.take(now, effect);
        resource.into_iter().for_each(|resource| self.claim(&resource));
    }

    fn claimable(&self, effect: &Effect) -> Option<ResourceKey> {
        let (id, mode) = match effect {
            Effect::PhaseTwo(call) => (&call.resource, call.mode),
            Effect::Vote(call) => (&call.resource, call.mode),
            Effect::Hold { .. } | Effect::Reply { .. } | Effect::NeedsOperator(_) => return None,
        };
        (!self.claims.is_empty()).then(|| ResourceKey { id: Arc::clone(id), mode })
    }

    fn claim(&mut self, resource: &ResourceKey) {
        for (process, claim) in &self.claims {
            if let Some(calls_max) = claim.calls_max(resource) {
                self.queue.claimed(*process, resource, calls_max);
            }
        }
    }

    /// Whether a resource is nobody's to register.
    fn is_claimed(&self, resource: &ResourceKey) -> bool {
        self.claims.iter().any(|(_, claim)| claim.calls_max(resource).is_some())
    }

    /// Whether this process is the one that claims the resource.
    fn claims(&self, by: ProcessId, resource: &ResourceKey) -> bool {
        let its = self.claims.iter().filter(|(process, _)| *process == by);
        its.map(|(_, claim)| claim).any(|claim| claim.calls_max(resource).is_some())
    }

    /// The other connections of the same process.
    fn others_of(&self, id: ProcessId) -> Vec<ProcessId> {
        let Some(own) = self.connected.get(&id) else { return Vec::new() };
        let same = |(other, connected): &(&ProcessId, &Connected)| {
            **other != id && connected.process.client_id == own.process.client_id
        };
        self.connected.iter().filter(same).map(|(other, _)| *other).collect()
    }
}

impl PhaseTwo for Dispatcher {
    fn take(&self, effects: Vec<Effect>) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        effects.into_iter().for_each(|effect| state.take(now, effect));
        self.pump(&mut state);
    }

    fn clear(&self) {
        self.lock().queue.clear();
    }
}

/// A process's place at the dispatcher; dropping it says that the process is gone.
#[derive(Debug)]
pub struct Seat {
    dispatcher: Dispatcher,
    id: ProcessId,
}

impl Seat {
    /// The process can do phase two of these resources from here on; of one that is claimed it
    /// cannot.
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
        // Another connection of the same process may be dead without either side's notice: its
        // calls move on to where the process is heard from.
        state.others_of(self.id).into_iter().for_each(|other| state.queue.doubt(other));
        if let Some(connected) = state.connected.get_mut(&self.id) {
            let labelled = resources.into_iter().map(|resource| (resource.key, resource.label));
            connected.resources.extend(labelled);
        }
        self.dispatcher.pump(&mut state);
    }

    /// How many resources the process would have with these.
    #[must_use]
    pub fn count_with(&self, resources: &[RegisteredResource]) -> usize {
        let state = self.dispatcher.lock();
        let known = state.connected.get(&self.id).map(|it| it.resources.keys());
        let wanted = resources.iter().map(|resource| &resource.key);
        known.into_iter().flatten().chain(wanted).collect::<BTreeSet<_>>().len()
    }

    /// The process answered calls. Gives back the answers that count: one for a resource that the
    /// process has never registered is none, since it cannot have carried the call out.
    #[must_use]
    pub fn outcomes(&self, answers: Vec<Answer>) -> Vec<Answer> {
        let answers = self.dispatcher.settle(self.id, answers);
        if !answers.is_empty() {
            crash_point("after-outcome");
        }
        answers
    }
}

impl State {
    fn may_answer(&self, by: ProcessId, answer: &Answer) -> bool {
        let Some(resource) = self.queue.resource_of(answer) else { return true };
        let Some(connected) = self.connected.get(&by) else { return false };
        let may = connected.resources.contains_key(&resource) || self.claims(by, &resource);
        if !may {
            let client = &*connected.process.client_id;
            let Answer { xid, branch, .. } = answer;
            let what = format_args!("answer for {xid}/{branch} on {} ignored", resource.id);
            note(PortName::Answers, Why::Malformed, Some(&client), &what);
        }
        may
    }
}

fn registered((key, label): (&ResourceKey, &Option<Arc<str>>)) -> RegisteredResource {
    RegisteredResource { key: key.clone(), label: label.clone() }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.dispatcher.lock();
        state.connected.remove(&self.id);
        state.claims.retain(|(process, _)| *process != self.id);
        state.queue.gone(self.id);
        self.dispatcher.pump(&mut state);
    }
}
