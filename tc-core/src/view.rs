//! What operators can see. Owned results in an order that does not depend on hashes (PURE).

use std::sync::Arc;

use crate::coordinator::Coordinator;
use crate::counts::Counts;
use crate::lock::LockId;
use crate::outcome::GlobalStatus;
use crate::record::{BranchRecord, GlobalRecord};
use crate::request::LockMode;
use crate::saga::SagaRecord;
use crate::{FencingToken, Timestamp, Xid};

/// A global with its branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalView {
    /// The global.
    pub record: GlobalRecord,
    /// How it stands; shows also that an operator is needed, which its record alone does not.
    pub status: GlobalStatus,
    /// Its branches while it is unfinished, by sequence; after that see
    /// [`GlobalRecord::finished_branches`].
    pub branches: Vec<BranchRecord>,
}

/// A global in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalSummary {
    /// The global.
    pub record: GlobalRecord,
    /// How it stands.
    pub status: GlobalStatus,
    /// How many branches it has, or had.
    pub branches: usize,
}

/// A row that is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// The resource.
    pub resource: Arc<str>,
    /// The table.
    pub table: Arc<str>,
    /// The canonical key.
    pub key: Box<[u8]>,
    /// Who holds it, one entry a branch, by XID.
    pub holders: Vec<LockHolder>,
    /// Who waits for it, next first.
    pub queue: Vec<LockWaiter>,
}

/// A branch that holds a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// How it holds it.
    pub mode: LockMode,
    /// The newest fencing token granted to the branch.
    pub token: FencingToken,
    /// When the branch was registered.
    pub since: Timestamp,
}

/// A request that waits for a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    /// Its global; `None` for a check outside a global.
    pub xid: Option<Xid>,
    /// The address part of that global's XID; `None` for a check outside a live global.
    pub address: Option<Arc<str>>,
    /// How it wants the row.
    pub mode: LockMode,
    /// Whether it will take the row; a check goes on without it.
    pub takes: bool,
    /// Since when it waits.
    pub since: Timestamp,
    /// When it is refused.
    pub deadline: Timestamp,
}

impl Coordinator {
    /// One global, unfinished or remembered; a saga as the global that would be where it is.
    #[must_use]
    pub fn global(&self, xid: Xid) -> Option<GlobalView> {
        let Some(global) = self.globals.get(xid) else {
            let Some(record) = self.history.get(xid).cloned() else {
                return self.sagas.get(xid).map(SagaRecord::view);
            };
            return Some(GlobalView { status: record.status(), record, branches: Vec::new() });
        };
        let branches = global.branches.iter().map(|branch| branch.record(xid, &self.locks));
        let (record, status) = (global.shown(), global.status());
        Some(GlobalView { record, status, branches: branches.collect() })
    }

    /// Sizes of the state; cheap.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let globals = Counts {
            remembered: self.history.len(),
            locks: self.locks.len(),
            waiters: self.waits.for_locks(),
            leases: self.leases.len(),
            lock_queue: self.leases.waiting(),
            ..self.globals.counts()
        };
        globals + self.sagas.counts()
    }

    pub(crate) fn lock_view(&self, lock: LockId) -> LockView {
        let space = self.locks.space(lock);
        let mut holders: Vec<_> = self
            .locks
            .holders(lock)
            .filter_map(|holder| {
                let global = self.globals.get(holder.xid)?;
                let branch = global.branch_at(holder.sequence)?;
                let address = global.origin.address.clone();
                let (token, since) = (branch.token, branch.registered_at);
                Some(LockHolder { xid: holder.xid, address, mode: holder.mode, token, since })
            })
            .collect();
        holders.sort_by_key(|holder| (holder.xid, holder.token));
        LockView {
            resource: space.resource.clone(),
            table: space.table.clone(),
            key: self.locks.key(lock).into(),
            holders,
            queue: self.queue_view(lock),
        }
    }

    fn queue_view(&self, lock: LockId) -> Vec<LockWaiter> {
        let waiting = self.locks.queue(lock).filter_map(|(place, claim)| {
            let waiter = self.waits.get(place.id)?;
            let (since, deadline) = (waiter.since, waiter.deadline);
            let global = claim.xid.and_then(|xid| self.globals.get(xid));
            Some(LockWaiter {
                xid: claim.xid,
                address: global.map(|global| global.origin.address.clone()),
                mode: claim.mode,
                takes: waiter.takes(),
                since,
                deadline,
            })
        });
        waiting.collect()
    }
}
