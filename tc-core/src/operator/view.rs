//! Views of single things. Results are owned, in an order that does not depend on hashes (PURE).

use std::sync::Arc;

use super::page::PageBounds;
use crate::contract::{
    BranchRecord, BranchState, Counts, FencingToken, GlobalRecord, GlobalStatus, LockMode,
    SagaRecord, Timestamp, Xid,
};
use crate::coordinator::Coordinator;
use crate::global::branch::Branch;
use crate::global::finished::FinishedGlobal;
use crate::global::state::Global;
use crate::row_lock::table::{LockId, LockTable, QueuePosition, QueuedClaim};

/// The most holders, waiters or rows that are shown of one entry (BOUNDED).
pub const SHOWN_MAX: usize = 100;

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

/// A global with some of its branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalPart {
    /// The global; of its finished branches those of this part.
    pub record: GlobalRecord,
    /// How it stands.
    pub status: GlobalStatus,
    /// How many branches it has, or had.
    pub branch_count: usize,
    /// The branches of this part while it is unfinished, by sequence.
    pub branches: Vec<BranchView>,
    /// Where its branches go on, unless this is their end.
    pub next: Option<u32>,
    /// How many records were looked at.
    pub scanned: usize,
}

/// A branch for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchView {
    /// The branch, without its data; of its rows at most [`SHOWN_MAX`].
    pub record: BranchRecord,
    /// How many rows it holds.
    pub holding: usize,
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
    /// Its holders, one entry a branch, by XID: at most [`SHOWN_MAX`] of them.
    pub holders: Vec<LockHolder>,
    /// How many branches hold it.
    pub holding: usize,
    /// Its waiters, next first: at most [`SHOWN_MAX`] of them.
    pub queue: Vec<LockWaiter>,
    /// How many requests wait for it.
    pub waiting: usize,
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

impl BranchView {
    /// How many things there are to show of it.
    fn weight(&self) -> usize {
        let dirty = match &self.record.state {
            BranchState::Refused(_, rows) => rows.listed.len(),
            BranchState::Registered
            | BranchState::Deciding
            | BranchState::PhaseOneDone
            | BranchState::Resolved(_)
            | BranchState::Finished(_) => 0,
        };
        self.record.rows.len() + dirty
    }
}

impl Branch {
    /// The branch for operators: without its data, and with few of its rows, as far as no more than
    /// `holders_max` holders of them have to be looked at to find in which mode it holds them.
    pub(crate) fn view(&self, xid: Xid, locks: &LockTable, holders_max: usize) -> BranchView {
        let (mut rows, mut scanned) = (Vec::new(), 0);
        for &lock in self.locks().iter().take(SHOWN_MAX) {
            scanned += locks.holding(lock);
            if scanned > holders_max {
                break;
            }
            rows.push(self.row(xid, lock, locks));
        }
        BranchView { record: self.outline(xid, rows), holding: self.locks().len() }
    }
}

/// A finished global has no more than a summary of each branch.
fn finished_part(global: &FinishedGlobal, from: u32, bounds: PageBounds) -> GlobalPart {
    let all = &global.branches;
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(all.len());
    let max = bounds.items_max.min(bounds.scanned_max).max(1);
    let to = from.saturating_add(max).min(all.len());
    GlobalPart {
        record: global.record_with(&all[from..to]),
        status: global.status(),
        branch_count: all.len(),
        branches: Vec::new(),
        next: u32::try_from(to).ok().filter(|_| to < all.len()),
        scanned: to - from,
    }
}

impl Coordinator {
    /// Returns a global, unfinished or remembered. A saga is shown as the corresponding global.
    #[must_use]
    pub fn global(&self, xid: Xid) -> Option<GlobalView> {
        let Some(global) = self.globals.get(xid) else {
            let Some(record) = self.history.get(xid).map(FinishedGlobal::record) else {
                return self.sagas.get(xid).map(SagaRecord::view);
            };
            return Some(GlobalView { status: record.status(), record, branches: Vec::new() });
        };
        let branches = global.branches.iter().map(|branch| branch.record(xid, &self.rows.table));
        let (record, status) = (global.shown(), global.status());
        Some(GlobalView { record, status, branches: branches.collect() })
    }

    /// As [`Coordinator::global`], with its branches from a sequence on: as many as the bounds
    /// allow. For the next part pass this one's `next` as `from`.
    #[must_use]
    pub fn global_part(&self, xid: Xid, from: u32, bounds: PageBounds) -> Option<GlobalPart> {
        if let Some(global) = self.globals.get(xid) {
            return Some(self.open_part(global, from, bounds));
        }
        match self.history.get(xid) {
            Some(global) => Some(finished_part(global, from, bounds)),
            None => self.sagas.get(xid).map(|saga| saga.part(from, bounds)),
        }
    }

    fn open_part(&self, global: &Global, from: u32, bounds: PageBounds) -> GlobalPart {
        let first = global.branches.partition_point(|branch| branch.sequence < from);
        let (mut branches, mut scanned) = (Vec::new(), 0);
        let mut left = global.branches[first..].iter();
        // At least one, so that every call makes progress.
        while scanned < bounds.scanned_max.max(1) && branches.len() < bounds.items_max.max(1) {
            let Some(branch) = left.next() else { break };
            let view = branch.view(global.xid, &self.rows.table, bounds.scanned_max);
            scanned += 1 + view.weight();
            branches.push(view);
        }
        let (record, status) = (global.shown(), global.status());
        let (branch_count, next) = (global.branches.len(), left.next().map(|it| it.sequence));
        GlobalPart { record, status, branch_count, branches, next, scanned }
    }

    /// One saga, unfinished or remembered.
    #[must_use]
    pub fn saga(&self, xid: Xid) -> Option<&SagaRecord> {
        self.sagas.get(xid)
    }

    /// The unfinished and remembered sagas, newest first, from below `before`.
    pub fn sagas(&self, before: Option<Xid>) -> impl Iterator<Item = &SagaRecord> {
        let before = before.unwrap_or(Xid(u64::MAX));
        self.sagas.newest_before(before)
    }

    /// The address part of a global's XID, if the global is known.
    #[must_use]
    pub fn address(&self, xid: Xid) -> Option<Arc<str>> {
        let open = self.globals.get(xid).map(|global| &global.origin.address);
        let finished = || self.history.get(xid).map(|global| &global.origin.address);
        let saga = || self.sagas.get(xid).map(|saga| &saga.address);
        open.or_else(finished).or_else(saga).cloned()
    }

    /// Sizes of the state; cheap.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let globals = Counts {
            remembered: self.history.len(),
            locks: self.rows.table.len(),
            waiters: self.rows.waiters.len(),
            leases: self.leases.len(),
            lock_queue: self.leases.waiting(),
            ..self.globals.counts()
        };
        globals + self.sagas.counts()
    }

    /// Sizes of the sagas alone, which [`Coordinator::counts`] contains; cheap.
    #[must_use]
    pub fn saga_counts(&self) -> Counts {
        self.sagas.counts()
    }

    pub(crate) fn lock_view(&self, lock: LockId) -> LockView {
        let space = self.rows.table.space(lock);
        let mut holders: Vec<_> = self
            .rows
            .table
            .holders(lock)
            .take(SHOWN_MAX)
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
            key: self.rows.table.key(lock).into(),
            holders,
            holding: self.rows.table.holding(lock),
            queue: self.queue_view(lock),
            waiting: self.rows.table.waiting(lock),
        }
    }

    fn queue_view(&self, lock: LockId) -> Vec<LockWaiter> {
        let queue = self.rows.table.queue(lock).take(SHOWN_MAX);
        queue.filter_map(|(place, claim)| self.lock_waiter(place, claim)).collect()
    }

    pub(crate) fn lock_waiter(
        &self,
        place: QueuePosition,
        claim: QueuedClaim,
    ) -> Option<LockWaiter> {
        let waiter = self.rows.waiters.get(place.id)?;
        let global = claim.xid.and_then(|xid| self.globals.get(xid));
        Some(LockWaiter {
            xid: claim.xid,
            address: global.map(|global| global.origin.address.clone()),
            mode: claim.mode,
            takes: waiter.takes(),
            since: waiter.since,
            deadline: waiter.deadline,
        })
    }
}
