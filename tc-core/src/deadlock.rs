//! The wait-for graph between globals, derived from holders and queues when it is needed.
//!
//! A global waits for the other holders of a row that its requests want in a conflicting mode, and
//! for the requests of other globals before them in the queue; so it is with named locks (`lease`),
//! whose queues are others. A cycle can only close at a global
//! whose edges just changed, so only paths from that global back to itself are searched.

use std::collections::BTreeSet;

use crate::contract::{LockMode, Xid};
use crate::coordinator::Coordinator;
use crate::row_lock::table::{Purpose, WaitId};
use crate::row_lock::waiters::WantedRow;

impl Coordinator {
    /// A cycle through a global: each waits for the next, the last for the first.
    pub(crate) fn find_cycle(&self, start: Xid) -> Option<Vec<Xid>> {
        if !self.is_waited_for(start) {
            return None;
        }
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

    /// Whether anybody can be waiting for the global. Nearly always not, which saves the search.
    fn is_waited_for(&self, xid: Xid) -> bool {
        let Some(global) = self.globals.get(xid) else { return false };
        let queued_for = |id: WaitId| {
            let behind = |row: &WantedRow| self.locks.next_claim(row.lock, Some(row.place(id)));
            let waiter = self.waits.get(id);
            waiter.is_some_and(|waiter| waiter.rows.iter().any(|row| behind(row).is_some()))
        };
        let mut held = global.locks();
        held.any(|lock| self.locks.has_queue(lock))
            || self.waits.of_global(xid).any(queued_for)
            || self.is_waited_for_by_name(xid)
    }

    fn blockers_of(&self, xid: Xid) -> Vec<Xid> {
        let by_row = self.waits.of_global(xid).flat_map(|id| self.blockers_of_request(id));
        by_row.chain(self.blockers_by_name(xid)).collect()
    }

    /// The globals that a request waits for.
    ///
    /// Of the queue before it not all need be named: the nearest exclusive one waits for
    /// everything before itself, so what lies beyond is reached through it.
    pub(crate) fn blockers_of_request(&self, id: WaitId) -> Vec<Xid> {
        let mut blockers = Vec::new();
        let Some(waiter) = self.waits.get(id) else { return blockers };
        let is_other = |xid: &Xid| Some(*xid) != waiter.xid;
        for row in &waiter.rows {
            if self.locks.covers(row.lock, waiter.xid, row.mode) {
                continue;
            }
            let holders = self.locks.conflicting_holders(row.lock, waiter.xid, row.mode);
            blockers.extend(holders.map(|holder| holder.xid));
            if row.mode == LockMode::Shared {
                let claim = self.locks.blocking_claim(row.lock, row.place(id), row.mode);
                blockers.extend(claim.and_then(|claim| claim.xid).filter(is_other));
                continue;
            }
            for claim in self.locks.claims_ahead(row.lock, row.place(id)) {
                if claim.purpose == Purpose::Check {
                    continue;
                }
                blockers.extend(claim.xid.filter(is_other));
                if claim.mode == LockMode::Exclusive {
                    break;
                }
            }
        }
        blockers
    }
}
