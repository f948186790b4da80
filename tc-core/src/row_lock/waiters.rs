//! The requests that wait for row locks.
//!
//! They live in memory alone; a server that takes the lead has none, and the clients ask again. The
//! queues of the single rows are in `table`; this module has each request as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::table::{LockId, Purpose, QueuePosition, QueuedClaim, Rank, WaitId};
use crate::collections::interner::BranchSite;
use crate::contract::{
    Asker, BranchId, Correlation, Holding, LockMode, Mode, RequestTrace, Timestamp, Xid,
};
use crate::shares::ShareTally;

/// A request that waits for locks.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) reply_to: Correlation,
    pub(crate) xid: Option<Xid>,
    /// The owner of the places that it takes in the rows' queues.
    pub(crate) owner: Asker,
    pub(crate) goal: WaitGoal,
    pub(crate) rows: WantedRows,
    /// The row that blocked it when it was last looked at.
    pub(crate) blocked_at: usize,
    /// The global that was in the way when it came.
    pub(crate) behind: Xid,
    pub(crate) holding: Holding,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Timestamp,
}

/// The purpose of a wait.
#[derive(Clone, Debug)]
pub(crate) enum WaitGoal {
    /// The branch takes them.
    Join(Xid, PendingBranch),
    /// The requester is answered; outside a global there is no XID.
    Check(Option<Xid>),
}

impl WaitGoal {
    /// The global that asks.
    pub(crate) fn xid(&self) -> Option<Xid> {
        match self {
            Self::Join(xid, _) => Some(*xid),
            Self::Check(xid) => *xid,
        }
    }
}

/// A branch to be made, or to be given more rows.
#[derive(Clone, Debug)]
pub(crate) struct PendingBranch {
    pub(crate) id: BranchId,
    pub(crate) site: Arc<BranchSite>,
    pub(crate) mode: Mode,
    pub(crate) application_data: Box<[u8]>,
    /// Whether no other branch is to join after it.
    pub(crate) is_last: bool,
    /// Whether its local transaction is still to come: it holds nothing in its database.
    pub(crate) is_ahead: bool,
    /// Where the request stands in a trace; few do.
    pub(crate) trace: Option<Box<RequestTrace>>,
}

pub(crate) type WantedRows = SmallVec<[WantedRow; 2]>;

/// A row of a request and the request's rank in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRow {
    pub(crate) lock: LockId,
    pub(crate) mode: LockMode,
    pub(crate) rank: Rank,
}

impl WantedRow {
    pub(crate) fn place(self, id: WaitId) -> QueuePosition {
        QueuePosition { rank: self.rank, id }
    }
}

impl Waiter {
    pub(crate) fn claim(&self, mode: LockMode) -> QueuedClaim {
        let purpose = if self.takes() { Purpose::Take } else { Purpose::Check };
        QueuedClaim { xid: self.xid, mode, purpose }
    }

    pub(crate) fn takes(&self) -> bool {
        matches!(self.goal, WaitGoal::Join(..))
    }

    pub(crate) fn joins(&self, xid: Xid, branch: BranchId) -> bool {
        matches!(&self.goal, WaitGoal::Join(of, pending) if *of == xid && pending.id == branch)
    }
}

/// The requests that must not wait for a global that rolls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Those that hold database locks, which the rollback may need.
    WithDatabaseLocks,
    /// All: the rollback waits for an operator.
    All,
}

/// All requests that wait for row locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWaiters {
    last: WaitId,
    waiters: BTreeMap<WaitId, Waiter>,
    of_globals: BTreeSet<(Xid, WaitId)>,
    with_database_locks: BTreeSet<WaitId>,
    deadlines: BTreeSet<(Timestamp, WaitId)>,
    /// The rows waited for, by the owners of their places.
    rows: ShareTally,
}

impl RowWaiters {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns whether no request waits for locks, which is nearly always so.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number of rows waited for, by the owners of their places.
    pub(crate) fn rows(&self) -> &ShareTally {
        &self.rows
    }

    pub(crate) fn next_id(&mut self) -> WaitId {
        self.last.0 += 1;
        self.last
    }

    pub(crate) fn add(&mut self, id: WaitId, waiter: Waiter) {
        let Asker { client, application } = &waiter.owner;
        self.rows.enter(*client, application, waiter.rows.len());
        if let Some(xid) = waiter.xid {
            self.of_globals.insert((xid, id));
        }
        if waiter.holding == Holding::DatabaseLocks {
            self.with_database_locks.insert(id);
        }
        self.deadlines.insert((waiter.deadline, id));
        self.waiters.insert(id, waiter);
    }

    pub(crate) fn remove(&mut self, id: WaitId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        let Asker { client, application } = &waiter.owner;
        self.rows.leave(*client, application, waiter.rows.len());
        if let Some(xid) = waiter.xid {
            self.of_globals.remove(&(xid, id));
        }
        self.with_database_locks.remove(&id);
        self.deadlines.remove(&(waiter.deadline, id));
        Some(waiter)
    }

    pub(crate) fn get(&self, id: WaitId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: WaitId) -> Option<&mut Waiter> {
        self.waiters.get_mut(&id)
    }

    pub(crate) fn of_global(&self, xid: Xid) -> impl Iterator<Item = WaitId> + '_ {
        self.of_globals.range((xid, WaitId(0))..=(xid, WaitId(u64::MAX))).map(|&(_, id)| id)
    }

    /// The requests that hold locks of their databases.
    pub(crate) fn with_database_locks(&self) -> impl Iterator<Item = WaitId> + '_ {
        self.with_database_locks.iter().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WaitId, &Waiter)> {
        self.waiters.iter().map(|(&id, waiter)| (id, waiter))
    }

    /// The requests that came after one, in the order in which they came.
    pub(crate) fn after(&self, id: WaitId) -> impl Iterator<Item = (WaitId, &Waiter)> {
        let behind = (Bound::Excluded(id), Bound::Unbounded);
        self.waiters.range(behind).map(|(&id, waiter)| (id, waiter))
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The waiter whose deadline is the first to have passed.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<WaitId> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, id)| id)
    }

    /// Returns whether the shares, counted again from the waiters, agree.
    pub(crate) fn shares_are_consistent(&self) -> bool {
        let mut rows = ShareTally::default();
        for Waiter { owner, rows: wanted, .. } in self.waiters.values() {
            rows.enter(owner.client, &owner.application, wanted.len());
        }
        rows == self.rows
    }
}
