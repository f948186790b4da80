//! The ephemeral nodes of this process, and when each must be deleted.
//!
//! A node lives as long as the session, and a session outlives every lease for as long as this
//! process lives. So this process itself ends a lease that was not renewed, and a waiter without a
//! heartbeat. If the process dies, the session ends and takes all its nodes with it.
//!
//! Pure: the present is an argument.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{AcquireRequest, LockRef, WAITER_TIMEOUT};
use crate::clock::Moment;
use crate::name::{AcquisitionId, FencingToken, LockName};

/// How long an id stays refused: longer than any request with it can be under way.
const BARRED: Duration = Duration::from_secs(60);

/// The nodes of all acquisitions that were requested through one backend.
#[derive(Debug, Default)]
pub(super) struct NodeRegistry {
    entries: HashMap<AcquisitionId, RegisteredNode>,
    /// Ids that were released while a request with them may still arrive, each with its end.
    barred: HashMap<AcquisitionId, Moment>,
}

/// One acquisition, from before its node is created until the node is known to be gone.
#[derive(Clone, Debug)]
pub(super) struct RegisteredNode {
    pub(super) name: LockName,
    /// None until the node is known.
    pub(super) node: Option<LockNode>,
    /// None until the lock is held.
    pub(super) fencing_token: Option<FencingToken>,
    ends_at: Moment,
    /// The node is being deleted.
    is_ending: bool,
}

/// A node that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockNode {
    pub(super) path: String,
    /// The transaction that created the node: the fencing token.
    pub(super) made_by: i64,
    /// The session that owns the node. An earlier session of this process may be over, and its
    /// nodes about to go.
    pub(super) session: i64,
}

/// The state of an acquisition when a request for it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    /// Nothing: this is the first request.
    First,
    /// An earlier request of the same acquisition was registered.
    Earlier,
    /// The acquisition has just ended, and its node is being deleted.
    Ending,
    /// The id is refused.
    Barred,
}

impl RegisteredNode {
    pub(super) fn is_held(&self) -> bool {
        self.fencing_token.is_some() && !self.is_ending
    }
}

impl NodeRegistry {
    /// Registers a request before anything is sent, so that a node that it creates is found later,
    /// or ends by itself.
    pub(super) fn register(&mut self, now: Moment, request: &AcquireRequest) -> Registration {
        self.barred.retain(|_, until| now < *until);
        if self.barred.contains_key(&request.id) {
            return Registration::Barred;
        }
        // Longer than the client waits for the answer: no sweep ends the acquisition before.
        let alive_until = now + WAITER_TIMEOUT.max(request.lease);
        match self.entries.get_mut(&request.id) {
            Some(entry) if entry.is_ending => Registration::Ending,
            Some(entry) => {
                entry.ends_at = entry.ends_at.max(alive_until);
                Registration::Earlier
            }
            None => {
                let (name, ends_at) = (request.name.clone(), alive_until);
                let (node, fencing_token, is_ending) = (None, None, false);
                let entry = RegisteredNode { name, node, fencing_token, ends_at, is_ending };
                self.entries.insert(request.id, entry);
                Registration::First
            }
        }
    }

    pub(super) fn get(&self, id: AcquisitionId) -> Option<&RegisteredNode> {
        self.entries.get(&id)
    }

    /// Sets the node of an acquisition, or none if its node is of no use. A lock that was held with
    /// another node is lost.
    pub(super) fn set_node(&mut self, id: AcquisitionId, node: Option<LockNode>) {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.node != node);
        if let Some(entry) = entry {
            (entry.node, entry.fencing_token) = (node, None);
        }
    }

    pub(super) fn mark_waiting(&mut self, now: Moment, id: AcquisitionId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.ends_at = now + WAITER_TIMEOUT;
        }
    }

    /// Marks an acquisition as held. Returns false if it was given up meanwhile.
    pub(super) fn mark_held(
        &mut self,
        now: Moment,
        id: AcquisitionId,
        lease: Duration,
        fencing_token: FencingToken,
    ) -> bool {
        let entry = self.entries.get_mut(&id).filter(|entry| !entry.is_ending);
        let Some(entry) = entry else { return false };
        (entry.fencing_token, entry.ends_at) = (Some(fencing_token), now + lease);
        true
    }

    /// Returns the path of the node of a lock that this session still holds.
    pub(super) fn held_path(
        &self,
        now: Moment,
        lock_ref: &LockRef,
        session: i64,
    ) -> Option<String> {
        let entry = self.entries.get(&lock_ref.id)?;
        let is_held = entry.is_held() && entry.name == lock_ref.name && now < entry.ends_at;
        let node = entry.node.as_ref().filter(|node| is_held && node.session == session)?;
        Some(node.path.clone())
    }

    /// Renews a lease whose node was seen after the renewal was requested. Returns false if the
    /// acquisition has ended meanwhile.
    pub(super) fn renew(&mut self, now: Moment, id: AcquisitionId, lease: Duration) -> bool {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.is_held());
        entry.map(|entry| entry.ends_at = now + lease).is_some()
    }

    /// Returns the acquisitions that have ended and whose nodes are not yet known to be gone, and
    /// marks them as ending. An acquisition is returned again until it is forgotten.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<(AcquisitionId, RegisteredNode)> {
        let ended = self.entries.iter_mut().filter(|(_, entry)| entry.ends_at <= now);
        let mark = |(id, entry): (&AcquisitionId, &mut RegisteredNode)| {
            entry.is_ending = true;
            (*id, entry.clone())
        };
        ended.map(mark).collect()
    }

    /// Removes an acquisition of which nothing is left.
    pub(super) fn forget(&mut self, id: AcquisitionId) {
        self.entries.remove(&id);
    }

    pub(super) fn bar(&mut self, now: Moment, id: AcquisitionId) {
        self.barred.insert(id, now + BARRED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{LockMode, QueueMode};

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn acquire() -> AcquireRequest {
        let (name, id) = (LockName::new("a").unwrap(), AcquisitionId { client: 1, number: 1 });
        let (mode, label, queue) = (LockMode::Exclusive, "".into(), QueueMode::Join);
        AcquireRequest { name, id, mode, lease: LEASE, label, queue }
    }

    fn held() -> (NodeRegistry, LockRef) {
        let (mut registry, request) = (NodeRegistry::default(), acquire());
        assert_eq!(registry.register(at(0), &request), Registration::First);
        let node = LockNode { path: "/a".to_owned(), made_by: 3, session: 5 };
        registry.set_node(request.id, Some(node));
        assert!(registry.mark_held(at(0), request.id, LEASE, FencingToken::new(3)));
        (registry, LockRef { name: request.name, id: request.id })
    }

    #[test]
    fn lease_ends_unless_renewed() {
        let (mut registry, lock_ref) = held();
        assert!(registry.expire(at(9)).is_empty());
        assert!(registry.renew(at(9), lock_ref.id, LEASE));
        assert!(registry.expire(at(18)).is_empty());
        assert_eq!(registry.expire(at(19)).len(), 1);
        assert!(!registry.renew(at(19), lock_ref.id, LEASE), "an ended lease is not renewed");
        assert_eq!(registry.register(at(19), &acquire()), Registration::Ending);
        assert_eq!(registry.expire(at(20)).len(), 1, "until it is known to be gone");
        registry.forget(lock_ref.id);
        assert_eq!(registry.register(at(20), &acquire()), Registration::First);
    }

    #[test]
    fn lock_belongs_to_the_session_of_its_node() {
        let (registry, lock_ref) = held();
        assert_eq!(registry.held_path(at(9), &lock_ref, 5).as_deref(), Some("/a"));
        assert_eq!(registry.held_path(at(9), &lock_ref, 6), None);
        assert_eq!(registry.held_path(at(10), &lock_ref, 5), None);
    }

    #[test]
    fn lock_held_with_another_node_is_lost() {
        let (mut registry, lock_ref) = held();
        registry.set_node(
            lock_ref.id,
            Some(LockNode { path: "/a".to_owned(), made_by: 3, session: 5 }),
        );
        assert_eq!(
            registry.get(lock_ref.id).and_then(|entry| entry.fencing_token),
            Some(FencingToken::new(3))
        );
        registry.set_node(
            lock_ref.id,
            Some(LockNode { path: "/b".to_owned(), made_by: 4, session: 5 }),
        );
        assert_eq!(registry.held_path(at(1), &lock_ref, 5), None);
    }

    #[test]
    fn waiter_without_heartbeat_ends() {
        let (mut registry, request) = (NodeRegistry::default(), acquire());
        assert_eq!(registry.register(at(0), &request), Registration::First);
        registry.mark_waiting(at(0), request.id);
        assert!(registry.expire(at(5)).is_empty());
        assert_eq!(registry.register(at(5), &request), Registration::Earlier);
        registry.mark_waiting(at(5), request.id);
        assert!(registry.expire(at(10)).is_empty());
        assert_eq!(registry.expire(at(11)).len(), 1);
    }

    #[test]
    fn barred_id_is_refused_for_a_minute() {
        let (mut registry, request) = (NodeRegistry::default(), acquire());
        registry.bar(at(0), request.id);
        assert_eq!(registry.register(at(59), &request), Registration::Barred);
        assert_eq!(registry.register(at(60), &request), Registration::First);
    }
}
