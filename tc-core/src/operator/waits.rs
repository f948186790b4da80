//! Views of waiting requests: the wait-for graph between globals, and the queue of one row.
//!
//! A request may wait for many globals, and a row may have many waiters. Each of these views shows
//! a bounded number of them and says that there are more (BOUNDED).

use std::ops::ControlFlow;
use std::sync::Arc;

use super::page::{Page, PageBounds};
use super::view::LockWaiter;
use crate::collections::interner::Space;
use crate::contract::{GlobalStatus, Labels, LockMode, Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::global::state::Global;
use crate::named_lock::owner::GlobalTurn;
use crate::named_lock::turn::TurnId;
use crate::row_lock::row_locks::Way;
use crate::row_lock::table::{LockTable, QueuePosition, Rank, WaitId};
use crate::row_lock::waiters::{Waiter, WantedRow};

/// The most edges that are shown of one request.
const EDGES_SHOWN_MAX: usize = 32;
/// The most requests, holders and queued requests that are looked at to find them.
const LOOKED_AT_MAX: usize = 256;

/// A global in the wait-for graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingGlobal {
    /// Its XID.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The application that began it; empty if the global is not known.
    pub application: Arc<str>,
    /// The application's name for this kind of transaction.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Labels,
    /// How it stands.
    pub status: GlobalStatus,
    /// When it began.
    pub begun_at: Timestamp,
}

/// The thing that a global waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitedFor {
    /// A row.
    Row {
        /// The resource.
        resource: Arc<str>,
        /// The table.
        table: Arc<str>,
        /// The canonical key.
        key: Box<[u8]>,
        /// How the row is wanted.
        mode: LockMode,
    },
    /// A named lock.
    NamedLock {
        /// Its name.
        name: Arc<str>,
    },
}

/// A request of a global that waits, with the globals that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRequest {
    /// Its global.
    pub global: WaitingGlobal,
    /// Since when it waits.
    pub since: Timestamp,
    /// When it is refused.
    pub deadline: Timestamp,
    /// The thing that it waits for; one row of several.
    pub waited_for: WaitedFor,
    /// The globals that it waits for; not all of them where there are many.
    pub edges: Vec<WaitEdge>,
}

/// An edge of the wait-for graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEdge {
    /// The global that is waited for.
    pub to: WaitingGlobal,
    /// The thing that is waited for.
    pub waited_for: WaitedFor,
    /// Whether that global holds it, and does not only stand before the request in the queue.
    pub holds: bool,
}

/// A place in the list of waiting requests, which goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitCursor {
    /// The number of a request for rows.
    Row(u64),
    /// The number of a request for a named lock.
    NamedLock(u64),
}

/// A place in the queue of a row, which goes on behind it. It stays valid when requests before or
/// behind it come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueCursor {
    /// The time from which the request counts as waiting; `None` for one of a holder of the row,
    /// which stands before all others.
    pub waits_from: Option<Timestamp>,
    /// The number of the request.
    pub request: u64,
}

impl Coordinator {
    /// Returns the requests of globals that wait, the longest waiting first: for rows, then for
    /// named locks. For the next page pass this one's `next` as `after`.
    #[must_use]
    pub fn waiting_requests(
        &self,
        after: Option<WaitCursor>,
        bounds: PageBounds,
    ) -> Page<WaitingRequest, WaitCursor> {
        let (row, turn) = match after {
            None => (Some(WaitId(0)), TurnId(0)),
            Some(WaitCursor::Row(id)) => (Some(WaitId(id)), TurnId(0)),
            Some(WaitCursor::NamedLock(id)) => (None, TurnId(id)),
        };
        let rows = row.into_iter().flat_map(|row| self.rows.waiters.after(row));
        let rows = rows.map(|(id, waiter)| Waiting::Row(id, waiter));
        let turns = self.leases.waits_after(turn).map(Waiting::NamedLock);
        let mut page = Page { items: Vec::new(), next: after, scanned: 0 };
        let mut waiting = rows.chain(turns).peekable();
        // At least one, so that every call makes progress.
        while page.scanned < bounds.scanned_max.max(1) && page.items.len() < bounds.items_max {
            let Some(request) = waiting.next() else { break };
            page.next = Some(request.cursor());
            page.scanned += 1;
            let shown = self.waiting_request(request, &mut page.scanned);
            page.items.extend(shown);
        }
        if waiting.peek().is_none() {
            page.next = None;
        }
        page
    }

    /// Returns the requests for rows with which a global waits, few at a time.
    #[must_use]
    pub fn waits_of(&self, xid: Xid) -> Vec<WaitingRequest> {
        let ids = self.rows.waiters.of_global(xid).take(EDGES_SHOWN_MAX);
        let waiters = ids.filter_map(|id| Some(Waiting::Row(id, self.rows.waiters.get(id)?)));
        waiters.filter_map(|request| self.waiting_request(request, &mut 0)).collect()
    }

    /// Returns the requests that wait for a row, next first. For the next page pass this one's
    /// `next` as `after`. `None` if the row is neither held nor waited for.
    #[must_use]
    pub fn lock_queue(
        &self,
        resource: &str,
        table: &str,
        key: &[u8],
        after: Option<QueueCursor>,
        bounds: PageBounds,
    ) -> Option<Page<LockWaiter, QueueCursor>> {
        let space = Space::new(Arc::from(resource), Arc::from(table));
        let lock = self.rows.table.find(&space, key)?;
        let mut queue = self.rows.table.queue_behind(lock, after.map(QueueCursor::place));
        let items_max = bounds.items_max.min(bounds.scanned_max).max(1);
        let (mut items, mut next) = (Vec::new(), None);
        let mut last = None;
        for (place, claim) in queue.by_ref().take(items_max) {
            last = Some(QueueCursor::at(place));
            items.extend(self.lock_waiter(place, claim));
        }
        if queue.next().is_some() {
            next = last;
        }
        let scanned = items.len();
        Some(Page { items, next, scanned })
    }

    /// Returns how many requests wait for a row.
    #[must_use]
    pub fn waiting_for(&self, resource: &str, table: &str, key: &[u8]) -> usize {
        let space = Space::new(Arc::from(resource), Arc::from(table));
        self.rows.table.find(&space, key).map_or(0, |lock| self.rows.table.waiting(lock))
    }

    fn waiting_request(&self, request: Waiting<'_>, scanned: &mut usize) -> Option<WaitingRequest> {
        match request {
            Waiting::Row(id, waiter) => {
                let global = self.brief(waiter.xid?);
                let row = waiter.rows.get(waiter.blocked_at).or(waiter.rows.first())?;
                let waited_for = WaitedFor::row(&self.rows.table, *row);
                let edges = self.edges_of(id, scanned);
                let (since, deadline) = (waiter.since, waiter.deadline);
                Some(WaitingRequest { global, since, deadline, waited_for, edges })
            }
            Waiting::NamedLock(turn) => {
                let GlobalTurn { id, xid, name, since, deadline } = turn;
                let blockers = self.leases.blockers_of_turn(id);
                *scanned += blockers.len();
                let edge = |&to: &Xid| WaitEdge {
                    to: self.brief(to),
                    waited_for: WaitedFor::NamedLock { name: name.clone() },
                    holds: self.leases.holds(to, name),
                };
                let edges = blockers.iter().take(EDGES_SHOWN_MAX).map(edge).collect();
                let waited_for = WaitedFor::NamedLock { name: name.clone() };
                let global = self.brief(xid);
                Some(WaitingRequest { global, since, deadline, waited_for, edges })
            }
        }
    }

    fn edges_of(&self, id: WaitId, scanned: &mut usize) -> Vec<WaitEdge> {
        let (mut edges, mut looked_at) = (Vec::new(), 0);
        let _ = self.rows.each_in_the_way(id, |row, way| {
            looked_at += 1;
            if edges.len() >= EDGES_SHOWN_MAX || looked_at > LOOKED_AT_MAX {
                return ControlFlow::Break(());
            }
            edges.extend(way.blocker().map(|to| WaitEdge {
                to: self.brief(to),
                waited_for: WaitedFor::row(&self.rows.table, row),
                holds: matches!(way, Way::Holds(_)),
            }));
            ControlFlow::Continue(())
        });
        *scanned += looked_at;
        edges
    }

    fn brief(&self, xid: Xid) -> WaitingGlobal {
        brief(xid, self.globals.get(xid), &self.environment.address)
    }
}

/// Returns the part of a global that the graph shows.
pub(crate) fn brief(xid: Xid, global: Option<&Global>, address: &Arc<str>) -> WaitingGlobal {
    let Some(global) = global else {
        return WaitingGlobal {
            xid,
            address: address.clone(),
            application: Arc::from(""),
            name: Arc::from(""),
            labels: Labels::NONE,
            status: GlobalStatus::Unknown,
            begun_at: Timestamp(0),
        };
    };
    WaitingGlobal {
        xid,
        address: global.origin.address.clone(),
        application: global.origin.application.clone(),
        name: global.origin.name.clone(),
        labels: global.labels().clone(),
        status: global.status(),
        begun_at: global.begun_at,
    }
}

/// A request that waits.
enum Waiting<'a> {
    Row(WaitId, &'a Waiter),
    NamedLock(GlobalTurn<'a>),
}

impl Waiting<'_> {
    fn cursor(&self) -> WaitCursor {
        match self {
            Self::Row(id, _) => WaitCursor::Row(id.0),
            Self::NamedLock(turn) => WaitCursor::NamedLock(turn.id.0),
        }
    }
}

impl WaitedFor {
    pub(crate) fn row(table: &LockTable, row: WantedRow) -> Self {
        let space = table.space(row.lock);
        Self::Row {
            resource: space.resource.clone(),
            table: space.table.clone(),
            key: table.key(row.lock).into(),
            mode: row.mode,
        }
    }
}

impl QueueCursor {
    fn at(place: QueuePosition) -> Self {
        let waits_from = match place.rank {
            Rank::Holder => None,
            Rank::Newcomer(from) => Some(from),
        };
        Self { waits_from, request: place.id.0 }
    }

    fn place(self) -> QueuePosition {
        let rank = self.waits_from.map_or(Rank::Holder, Rank::Newcomer);
        QueuePosition { rank, id: WaitId(self.request) }
    }
}
