//! The row locks as a whole: the table of holders and queues, and the requests that wait in them.
//!
//! Everything here follows from locks and queues alone. It can touch no global.

use std::ops::ControlFlow;

use super::table::{LockId, LockTable, Purpose, QueuedClaim, Touched, WaitId};
use super::waiters::{RowWaiters, Waiter, WantedRow};
use crate::contract::{LockMode, Xid};

#[cfg(test)]
mod tests;

/// All row locks, and all requests for them.
#[derive(Clone, Debug)]
pub(crate) struct RowLocks {
    pub(crate) table: LockTable,
    pub(crate) waiters: RowWaiters,
}

/// A row that a request cannot have yet, and the global that is in the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocker {
    pub(crate) lock: LockId,
    pub(crate) by: Xid,
}

/// A thing that a request meets between itself and a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A global that holds the row in a conflicting mode.
    Holds(Xid),
    /// A global whose request stands before it in the queue.
    Ahead(Xid),
    /// A request that no other global's request waits for.
    Free,
}

impl RowLocks {
    pub(crate) fn new() -> Self {
        Self { table: LockTable::new(), waiters: RowWaiters::default() }
    }

    /// Returns what keeps a request from being granted: holders first, then waiters before it.
    pub(crate) fn blocker(
        &self,
        xid: Option<Xid>,
        rows: &[WantedRow],
        id: WaitId,
    ) -> Option<Blocker> {
        let holder = |row: &WantedRow| {
            let by = self.holder_in_the_way(xid, row)?;
            Some(Blocker { lock: row.lock, by })
        };
        let waiter = |row: &WantedRow| {
            let by = self.waiter_in_the_way(xid, row, id)?;
            Some(Blocker { lock: row.lock, by })
        };
        rows.iter().find_map(holder).or_else(|| rows.iter().find_map(waiter))
    }

    fn holder_in_the_way(&self, xid: Option<Xid>, row: &WantedRow) -> Option<Xid> {
        let mut holders = self.table.conflicting_holders(row.lock, xid, row.mode);
        holders.next().map(|holder| holder.xid)
    }

    fn waiter_in_the_way(&self, xid: Option<Xid>, row: &WantedRow, id: WaitId) -> Option<Xid> {
        // A row that the global holds in this mode already keeps no earlier request waiting.
        if self.table.covers(row.lock, xid, row.mode) {
            return None;
        }
        self.table.blocking_claim(row.lock, row.place(id), row.mode)?.xid
    }

    /// Returns whether nothing is in its way. A request for many rows is examined once for each of
    /// them that is released, so the row that blocked it last is examined first.
    pub(crate) fn is_next(&mut self, id: WaitId) -> bool {
        let Some(waiter) = self.waiters.get(id) else { return false };
        let is_blocked = |row: &WantedRow| {
            #[cfg(test)]
            tests::count_a_look();
            self.holder_in_the_way(waiter.xid, row).is_some()
                || self.waiter_in_the_way(waiter.xid, row, id).is_some()
        };
        if waiter.rows.get(waiter.blocked_at).is_some_and(is_blocked) {
            return false;
        }
        let Some(at) = waiter.rows.iter().position(is_blocked) else { return true };
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.blocked_at = at;
        }
        false
    }

    /// Puts a request into the queues of its rows.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) -> WaitId {
        let id = self.waiters.next_id();
        for row in &waiter.rows {
            self.table.enqueue(row.lock, row.place(id), waiter.claim(row.mode));
        }
        self.waiters.add(id, waiter);
        id
    }

    /// Takes a request out of all queues; its rows are to be settled.
    pub(crate) fn dequeue(&mut self, id: WaitId, touched: &mut Touched) -> Option<Waiter> {
        let waiter = self.waiters.remove(id)?;
        for row in &waiter.rows {
            self.table.dequeue(row.lock, row.place(id));
            touched.push(row.lock);
        }
        Some(waiter)
    }

    /// The globals that a request waits for.
    ///
    /// Not all of the queue before it need be named: the nearest exclusive request waits for
    /// everything before itself, so the rest is reached through it.
    pub(crate) fn blockers_of_request(&self, id: WaitId) -> Vec<Xid> {
        let mut blockers = Vec::new();
        let _ = self.each_in_the_way(id, |_, way| {
            blockers.extend(way.blocker());
            ControlFlow::<()>::Continue(())
        });
        blockers
    }

    /// Meets what is in the way of a request, row by row, until told to stop.
    pub(crate) fn each_in_the_way<B>(
        &self,
        id: WaitId,
        mut meet: impl FnMut(WantedRow, Way) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(waiter) = self.waiters.get(id) else { return ControlFlow::Continue(()) };
        let ahead = |claim: QueuedClaim| match claim.xid {
            Some(xid) if claim.xid != waiter.xid => Way::Ahead(xid),
            Some(_) | None => Way::Free,
        };
        for &row in &waiter.rows {
            if self.table.covers(row.lock, waiter.xid, row.mode) {
                continue;
            }
            for holder in self.table.conflicting_holders(row.lock, waiter.xid, row.mode) {
                meet(row, Way::Holds(holder.xid))?;
            }
            if row.mode != LockMode::Exclusive {
                for claim in self.table.blocking_claims(row.lock, row.place(id), row.mode) {
                    meet(row, ahead(claim))?;
                }
                continue;
            }
            for claim in self.table.claims_ahead(row.lock, row.place(id)) {
                if claim.purpose == Purpose::Check {
                    meet(row, Way::Free)?;
                    continue;
                }
                meet(row, ahead(claim))?;
                if claim.mode == LockMode::Exclusive {
                    break;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Way {
    /// The global that is waited for.
    pub(crate) fn blocker(self) -> Option<Xid> {
        match self {
            Self::Holds(xid) | Self::Ahead(xid) => Some(xid),
            Self::Free => None,
        }
    }
}
