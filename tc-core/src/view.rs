//! What operators can see. Owned results in an order that does not depend on hashes (PURE).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::coordinator::Coordinator;
use crate::counts::Counts;
use crate::global::Global;
use crate::lock::LockId;
use crate::name::Space;
use crate::outcome::{GlobalStatus, StatusKind};
use crate::record::{BranchRecord, GlobalRecord};
use crate::request::LockMode;
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

/// Which globals to list; `None` lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalFilter {
    /// Those that stand so.
    pub status: Option<StatusKind>,
    /// Those begun by this application.
    pub application: Option<String>,
    /// Those of this name.
    pub name: Option<String>,
    /// Those begun before this point in time.
    pub begun_before: Option<Timestamp>,
}

/// Which locks to list; `None` lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockFilter {
    /// Those of this resource.
    pub resource: Option<String>,
    /// Those of tables of this name.
    pub table: Option<String>,
    /// Those of this canonical key.
    pub key: Option<Box<[u8]>>,
    /// Those that this global holds.
    pub holder: Option<Xid>,
}

/// Where a list of locks goes on: behind this lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockCursor {
    /// The holder with the lowest XID.
    pub holder: Xid,
    /// The lock's resource.
    pub resource: Arc<str>,
    /// The lock's table.
    pub table: Arc<str>,
    /// The lock's canonical key.
    pub key: Box<[u8]>,
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

impl LockView {
    /// Where a list goes on behind this lock; `None` if nobody holds it.
    #[must_use]
    pub fn cursor(&self) -> Option<LockCursor> {
        let (resource, table) = (self.resource.clone(), self.table.clone());
        let holder = self.holders.first()?.xid;
        Some(LockCursor { holder, resource, table, key: self.key.clone() })
    }
}

impl Coordinator {
    /// One global, unfinished or remembered.
    #[must_use]
    pub fn global(&self, xid: Xid) -> Option<GlobalView> {
        let Some(global) = self.globals.get(xid) else {
            let record = self.history.get(xid)?.clone();
            return Some(GlobalView { status: record.status(), record, branches: Vec::new() });
        };
        let branches = global.branches.iter().map(|branch| branch.record(xid, &self.locks));
        let (record, status) = (global.record(), global.status());
        Some(GlobalView { record, status, branches: branches.collect() })
    }

    /// Globals, unfinished and remembered, newest first, at most `limit`. For the next page pass
    /// the last XID of this one as `before`.
    #[must_use]
    pub fn globals(
        &self,
        filter: &GlobalFilter,
        before: Option<Xid>,
        limit: usize,
    ) -> Vec<GlobalSummary> {
        let before = before.unwrap_or(Xid(u64::MAX));
        let mut unfinished = self.globals.newest_before(before).peekable();
        let mut finished = self.history.newest_before(before).peekable();
        let newest = std::iter::from_fn(move || match (unfinished.peek(), finished.peek()) {
            (Some(one), Some(other)) if one.xid > other.xid => unfinished.next().map(Listed::Open),
            (_, Some(_)) => finished.next().map(Listed::Finished),
            (_, None) => unfinished.next().map(Listed::Open),
        });
        newest.filter(|global| global.passes(filter)).take(limit).map(Listed::summary).collect()
    }

    /// Locked rows in the order of their oldest holder, then of resource, table and key, at most
    /// `limit`. For the next page pass the last one's [`LockView::cursor`] as `after`. A filter
    /// that names resource, table and key shows the row also if it is only waited for.
    #[must_use]
    pub fn locks(
        &self,
        filter: &LockFilter,
        after: Option<&LockCursor>,
        limit: usize,
    ) -> Vec<LockView> {
        if let (Some(resource), Some(table), Some(key)) =
            (&filter.resource, &filter.table, &filter.key)
        {
            let space = Space::new(Arc::from(&**resource), Arc::from(&**table));
            let found = self.locks.find(&space, key).map(|lock| self.lock_view(lock));
            let held_by = |view: &LockView, xid| view.holders.iter().any(|it| it.xid == xid);
            let passes = |view: &LockView| filter.holder.is_none_or(|xid| held_by(view, xid));
            let is_first_page = after.is_none() && limit > 0;
            return found.filter(|view| is_first_page && passes(view)).into_iter().collect();
        }
        let first = filter.holder.or(after.map(|cursor| cursor.holder)).unwrap_or(Xid(0));
        let globals = self.globals.oldest_from(first);
        let globals =
            globals.take_while(|global| filter.holder.is_none_or(|xid| xid == global.xid));
        let locks = globals.flat_map(|global| self.listed_locks(global, filter, after));
        locks.take(limit).map(|lock| self.lock_view(lock)).collect()
    }

    /// Sizes of the state; cheap.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            remembered: self.history.len(),
            locks: self.locks.len(),
            waiters: self.waits.for_locks(),
            ..self.globals.counts()
        }
    }

    /// The rows of one global that are listed under it: those of which it is the oldest holder, or
    /// all of them if it was asked for by name.
    fn listed_locks(
        &self,
        global: &Global,
        filter: &LockFilter,
        after: Option<&LockCursor>,
    ) -> Vec<LockId> {
        let xid = global.xid;
        let rows = global.locks();
        let sorted: BTreeMap<_, _> =
            rows.map(|lock| ((&**self.locks.space(lock), self.locks.key(lock)), lock)).collect();
        let is_behind = |space: &Space, key: &[u8]| {
            after.is_none_or(|cursor| {
                let at = (&cursor.resource, &cursor.table, &*cursor.key);
                xid > cursor.holder || (&space.resource, &space.table, key) > at
            })
        };
        let is_listed = |lock: LockId| {
            let oldest = self.locks.holders(lock).map(|holder| holder.xid).min();
            filter.holder.is_some() || oldest == Some(xid)
        };
        let listed = sorted.into_iter().filter(|&((space, key), lock)| {
            filter.passes(space, key) && is_behind(space, key) && is_listed(lock)
        });
        listed.map(|(_, lock)| lock).collect()
    }

    fn lock_view(&self, lock: LockId) -> LockView {
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

impl LockFilter {
    fn passes(&self, space: &Space, key: &[u8]) -> bool {
        self.resource.as_deref().is_none_or(|resource| resource == &*space.resource)
            && self.table.as_deref().is_none_or(|table| table == &*space.table)
            && self.key.as_deref().is_none_or(|wanted| wanted == key)
    }
}

enum Listed<'a> {
    Open(&'a Global),
    Finished(&'a GlobalRecord),
}

impl Listed<'_> {
    fn passes(&self, filter: &GlobalFilter) -> bool {
        let (status, application, name, begun_at) = match self {
            Self::Open(global) => {
                let origin = &global.origin;
                (global.status(), &origin.application, &origin.name, global.begun_at)
            }
            Self::Finished(global) => {
                (global.status(), &global.application, &global.name, global.begun_at)
            }
        };
        filter.status.is_none_or(|wanted| wanted == status.kind())
            && filter.application.as_deref().is_none_or(|wanted| wanted == &**application)
            && filter.name.as_deref().is_none_or(|wanted| wanted == &**name)
            && filter.begun_before.is_none_or(|before| begun_at < before)
    }

    fn summary(self) -> GlobalSummary {
        match self {
            Self::Open(global) => {
                let (status, branches) = (global.status(), global.branches.len());
                GlobalSummary { record: global.record(), status, branches }
            }
            Self::Finished(global) => {
                let (status, branches) = (global.status(), global.finished_branches.len());
                GlobalSummary { record: global.clone(), status, branches }
            }
        }
    }
}
