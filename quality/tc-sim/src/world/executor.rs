//! Polls ready tasks in order, and lets time jump when none is ready.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::{Owner, Task, World};

/// The number of polls after which a run counts as endless.
const POLLS_MAX: u64 = 5_000_000;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The main task ended by itself.
    Done,
    /// Every task waits, and no timer is set.
    Stuck,
    /// A task panicked, or the polls were used up.
    Broken,
}

type TaskId = u64;

#[derive(Debug, Default)]
struct Ready {
    queue: Mutex<VecDeque<TaskId>>,
}

struct TaskWaker {
    ready: Arc<Ready>,
    task: TaskId,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }
}

impl Ready {
    fn push(&self, task: TaskId) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that is woken again before its turn is polled once, as by a real runtime.
        if !queue.contains(&task) {
            queue.push_back(task);
        }
    }

    fn pop(&self) -> Option<TaskId> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct TaskEntry {
    owner: Owner,
    task: Task,
    waker: Waker,
}

struct Executor<'w> {
    world: &'w Arc<World>,
    tasks: BTreeMap<TaskId, TaskEntry>,
    ready: Arc<Ready>,
    task_last: TaskId,
    polls: u64,
}

impl World {
    /// Runs a task and everything that it starts, until the task ends.
    ///
    /// `report` hears of a panic, and of a run that is endless.
    pub(crate) fn run(
        self: &Arc<Self>,
        main: impl Future<Output = ()> + Send + 'static,
        report: impl FnOnce(String),
    ) -> RunEnd {
        let ready = Arc::new(Ready::default());
        let mut executor =
            Executor { world: self, tasks: BTreeMap::new(), ready, task_last: 0, polls: 0 };
        let main = executor.admit(Owner::World, Box::pin(main));
        let ended = executor.run(main, report);
        // Tasks are dropped before the world is: their destructors use it.
        executor.tasks.clear();
        self.lock().spawned.clear();
        ended
    }
}

impl Executor<'_> {
    fn run(&mut self, main: TaskId, report: impl FnOnce(String)) -> RunEnd {
        while self.tasks.contains_key(&main) {
            // Before tasks are admitted: those of the next process have the same owner.
            self.drop_killed();
            self.admit_all();
            let polled = match self.ready.pop() {
                Some(task) => self.poll(task),
                None if self.advance_time() => Ok(()),
                None => return RunEnd::Stuck,
            };
            if let Err(what) = polled {
                report(what);
                return RunEnd::Broken;
            }
        }
        RunEnd::Done
    }

    fn admit_all(&mut self) {
        let spawned = std::mem::take(&mut self.world.lock().spawned);
        for (owner, task) in spawned {
            self.admit(owner, task);
        }
    }

    fn admit(&mut self, owner: Owner, task: Task) -> TaskId {
        self.task_last += 1;
        let id = self.task_last;
        let waker = Waker::from(Arc::new(TaskWaker { ready: Arc::clone(&self.ready), task: id }));
        self.tasks.insert(id, TaskEntry { owner, task, waker });
        self.ready.push(id);
        id
    }

    /// Drops the tasks of killed owners. Tasks that their destructors spawn are admitted after.
    fn drop_killed(&mut self) {
        let killed = std::mem::take(&mut self.world.lock().killed);
        if !killed.is_empty() {
            self.tasks.retain(|_, entry| !killed.contains(&entry.owner));
        }
    }

    fn poll(&mut self, id: TaskId) -> Result<(), String> {
        let Some(entry) = self.tasks.get_mut(&id) else { return Ok(()) };
        if let Some(until) = self.world.frozen_until(entry.owner) {
            // The wake-up is not lost: a process that goes on finds everything that came meanwhile.
            self.world.lock().timers.set(until, entry.waker.clone());
            return Ok(());
        }
        self.polls += 1;
        if self.polls > POLLS_MAX {
            return Err("the work never ends".to_owned());
        }
        let context = &mut Context::from_waker(&entry.waker);
        // A panic is a finding of this run, and must not end those of other seeds.
        match catch_unwind(AssertUnwindSafe(|| entry.task.as_mut().poll(context))) {
            Ok(Poll::Pending) => Ok(()),
            Ok(Poll::Ready(())) => {
                self.tasks.remove(&id);
                Ok(())
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                let owner = entry.owner;
                self.tasks.remove(&id);
                Err(format!("{owner} panicked: {}", text.unwrap_or_default()))
            }
        }
    }

    /// Lets time jump to the next timer. Returns whether there was one.
    fn advance_time(&self) -> bool {
        let next = self.world.lock().timers.pop();
        let Some((at, waker)) = next else { return false };
        let mut state = self.world.lock();
        // A timer may be set for a moment that has passed.
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
        true
    }
}

impl World {
    /// Returns when a frozen owner goes on.
    fn frozen_until(&self, owner: Owner) -> Option<u64> {
        let mut state = self.lock();
        let until = *state.frozen.get(&owner)?;
        if until <= state.now {
            state.frozen.remove(&owner);
            return None;
        }
        Some(until)
    }
}
