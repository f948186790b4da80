//! Virtual time, tasks, chance and the log: what every simulated process runs on.
//!
//! One queue of tasks that are ready and one of timers, both in a fixed order. Nothing waits for a
//! real clock, socket or thread: when no task is ready, time jumps to the next timer. A process is
//! the set of tasks of one [`Owner`]; killing it drops them between two polls, and freezing it
//! keeps them from being polled.

mod executor;
mod log;
mod timer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::plan::{Fault, Faults, Plan};
use crate::random::Random;

pub(crate) use executor::RunEnd;
pub(crate) use log::LogMode;
pub(crate) use timer::Sleep;

/// A millisecond of virtual time, which counts microseconds.
pub(crate) const MS: u64 = 1_000;
/// A second of virtual time.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// The process that a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Network, faults and judge: never killed.
    World,
    Server(usize),
    Client(usize),
    Database(usize),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Server(index) => write!(f, "server {index}"),
            Self::Client(index) => write!(f, "client {index}"),
            Self::Database(index) => write!(f, "database {index}"),
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The world of one run: shared by everything that is simulated.
pub(crate) struct World {
    pub(crate) plan: Plan,
    state: Mutex<State>,
}

struct State {
    now: u64,
    random: Random,
    timers: timer::Timers,
    log: LogMode,
    faults: Faults,
    spawned: Vec<(Owner, Task)>,
    killed: BTreeSet<Owner>,
    frozen: BTreeMap<Owner, u64>,
    faulty: bool,
}

impl World {
    pub(crate) fn new(plan: Plan, log: LogMode) -> Arc<Self> {
        let state = State {
            now: 0,
            // Not the sequence that the plan was drawn from: a smaller plan draws the same chances.
            random: Random::new(plan.seed ^ 0x5EED_0F7A_11E0_0001),
            timers: timer::Timers::default(),
            log,
            faults: Faults::default(),
            spawned: Vec::new(),
            killed: BTreeSet::new(),
            frozen: BTreeMap::new(),
            faulty: true,
        };
        Arc::new(Self { plan, state: Mutex::new(state) })
    }

    /// Returns the microseconds since the start of the run.
    pub(crate) fn now(&self) -> u64 {
        self.lock().now
    }

    /// Draws from the run's sequence.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.lock().random)
    }

    /// Draws a number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        self.draw(|random| random.between(low, high))
    }

    /// Draws whether a fault strikes here, and counts it if so.
    ///
    /// Draws only if the plan has the fault: a plan without it takes nothing from the sequence.
    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let mut state = self.lock();
        let permille = self.plan.permille(fault);
        let strikes = permille > 0 && state.faulty && state.random.happens(permille);
        if strikes {
            state.faults.count(fault);
        }
        strikes
    }

    /// Counts a fault that was chosen, not drawn by [`strikes`](Self::strikes).
    pub(crate) fn count_fault(&self, fault: Fault) {
        self.lock().faults.count(fault);
    }

    /// Ends the faults: from here on none strikes. A frozen process goes on when its time comes.
    pub(crate) fn end_faults(&self) {
        self.lock().faulty = false;
    }

    /// Returns whether faults still strike.
    pub(crate) fn faulty(&self) -> bool {
        self.lock().faulty
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }

    /// Writes a line to the log. The text is built only if the log is kept.
    pub(crate) fn log(&self, owner: Owner, text: impl FnOnce() -> String) {
        let mut state = self.lock();
        let now = state.now;
        state.log.line(now, owner, text);
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        self.lock().log.take()
    }

    /// Runs a task until it ends or its owner is killed.
    pub(crate) fn spawn(&self, owner: Owner, task: impl Future<Output = ()> + Send + 'static) {
        self.lock().spawned.push((owner, Box::pin(task)));
    }

    /// Drops every task of the owner before anything else is polled.
    pub(crate) fn kill(&self, owner: Owner) {
        let mut state = self.lock();
        state.killed.insert(owner);
        state.frozen.remove(&owner);
        // Tasks that are not admitted yet belong to the process that dies.
        state.spawned.retain(|(of, _)| *of != owner);
    }

    /// Keeps the owner's tasks from being polled for a time.
    pub(crate) fn freeze(&self, owner: Owner, duration: u64) {
        let mut state = self.lock();
        let until = state.now + duration;
        state.frozen.insert(owner, until);
    }

    /// Returns a future that ends after `duration` microseconds.
    pub(crate) fn sleep(self: &Arc<Self>, duration: u64) -> Sleep {
        Sleep::until(self, self.now().saturating_add(duration))
    }

    /// Returns a future that ends at a point in time.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: u64) -> Sleep {
        Sleep::until(self, at)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plan", &self.plan).finish_non_exhaustive()
    }
}
