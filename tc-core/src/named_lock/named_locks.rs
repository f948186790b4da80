//! The wing of the named locks: what decisions about them can touch.

use std::sync::Arc;

use super::table::LeaseTable;
use crate::contract::{Asker, Limits, Outcome, Rejection, Xid};
use crate::decision_context::DecisionContext;
use crate::global::table::GlobalTable;
use crate::shares::{check_limit, check_share};
use crate::waiting::WaitingRequests;

/// Named locks, with what they may know of the globals that own leases.
#[derive(Debug)]
pub(crate) struct NamedLocks<'a> {
    pub(crate) on: DecisionContext<'a>,
    pub(crate) leases: &'a mut LeaseTable,
    pub(crate) owners: Owners<'a>,
    /// The requests that wait for something else, which count towards the same limit.
    pub(crate) waiting: &'a WaitingRequests,
}

/// The globals as named locks see them. They can be asked, and the one change is that a global that
/// is to own a lease gets a record.
#[derive(Debug)]
pub(crate) struct Owners<'a> {
    globals: &'a mut GlobalTable,
}

impl<'a> Owners<'a> {
    pub(crate) fn new(globals: &'a mut GlobalTable) -> Self {
        Self { globals }
    }

    pub(super) fn application(&self, xid: Xid) -> Option<&Arc<str>> {
        self.globals.get(xid).map(|global| &global.origin.application)
    }

    pub(super) fn address(&self, xid: Xid) -> Option<&Arc<str>> {
        self.globals.get(xid).map(|global| &global.origin.address)
    }

    pub(super) fn is_rolling_back(&self, xid: Xid) -> bool {
        self.globals.is_rolling_back(xid)
    }

    /// Stores the global before its lease, if it is not stored: after a crash the lease would have
    /// no owner.
    pub(super) fn store(&mut self, xid: Xid, out: &mut Outcome) {
        if !self.globals.get(xid).is_some_and(|global| global.stored) {
            self.globals.put(xid, out);
        }
    }
}

impl NamedLocks<'_> {
    /// The address part of a global's text form.
    pub(super) fn address_of(&self, xid: Xid) -> Arc<str> {
        self.owners.address(xid).unwrap_or(self.on.address).clone()
    }

    pub(super) fn check_room_to_wait(&self) -> Result<(), Rejection> {
        check_room_to_wait(self.on.limits, self.on.asker, self.waiting, self.leases)
    }
}

/// Refuses one more waiting request where there is no room for it, whatever it waits for (BOUNDED).
pub(crate) fn check_room_to_wait(
    limits: &Limits,
    asker: &Asker,
    waiting: &WaitingRequests,
    leases: &LeaseTable,
) -> Result<(), Rejection> {
    let (what, max) = (Rejection::WAITING_REQUESTS, limits.waiters_max);
    check_limit(what, waiting.len() + leases.waiting() + 1, max)?;
    check_share(limits, &[waiting.tally(), leases.waiting_tally()], asker, what, 1, max)
}
