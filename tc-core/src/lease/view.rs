//! Named locks as operators see them.

use std::ops::Bound;
use std::sync::Arc;

use super::record::{LeaseRecord, LockShare, LockToken};
use super::turn::{Turn, TurnId};
use crate::coordinator::Coordinator;
use crate::list::{Page, PageBounds};
use crate::{Timestamp, Xid};

/// Requests shown of one queue (BOUNDED).
const QUEUE_SHOWN_MAX: usize = 100;

/// A named lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLockView {
    /// Its name.
    pub name: Arc<str>,
    /// Who holds it, longest first; those included whose time is up and whose place is nobody
    /// else's yet.
    pub held: Vec<LeaseRecord>,
    /// Who waits, next first: at most 100 of them.
    pub queue: Vec<NamedLockWaiter>,
    /// How many wait.
    pub waiting: usize,
}

/// A request that waits for a named lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLockWaiter {
    /// Of which acquisition.
    pub token: LockToken,
    /// What its client calls itself.
    pub label: Arc<str>,
    /// How much it asks for.
    pub share: LockShare,
    /// The global that asks.
    pub xid: Option<Xid>,
    /// Since when.
    pub since: Timestamp,
}

impl Coordinator {
    /// Named locks in the order of their names. For the next page pass this one's `next` as
    /// `after`.
    #[must_use]
    pub fn named_locks(
        &self,
        after: Option<&str>,
        bounds: PageBounds,
    ) -> Page<NamedLockView, Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.leases.locks.range::<str, _>((from, Bound::Unbounded));
        let max = bounds.items_max.min(bounds.scanned_max);
        let items: Vec<_> =
            names.by_ref().take(max).filter_map(|(name, _)| self.named_lock(name)).collect();
        let next = names.next().and_then(|_| items.last().map(|last| last.name.clone()));
        Page { items, next }
    }

    /// A named lock, unless nobody holds it or waits for it.
    #[must_use]
    pub fn named_lock(&self, name: &str) -> Option<NamedLockView> {
        let (name, lock) = self.leases.locks.get_key_value(name)?;
        let queue = self.leases.queue(name).take(QUEUE_SHOWN_MAX).map(waiter);
        Some(NamedLockView {
            name: name.clone(),
            held: self.leases.held(name).cloned().collect(),
            queue: queue.collect(),
            waiting: lock.queue.len(),
        })
    }
}

fn waiter((_, turn): (TurnId, &Turn)) -> NamedLockWaiter {
    NamedLockWaiter {
        token: turn.wanted.token,
        label: turn.wanted.label.clone(),
        share: turn.wanted.share,
        xid: turn.wanted.xid,
        since: turn.queued_at,
    }
}
