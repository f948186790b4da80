//! The wait-for graph between globals, derived from holders and queues when it is needed.
//!
//! A global waits for the other holders of a row that its requests want in a conflicting mode, and
//! for the requests of other globals before them in the queue. Named locks have queues of their own
//! and are in the same graph. A cycle can only close at a global whose edges just changed, so only
//! paths from that global back to itself are searched. Nothing here changes anything.

use std::collections::BTreeSet;

use crate::contract::Xid;
use crate::global::table::GlobalTable;
use crate::named_lock::table::LeaseTable;
use crate::row_lock::row_locks::RowLocks;
use crate::row_lock::table::WaitId;
use crate::row_lock::waiters::WantedRow;

/// The state that the wait-for graph follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitGraph<'a> {
    pub(crate) globals: &'a GlobalTable,
    pub(crate) rows: &'a RowLocks,
    pub(crate) leases: &'a LeaseTable,
}

impl WaitGraph<'_> {
    /// A cycle through a global: each waits for the next, the last for the first.
    pub(crate) fn find_cycle(&self, start: Xid) -> Option<Vec<Xid>> {
        if !self.is_waited_for(start) {
            return None;
        }
        // A global from which no path leads back to the start is not searched a second time.
        let mut seen = BTreeSet::new();
        let mut path = vec![(start, self.blockers_of(start).into_iter())];
        while let Some((_, blockers)) = path.last_mut() {
            match blockers.next() {
                None => drop(path.pop()),
                Some(next) if next == start => {
                    return Some(path.into_iter().map(|(xid, _)| xid).collect());
                }
                Some(next) if seen.insert(next) => {
                    path.push((next, self.blockers_of(next).into_iter()));
                }
                Some(_) => {}
            }
        }
        None
    }

    /// Returns whether some of these globals are `goal`, or wait for it over others. `apart` has
    /// globals that are known not to, and gets those that are found not to.
    pub(crate) fn leads_to(&self, from: Vec<Xid>, goal: Xid, apart: &mut BTreeSet<Xid>) -> bool {
        let (mut open, mut met) = (from, BTreeSet::new());
        while let Some(xid) = open.pop() {
            if xid == goal {
                return true;
            }
            if !apart.contains(&xid) && met.insert(xid) {
                open.extend(self.blockers_of(xid));
            }
        }
        apart.append(&mut met);
        false
    }

    /// Returns whether a request can be waiting for the global. Nearly always none can, which saves
    /// the search.
    fn is_waited_for(&self, xid: Xid) -> bool {
        let Some(global) = self.globals.get(xid) else { return false };
        let queued_for = |id: WaitId| {
            let behind =
                |row: &WantedRow| self.rows.table.next_claim(row.lock, Some(row.place(id)));
            let waiter = self.rows.waiters.get(id);
            waiter.is_some_and(|waiter| waiter.rows.iter().any(|row| behind(row).is_some()))
        };
        let mut held = global.locks();
        held.any(|lock| self.rows.table.has_queue(lock))
            || self.rows.waiters.of_global(xid).any(queued_for)
            || self.leases.is_waited_for(xid)
    }

    fn blockers_of(&self, xid: Xid) -> Vec<Xid> {
        let by_row =
            self.rows.waiters.of_global(xid).flat_map(|id| self.rows.blockers_of_request(id));
        by_row.chain(self.leases.blockers_of(xid)).collect()
    }
}
