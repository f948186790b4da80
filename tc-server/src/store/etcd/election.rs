//! The key of the lease, as this process has last seen it: which process leads, and when the key
//! goes.
//!
//! The key only keeps candidates from deposing each other for no reason. It is no fence: that is in
//! `term.rs`.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use handfast_core::Epoch;
use handfast_etcd::{Changes, EtcdClient, EtcdError, KeyRange, KeyValue, read_all};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::members::Members;
use crate::store::{CoordinatorNode, Leader};

/// The pause before a watch that has failed is set again.
const WATCH_AGAIN: Duration = Duration::from_millis(100);

/// The key of the lease, as this process has last seen it.
#[derive(Debug)]
pub(super) struct Election {
    pub(super) key: Vec<u8>,
    seen: watch::Sender<SeenLease>,
    /// Locked while `leader` changes.
    own: Mutex<OwnKey>,
    leader: watch::Sender<Leader>,
}

/// The last key that this process has created.
#[derive(Clone, Copy, Debug, Default)]
struct OwnKey {
    created: i64,
    /// Whether it relies on the key.
    is_held: bool,
}

/// The key of the lease at some revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenLease {
    /// The revision of the whole store; 0 before the first read.
    revision: i64,
    pub(super) holder: Option<LeaseHolder>,
}

/// A node that has the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseHolder {
    /// The revision at which the key was created: that of no other holder.
    pub(super) created: i64,
    /// The id of the lease in etcd.
    pub(super) lease: i64,
    /// `None` if a later version wrote it.
    value: Option<LeaseValue>,
}

/// The value of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseValue {
    /// The holder's epoch, once it has one.
    pub(super) epoch: Option<u64>,
    pub(super) node: CoordinatorNode,
}

impl LeaseValue {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a node can be written as JSON")
    }
}

impl SeenLease {
    /// Returns the key from what a transaction found.
    pub(super) fn of(revision: i64, found: &[KeyValue]) -> Self {
        let holder = found.first().map(|found| LeaseHolder {
            created: found.create_revision,
            lease: found.lease,
            value: serde_json::from_slice(&found.value).ok(),
        });
        Self { revision, holder }
    }

    fn created(&self) -> Option<i64> {
        self.holder.as_ref().map(|holder| holder.created)
    }

    /// Returns whether the key that was created at that revision has gone.
    fn is_without(&self, created: i64) -> bool {
        self.revision >= created && self.created() != Some(created)
    }
}

impl Election {
    pub(super) fn new(key: Vec<u8>) -> Self {
        let seen = watch::Sender::new(SeenLease::default());
        let leader = watch::Sender::new(Leader::Unknown);
        Self { key, seen, own: Mutex::default(), leader }
    }

    /// Follows which process leads.
    pub(super) fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.subscribe()
    }

    /// Reads the key at a member.
    pub(super) async fn read(&self, etcd: EtcdClient) -> Result<SeenLease, EtcdError> {
        let key = KeyRange::one(self.key.clone());
        let mut found = etcd.run(vec![read_all(&key)]).await?;
        Ok(SeenLease::of(found.revision, &found.found(0)))
    }

    /// Takes note of the key, unless a later state of it is known.
    pub(super) fn publish(&self, seen: SeenLease) {
        self.replace(seen, |seen, last| seen.revision > last.revision);
    }

    fn replace(&self, seen: SeenLease, is_newer: impl Fn(&SeenLease, &SeenLease) -> bool) {
        let own = self.own();
        self.seen.send_if_modified(|last| {
            let is_newer = is_newer(&seen, last);
            if is_newer {
                *last = seen;
            }
            is_newer
        });
        self.update_leader(*own);
    }

    /// Takes note that this process created the key at that revision.
    pub(super) fn hold(&self, created: i64) {
        let mut own = self.own();
        *own = OwnKey { created, is_held: true };
        self.update_leader(*own);
    }

    /// Takes note that this process no longer relies on the key that it created at that revision.
    pub(super) fn release(&self, created: i64) {
        let mut own = self.own();
        if own.created == created {
            own.is_held = false;
        }
        self.update_leader(*own);
    }

    /// Returns whether the key that this process created at that revision has gone.
    pub(super) fn is_without(&self, created: i64) -> bool {
        self.seen.borrow().is_without(created)
    }

    /// Completes when the key that was created at that revision has gone.
    pub(super) async fn without(&self, created: i64) {
        let mut seen = self.seen.subscribe();
        let gone = seen.wait_for(|seen| seen.is_without(created)).await;
        gone.map(drop).expect("the sender is borrowed");
    }

    fn own(&self) -> MutexGuard<'_, OwnKey> {
        self.own.lock().expect("no holder of the election's lock panics")
    }

    fn update_leader(&self, own: OwnKey) {
        let seen = self.seen.borrow();
        let value = seen.holder.as_ref().and_then(|holder| holder.value.as_ref());
        let leader = match value {
            // A state from before the key was created says nothing about it.
            _ if own.is_held && !seen.is_without(own.created) => Leader::Here,
            // It is about to go.
            _ if seen.created() == Some(own.created) => Leader::Unknown,
            Some(LeaseValue { epoch: Some(epoch), node }) => {
                Leader::Elsewhere { epoch: Epoch(*epoch), node: node.clone() }
            }
            Some(LeaseValue { epoch: None, .. }) | None => Leader::Unknown,
        };
        self.leader.send_if_modified(|last| {
            let is_other = *last != leader;
            if is_other {
                *last = leader;
            }
            is_other
        });
    }

    /// Watches the key forever.
    pub(super) async fn follow(self: Arc<Self>, members: Arc<Members>, lease: Duration) {
        let mut revision = 0;
        loop {
            match self.watch(&members, lease, &mut revision).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(%error, "the key of the lease is not watched");
                    sleep(WATCH_AGAIN).await;
                }
            }
        }
    }

    /// Watches the key until nothing has happened for the length of a lease. A member that is
    /// stopped reports nothing, so the caller then sets the watch again, perhaps at another member.
    ///
    /// The reads follow one another, so a revision that is smaller than that of the read before is
    /// of an etcd that was restored, and the key is as it is there.
    async fn watch(
        &self,
        members: &Members,
        lease: Duration,
        revision: &mut i64,
    ) -> Result<(), EtcdError> {
        let key = KeyRange::one(self.key.clone());
        let set = |etcd: EtcdClient| async move { etcd.watch(key, Changes::All).await };
        let mut watch = members.attempt(set).await?;
        loop {
            // Read only when the watch stands, so that no change is missed.
            let seen = members.attempt(|etcd| self.read(etcd)).await?;
            let went_back = seen.revision < *revision;
            *revision = seen.revision;
            self.replace(seen, |seen, last| went_back || seen.revision > last.revision);
            match timeout(lease, watch.next()).await {
                Ok(changed) => changed?,
                Err(_elapsed) => return Ok(()),
            }
        }
    }
}
