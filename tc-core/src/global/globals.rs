//! The wing of the globals: what decisions about them can touch.

use std::sync::Arc;

use super::begin_keys::BeginKeys;
use super::branches::Branches;
use super::history::History;
use super::label_index::LabelIndex;
use super::state::{Global, Phase};
use super::table::GlobalTable;
use super::voting::Votings;
use crate::collections::interner::Origin;
use crate::contract::{Asker, ClientId, Correlation, GlobalStatus, Labels, Rejection, Reply, Xid};
use crate::deadlock::WaitGraph;
use crate::deadlock_log::DeadlockLog;
use crate::deciding::{Deciding, HandlerResult};
use crate::named_lock::named_locks::{NamedLocks, Owners, check_room_to_wait};
use crate::named_lock::table::LeaseTable;
use crate::row_lock::row_locks::RowLocks;
use crate::row_lock::table::Touched;
use crate::shares::{check_limit, check_share};
use crate::waiting::{Awaited, WaitingRequests};

/// Globals, their branches and the row locks that these hold: parts that cannot be changed apart.
///
/// A decision releases rows, a released row is granted to a branch of another global, and a grant
/// may close a cycle that goes through named locks. Sagas are not here.
#[derive(Debug)]
pub(crate) struct Globals<'a> {
    pub(crate) on: Deciding<'a>,
    pub(crate) globals: &'a mut GlobalTable,
    pub(crate) history: &'a mut History,
    pub(crate) labels: &'a mut LabelIndex,
    pub(crate) keys: &'a mut BeginKeys,
    pub(crate) votings: &'a mut Votings,
    pub(crate) rows: &'a mut RowLocks,
    pub(crate) leases: &'a mut LeaseTable,
    pub(crate) waiting: &'a mut WaitingRequests,
    pub(crate) deadlocks: &'a mut DeadlockLog,
}

impl Globals<'_> {
    pub(crate) fn begin(
        &mut self,
        application: Arc<str>,
        name: Arc<str>,
        timeout_ms: Option<u64>,
        labels: Labels,
        key: Option<Arc<str>>,
    ) -> HandlerResult {
        let known = key.as_ref().and_then(|key| self.keys.find(&application, key));
        if let Some(begun) = known.and_then(|xid| self.begin_again(xid)) {
            return Ok(Some(begun));
        }
        let limits = self.on.limits;
        let what = "unfinished globals";
        check_limit(what, self.globals.len() + 1, limits.globals_max)?;
        // A global counts for the application that its begin names, whatever its connection's is.
        let owner = Asker { client: self.on.asker.client, application: application.clone() };
        check_share(limits, &[self.globals.open()], &owner, what, 1, limits.globals_max)?;
        let timeout_ms = timeout_ms.unwrap_or(limits.timeout_ms_default).min(limits.timeout_ms_max);
        let xid = self.on.ids.xid()?;
        let address = self.on.address.clone();
        let origin = Origin { address: address.clone(), application, name };
        self.labels.insert(&labels, xid);
        self.keys.insert(&origin.application, key.as_ref(), xid);
        self.globals.insert(Global {
            xid,
            origin: self.on.names.origin(&origin),
            client: owner.client,
            begun_at: self.on.now,
            timeout_ms,
            deadline: self.on.now.after_ms(timeout_ms),
            phase: Phase::Active,
            paused: false,
            rollback_only: false,
            asks_its_last: false,
            stored: false,
            rows: 0,
            unfinished: 0,
            refused: 0,
            branches: Branches::default(),
            events: Arc::default(),
            labels,
            key: key.map(Arc::new),
            trace: None,
        });
        Ok(Some(Reply::Begun { xid, address, timeout_ms, found: None }))
    }

    /// Answers the begin of a known global, unfinished or remembered.
    fn begin_again(&mut self, xid: Xid) -> Option<Reply> {
        let found = self.found(xid);
        self.adopt(xid);
        let open = self.globals.get(xid);
        let open = open.map(|global| (global.origin.address.clone(), global.timeout_ms));
        let finished = || {
            let global = self.history.get(xid)?;
            let timeout_ms = global.deadline.0.saturating_sub(global.begun_at.0);
            Some((global.address.clone(), timeout_ms))
        };
        let (address, timeout_ms) = open.or_else(finished)?;
        Some(Reply::Begun { xid, address, timeout_ms, found })
    }

    /// Returns how a global stands for a client that begins it again. A global of the same client
    /// in which nothing has been done counts as new: the client may have lost the reply to its
    /// begin.
    fn found(&self, xid: Xid) -> Option<GlobalStatus> {
        let client = self.on.asker.client;
        let is_own = |global: &Global| {
            client != ClientId::default()
                && global.client == client
                && global.branches.is_empty()
                && global.status() == GlobalStatus::Active
        };
        let is_own = self.globals.get(xid).is_some_and(is_own);
        (!is_own).then(|| self.status(xid))
    }

    /// Makes an undecided global that of the sender. The process that began it may be gone, and a
    /// global without a branch ends with its client.
    fn adopt(&mut self, xid: Xid) {
        let client = self.on.asker.client;
        let has_changed = self.globals.get(xid).is_some_and(|it| it.client != client);
        if client == ClientId::default() || !has_changed || self.undecided(xid).is_err() {
            return;
        }
        // It goes out and comes in again, so that it counts towards the share of its client.
        if let Some(mut global) = self.globals.remove(xid) {
            global.client = client;
            self.globals.insert(*global);
        }
    }

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
