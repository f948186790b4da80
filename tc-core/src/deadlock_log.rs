//! The deadlocks that were refused last, for operators. They live in memory alone, and no decision
//! depends on them.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::contract::{Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::global::globals::Globals;
use crate::operator::waits::{WaitedFor, WaitingGlobal, brief};

/// The most deadlocks that are kept. Too few: a burst pushes out the one that is looked for. Too
/// many: memory.
const DEADLOCKS_MAX: usize = 100;
/// The most members that are kept of one.
const MEMBERS_MAX: usize = 32;

/// The kept deadlocks, the latest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadlockLog {
    kept: VecDeque<RefusedDeadlock>,
}

/// A cycle of waits that a request would have closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDeadlock {
    /// When the request was refused.
    pub at: Timestamp,
    /// The cycle as it was then: each waits for the next, the last for the first, and the refused
    /// one comes first. Not all of it where it is long.
    pub cycle: Vec<DeadlockMember>,
    /// How many globals were in it.
    pub length: usize,
}

/// A global in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockMember {
    /// The global.
    pub global: WaitingGlobal,
    /// The thing that it waited for.
    pub waited_for: Option<WaitedFor>,
}

impl DeadlockLog {
    fn add(&mut self, deadlock: RefusedDeadlock) {
        if self.kept.len() >= DEADLOCKS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(deadlock);
    }
}

impl Globals<'_> {
    /// Remembers a cycle that is about to be opened.
    pub(crate) fn log_deadlock(&mut self, cycle: &[Xid]) {
        let next = cycle.iter().cycle().skip(1);
        let members = cycle.iter().zip(next).take(MEMBERS_MAX);
        let members = members.map(|(&xid, &next)| DeadlockMember {
            global: brief(xid, self.globals.get(xid), self.on.address),
            waited_for: self.waited_for(xid, next),
        });
        let cycle_shown = members.collect();
        let deadlock = RefusedDeadlock { at: self.on.now, cycle: cycle_shown, length: cycle.len() };
        self.deadlocks.add(deadlock);
    }

    /// The row or the named lock for which a global waits for another one.
    fn waited_for(&self, xid: Xid, next: Xid) -> Option<WaitedFor> {
        let rows = &*self.rows;
        let row = rows.waiters.of_global(xid).find_map(|id| {
            let found = rows.each_in_the_way(id, |row, way| match way.blocker() {
                Some(blocker) if blocker == next => ControlFlow::Break(row),
                Some(_) | None => ControlFlow::Continue(()),
            });
            found.break_value()
        });
        let name = || self.leases.name_between(xid, next).map(WaitedFor::named_lock);
        row.map(|row| WaitedFor::row(&rows.table, row)).or_else(name)
    }
}

impl Coordinator {
    /// Returns the deadlocks that were refused last, the latest first.
    #[must_use]
    pub fn refused_deadlocks(&self) -> Vec<RefusedDeadlock> {
        self.deadlocks.kept.iter().rev().cloned().collect()
    }

    /// Returns those of them in which a request of this global was refused, the latest first.
    #[must_use]
    pub fn refused_deadlocks_of(&self, xid: Xid) -> Vec<RefusedDeadlock> {
        let kept = self.deadlocks.kept.iter().rev();
        let refused = kept.filter(|it| it.cycle.first().is_some_and(|it| it.global.xid == xid));
        refused.cloned().collect()
    }
}

impl WaitedFor {
    fn named_lock(name: Arc<str>) -> Self {
        Self::NamedLock { name }
    }
}
