//! Named locks as operators see them.

use std::ops::Bound;
use std::sync::Arc;

use super::turn::Turn;
use crate::contract::{LeaseRecord, LockShare, LockToken, Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::operator::page::{Page, PageBounds};
use crate::operator::view::SHOWN_MAX;

/// A named lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLockView {
    /// Its name.
    pub name: Arc<str>,
    /// Its leases, longest first, with those whose time is up and whose place is still free: at
    /// most [`SHOWN_MAX`] of them.
    pub held: Vec<LeaseRecord>,
    /// How many leases there are of it.
    pub holding: usize,
    /// The waiters, next first: at most [`SHOWN_MAX`] of them.
    pub queue: Vec<NamedLockWaiter>,
    /// How many wait.
    pub waiting: usize,
}

/// A request that waits for a named lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLockWaiter {
    /// The acquisition.
    pub token: LockToken,
    /// The client's name for itself.
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
        let (mut items, mut scanned) = (Vec::new(), 0);
        // At least one, so that every call makes progress.
        while scanned < bounds.scanned_max.max(1) && items.len() < bounds.items_max {
            let Some(lock) = names.next().and_then(|(name, _)| self.named_lock(name)) else {
                break;
            };
            scanned += 1 + lock.held.len() + lock.queue.len();
            items.push(lock);
        }
        let last = items.last().map(|last: &NamedLockView| last.name.clone());
        Page { items, next: names.next().and(last), scanned }
    }

    /// Returns a named lock that is held or waited for.
    #[must_use]
    pub fn named_lock(&self, name: &str) -> Option<NamedLockView> {
        let (name, lock) = self.leases.locks.get_key_value(name)?;
        let queue: Vec<_> = if lock.held.len() <= SHOWN_MAX {
            self.leases.queue(name).take(SHOWN_MAX).map(|(_, turn)| waiter(turn)).collect()
        } else {
            self.leases.queue_by_arrival(name).take(SHOWN_MAX).map(waiter).collect()
        };
        Some(NamedLockView {
            name: name.clone(),
            held: self.leases.held(name).take(SHOWN_MAX).cloned().collect(),
            holding: lock.held.len(),
            queue,
            waiting: lock.queue.len(),
        })
    }
}

fn waiter(turn: &Turn) -> NamedLockWaiter {
    NamedLockWaiter {
        token: turn.wanted.token,
        label: turn.wanted.label.clone(),
        share: turn.wanted.share,
        xid: turn.wanted.xid,
        since: turn.queued_at,
    }
}
