//! The table of locks, as every backend has one: the holders, the waiters, and the next fencing
//! token.
//!
//! Pure: the present is an argument. This is the reference for what the other backends do in their
//! own languages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::backend::{
    AcquireRequest, AcquireResponse, LockMode, LockRef, QueueMode, ReleaseRequest, ReleaseResponse,
    WAITER_HEARTBEAT, WAITER_TIMEOUT,
};
use crate::clock::Moment;
use crate::name::{AcquisitionId, FencingToken, Holder, LockName};

#[derive(Debug, Default)]
pub(crate) struct Table {
    locks: HashMap<LockName, LockEntry>,
    /// Ids that were released while a request with them may still arrive.
    barred: HashSet<AcquisitionId>,
}

#[derive(Debug, Default)]
struct LockEntry {
    /// One exclusive holder, or some shared holders.
    held: Vec<HolderEntry>,
    /// The fencing token of the last acquisition. It never goes back, because a lock is never
    /// forgotten.
    fencing_token: i64,
    /// Whether the last token was given to a shared holder: the holders that join get the same one.
    is_shared: bool,
    queue: VecDeque<(AcquisitionId, Moment)>,
}

#[derive(Debug)]
struct HolderEntry {
    id: AcquisitionId,
    label: String,
    mode: LockMode,
    expires_at: Moment,
}

impl Table {
    /// Answers a request for a lock. Also returns the waiter to wake: after a permit was granted,
    /// there may be room for another.
    pub(crate) fn acquire(
        &mut self,
        now: Moment,
        request: &AcquireRequest,
    ) -> (AcquireResponse, Option<AcquisitionId>) {
        if self.barred.contains(&request.id) {
            return (AcquireResponse::Busy { holder: None, retry_after: WAITER_HEARTBEAT }, None);
        }
        let lock = self.locks.entry(request.name.clone()).or_default();
        lock.drop_dead_waiters(now);
        // The caller still has the lock if no other took it since its lease ended.
        lock.held.retain(|held| now < held.expires_at || held.id == request.id);
        if lock.is_for(request) {
            let fencing_token = lock.grant(now, request);
            return (
                AcquireResponse::granted(fencing_token),
                lock.next().filter(|_| lock.is_shared),
            );
        }
        if request.queue != QueueMode::NoWait {
            lock.beat(now, request.id);
        }
        (lock.busy(now), None)
    }

    /// Returns the number of permits of the present holders, if it is another one.
    pub(crate) fn other_permits(&self, now: Moment, request: &AcquireRequest) -> Option<u32> {
        let LockMode::Shared { permits } = request.mode else { return None };
        let held = self.locks.get(&request.name)?.held.iter().filter(|held| now < held.expires_at);
        let mut present = held.filter_map(|held| match held.mode {
            LockMode::Shared { permits } => Some(permits),
            LockMode::Exclusive => None,
        });
        present.find(|other| *other != permits)
    }

    pub(crate) fn renew(
        &mut self,
        now: Moment,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Vec<bool> {
        let renew = |lock_ref: &LockRef| {
            let held =
                self.locks.get_mut(&lock_ref.name).and_then(|lock| lock.held_by(lock_ref.id));
            let held = held.filter(|held| now < held.expires_at);
            held.map(|held| held.expires_at = now + lease).is_some()
        };
        lock_refs.iter().map(renew).collect()
    }

    /// Ends an acquisition. Also returns the waiter to wake.
    pub(crate) fn release(
        &mut self,
        now: Moment,
        request: &ReleaseRequest,
    ) -> (ReleaseResponse, Option<AcquisitionId>) {
        let id = request.lock_ref.id;
        if request.refuse_late_requests {
            self.barred.insert(id);
        }
        // The bar comes first: the late request may be the first that names the lock.
        let Some(lock) = self.locks.get_mut(&request.lock_ref.name) else {
            return (ReleaseResponse::NotHeld { current: None }, None);
        };
        lock.drop_dead_waiters(now);
        let was_head = lock.next() == Some(id);
        lock.queue.retain(|(waiter, _)| *waiter != id);
        // An ended lease is not released, even if no other has taken the lock: the caller must
        // learn that its work was not protected to the end.
        if lock.held_by(id).is_some_and(|held| now < held.expires_at) {
            lock.held.retain(|held| held.id != id);
            return (ReleaseResponse::Released, lock.next());
        }
        // If it was this waiter's turn, the turn passes to the next one.
        (ReleaseResponse::NotHeld { current: lock.holder(now) }, lock.next().filter(|_| was_head))
    }
}

#[cfg(test)]
impl Table {
    pub(crate) fn holder(&self, now: Moment, name: &LockName) -> Option<AcquisitionId> {
        self.locks.get(name)?.holder(now).map(|holder| holder.id)
    }
}

impl LockEntry {
    fn held_by(&mut self, id: AcquisitionId) -> Option<&mut HolderEntry> {
        self.held.iter_mut().find(|held| held.id == id)
    }

    fn holder(&self, now: Moment) -> Option<Holder> {
        let held = self.held.iter().find(|held| now < held.expires_at)?;
        Some(Holder { id: held.id, label: held.label.clone() })
    }

    fn next(&self) -> Option<AcquisitionId> {
        self.queue.front().map(|(head, _)| *head)
    }

    fn drop_dead_waiters(&mut self, now: Moment) {
        self.queue.retain(|(_, alive_until)| now < *alive_until);
    }

    /// Returns whether a request is to be granted: it was granted before, or there is room and no
    /// waiter has waited longer.
    fn is_for(&self, request: &AcquireRequest) -> bool {
        let is_held = self.held.iter().any(|held| held.id == request.id);
        let is_next = self.next().is_none_or(|head| head == request.id);
        is_held || (is_next && self.has_room(request.mode))
    }

    fn has_room(&self, mode: LockMode) -> bool {
        let LockMode::Shared { permits } = mode else { return self.held.is_empty() };
        let is_shared = self.held.iter().all(|held| held.mode != LockMode::Exclusive);
        is_shared && self.held.len() < usize::try_from(permits).unwrap_or(usize::MAX)
    }

    fn grant(&mut self, now: Moment, request: &AcquireRequest) -> FencingToken {
        let (id, mode, expires_at) = (request.id, request.mode, now + request.lease);
        self.queue.retain(|(waiter, _)| *waiter != id);
        if let Some(held) = self.held_by(id) {
            held.expires_at = expires_at;
            // A shared holder never becomes exclusive: a request may be a late one.
            if mode != LockMode::Exclusive {
                held.mode = mode;
                self.is_shared = true;
            }
            return FencingToken::new(self.fencing_token);
        }
        if mode == LockMode::Exclusive || !self.is_shared {
            self.fencing_token += 1;
        }
        self.is_shared = mode != LockMode::Exclusive;
        self.held.push(HolderEntry { id, label: request.label.to_string(), mode, expires_at });
        FencingToken::new(self.fencing_token)
    }

    fn beat(&mut self, now: Moment, id: AcquisitionId) {
        let alive_until = now + WAITER_TIMEOUT;
        match self.queue.iter_mut().find(|(waiter, _)| *waiter == id) {
            Some((_, until)) => *until = alive_until,
            None => self.queue.push_back((id, alive_until)),
        }
    }

    /// The next waiter tries again when the first lease ends.
    fn busy(&self, now: Moment) -> AcquireResponse {
        let ends_at = self.held.iter().map(|held| held.expires_at).min();
        let left = ends_at.map_or(WAITER_HEARTBEAT, |ends_at| ends_at.remaining(now));
        let retry_after = left.clamp(Duration::from_millis(1), WAITER_HEARTBEAT);
        AcquireResponse::Busy { holder: self.holder(now), retry_after }
    }
}
