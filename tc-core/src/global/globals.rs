//! The wing of the globals: what decisions about them can touch.

use std::sync::Arc;

use super::begin_keys::BeginKeys;
use super::history::History;
use super::label_index::LabelIndex;
use super::loans::LoanTable;
use super::state::{Global, Phase};
use super::table::GlobalTable;
use super::voting::Votings;
use crate::contract::{Asker, Correlation, GlobalStatus, Labels, Rejection, Xid};
use crate::deadlock::WaitGraph;
use crate::deadlock_log::DeadlockLog;
use crate::decision_context::{DecisionContext, HandlerResult};
use crate::named_lock::named_locks::{NamedLocks, Owners, check_room_to_wait};
use crate::named_lock::table::LeaseTable;
use crate::row_lock::row_locks::RowLocks;
use crate::row_lock::table::Touched;
use crate::waiting::{Awaited, WaitingRequests};

/// Globals, their branches and the row locks that these hold: parts that cannot be changed apart.
///
/// A decision releases rows, a released row is granted to a branch of another global, and a grant
/// may close a cycle that goes through named locks. Sagas are not here.
#[derive(Debug)]
pub(crate) struct Globals<'a> {
    pub(crate) on: DecisionContext<'a>,
    pub(crate) globals: &'a mut GlobalTable,
    pub(crate) history: &'a mut History,
    pub(crate) labels: &'a mut LabelIndex,
    pub(crate) keys: &'a mut BeginKeys,
    pub(crate) loans: &'a mut LoanTable,
    pub(crate) votings: &'a mut Votings,
    pub(crate) rows: &'a mut RowLocks,
    pub(crate) leases: &'a mut LeaseTable,
    pub(crate) waiting: &'a mut WaitingRequests,
    pub(crate) deadlocks: &'a mut DeadlockLog,
}

impl Globals<'_> {
    /// Forgets by what labels and key a global is found.
    pub(crate) fn forget_names(
        &mut self,
        xid: Xid,
        labels: &Labels,
        application: &Arc<str>,
        key: Option<&Arc<str>>,
    ) {
        self.labels.remove(labels, xid);
        self.keys.remove(application, key);
    }

    /// Gives up the place of a waiting request whose sender is gone.
    pub(crate) fn forget(&mut self, waiting: Correlation) -> HandlerResult {
        match self.waiting.awaited(waiting) {
            Some(Awaited::Locks(id)) => {
                let mut touched = Touched::new();
                self.leave_queues(id, &mut touched);
                self.settle(touched);
            }
            Some(Awaited::End(xid)) => self.waiting.forget_end(xid, waiting),
            Some(Awaited::Votes(xid)) => self.forget_asker(xid, waiting),
            // Requests for named locks are not in `waiting`. A request that is answered is in
            // neither.
            None => self.named_locks().forget_turn(waiting),
        }
        Ok(None)
    }

    // ---- other wings ----

    pub(crate) fn named_locks(&mut self) -> NamedLocks<'_> {
        NamedLocks {
            on: self.on.lend(),
            leases: self.leases,
            owners: Owners::new(self.globals),
            waiting: self.waiting,
        }
    }

    /// Ends the leases that a global owns. Few globals own one.
    pub(crate) fn end_leases_of(&mut self, xid: Xid) {
        if self.leases.concerns_globals() {
            self.named_locks().end_leases_of(xid);
        }
    }

    pub(crate) fn graph(&self) -> WaitGraph<'_> {
        WaitGraph { globals: self.globals, rows: self.rows, leases: self.leases }
    }

    // ---- shared by the requests ----

    /// The status of a global, unfinished or remembered.
    pub(crate) fn status(&self, xid: Xid) -> GlobalStatus {
        let finished = || self.history.get(xid).map(|global| global.status());
        let open = self.globals.get(xid).map(Global::status);
        open.or_else(finished).unwrap_or(GlobalStatus::Unknown)
    }

    /// The global, if branches can still join it.
    pub(crate) fn undecided(&self, xid: Xid) -> Result<&Global, Rejection> {
        match self.globals.get(xid) {
            Some(global) if global.phase == Phase::Active => Ok(global),
            Some(_) => Err(self.already_decided(xid)),
            None => Err(self.finished_or_unknown(xid)),
        }
    }

    pub(crate) fn already_decided(&self, xid: Xid) -> Rejection {
        Rejection::AlreadyDecided { xid, status: self.status(xid) }
    }

    /// Returns the refusal for a request about a global that is not unfinished.
    pub(crate) fn finished_or_unknown(&self, xid: Xid) -> Rejection {
        match self.history.get(xid) {
            Some(_) => self.already_decided(xid),
            None => Rejection::UnknownXid(xid),
        }
    }

    /// The address part of a global's text form.
    pub(crate) fn address_of(&self, xid: Xid) -> Arc<str> {
        let global = self.globals.get(xid);
        global.map_or(self.on.address, |global| &global.origin.address).clone()
    }

    /// Refuses one more waiting request if there is no room, whatever it waits for (BOUNDED).
    pub(crate) fn check_room_to_wait(&self) -> Result<(), Rejection> {
        self.check_room_for(self.on.asker)
    }

    /// Refuses one more waiting request of this sender where there is no room for it.
    pub(crate) fn check_room_for(&self, asker: &Asker) -> Result<(), Rejection> {
        check_room_to_wait(self.on.limits, asker, self.waiting, self.leases)
    }

    pub(crate) fn put_global(&mut self, xid: Xid) {
        self.globals.put(xid, self.on.out);
    }
}
