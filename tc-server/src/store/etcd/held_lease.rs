//! The lease of a candidate or leader, which a task keeps alive.
//!
//! All times are counted from before the request was sent that etcd has answered, so the lease ends
//! here no later than there. In some versions of etcd, a member that was cut off, and does not know
//! yet that another one leads the cluster, still renews leases. Then the lease may end there a
//! little sooner. Nothing that is stored relies on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use handfast_etcd::{EtcdClient, KeyRange, none_since, put, read_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::election::{Election, LeaseValue, SeenLease};
use super::members::Members;
use crate::store::boot_instant::BootInstant;
use crate::store::{CoordinatorNode, StoreError};

/// The pause after a keep-alive that was not answered.
const KEEP_ALIVE_AGAIN: Duration = Duration::from_millis(50);

/// A lease of this process. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct HeldLease {
    pub(super) state: Arc<LeaseState>,
    keeper: AbortOnDropHandle<()>,
    is_revoked: AtomicBool,
}

/// The lease as the tasks of a leader see it.
#[derive(Debug)]
pub(super) struct LeaseState {
    /// Its id in etcd.
    pub(super) id: i64,
    pub(super) duration: Duration,
    until: Mutex<BootInstant>,
    /// The revision at which its key was created, once it has one.
    created: OnceLock<i64>,
    lost: watch::Sender<bool>,
    members: Arc<Members>,
    election: Arc<Election>,
}

impl HeldLease {
    /// Takes a lease that has no key yet. Without a key it keeps no other process from anything.
    pub(super) async fn grant(
        members: &Arc<Members>,
        election: &Arc<Election>,
        duration: Duration,
    ) -> Result<Self, StoreError> {
        let grant = |etcd: EtcdClient| async move {
            let sent = BootInstant::now();
            etcd.grant_lease(duration).await.map(|lease| (sent, lease))
        };
        let (sent, lease) = members.until_answered(grant, || true).await?;
        let state = Arc::new(LeaseState {
            id: lease.id,
            duration: lease.duration,
            until: Mutex::new(sent.after(lease.duration)),
            created: OnceLock::new(),
            lost: watch::Sender::new(false),
            members: Arc::clone(members),
            election: Arc::clone(election),
        });
        let keeper = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&state).keep_alive()));
        Ok(Self { state, keeper, is_revoked: AtomicBool::new(false) })
    }

    /// Creates the lease's key, unless there is one. Returns whether it was created.
    pub(super) async fn create_key(&self, node: &CoordinatorNode) -> Result<bool, StoreError> {
        let LeaseState { id, members, election, .. } = &*self.state;
        let (id, key) = (*id, KeyRange::one(election.key.clone()));
        let value = LeaseValue { epoch: None, node: node.clone() }.encode();
        let create = |etcd: EtcdClient| {
            let write = put(election.key.clone(), value.clone(), id);
            let (absent, read) = (none_since(&key, 0), read_all(&key));
            async move { etcd.transaction(vec![absent], vec![write], vec![read]).await }
        };
        let mut done = members.until_answered(create, || !self.state.is_lost()).await?;
        let created = if done.succeeded {
            Some(done.revision)
        } else {
            let seen = SeenLease::of(done.revision, &done.found(0));
            let own = seen.holder.as_ref().filter(|holder| holder.lease == id);
            // Its own: the answer to an earlier attempt was lost.
            let created = own.map(|holder| holder.created);
            election.publish(seen);
            created
        };
        let Some(created) = created else { return Ok(false) };
        self.state.created.set(created).expect("a lease's key is created once");
        election.hold(created);
        Ok(true)
    }

    /// Gives the lease up, and waits until that is done or each member was asked in vain.
    pub(super) async fn revoke(&self) {
        self.keeper.abort();
        self.state.lose();
        for _ in 0..self.state.members.len() {
            let id = self.state.id;
            let revoke = |etcd: EtcdClient| async move { etcd.revoke(id).await };
            match self.state.members.attempt(revoke).await {
                Ok(()) => return self.is_revoked.store(true, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a lease is not given up yet"),
            }
        }
    }
}

impl Drop for HeldLease {
    /// Gives the lease up in the background; without a runtime it ends by itself.
    fn drop(&mut self) {
        self.state.lose();
        if self.is_revoked.load(Ordering::Relaxed) {
            return;
        }
        let (id, members) = (self.state.id, Arc::clone(&self.state.members));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let revoke = |etcd: EtcdClient| async move { etcd.revoke(id).await };
                if let Err(error) = members.attempt(revoke).await {
                    tracing::debug!(%error, "a lease is left to end by itself");
                }
            });
        }
    }
}

impl LeaseState {
    /// Returns the revision at which the lease's key was created; 0 if it has none.
    pub(super) fn created(&self) -> i64 {
        self.created.get().copied().unwrap_or_default()
    }

    /// Returns until when no other process can create the key.
    pub(super) fn until(&self) -> BootInstant {
        *self.lock()
    }

    /// Takes note that the lead is lost.
    pub(super) fn lose(&self) {
        self.lost.send_replace(true);
        self.election.release(self.created());
    }

    /// Returns whether the lead is lost, as far as this process knows.
    pub(super) fn is_lost(&self) -> bool {
        let has_gone = |created: &i64| self.election.is_without(*created);
        *self.lost.borrow() || self.created.get().is_some_and(has_gone)
    }

    /// Completes when the lead is lost.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        tokio::select! {
            _ = lost.wait_for(|is_lost| *is_lost) => {}
            () = self.election.without(self.created()) => {}
        }
    }

    /// Keeps the lease alive until it has ended.
    async fn keep_alive(self: Arc<Self>) {
        sleep(self.duration / 3).await;
        loop {
            let (sent, left) = (BootInstant::now(), self.until().remaining());
            if left.is_zero() {
                break;
            }
            let id = self.id;
            let renew = |etcd: EtcdClient| async move { etcd.keep_alive(&[id]).await };
            // Half of what is left, so that another member can be asked in time.
            let pause = match self.members.attempt_within(left / 2, renew).await {
                Ok(is_alive) if is_alive == [true] => {
                    *self.lock() = sent.after(self.duration);
                    self.duration / 3
                }
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "the lease was not kept alive");
                    KEEP_ALIVE_AGAIN
                }
            };
            sleep(pause).await;
        }
        self.lose();
    }

    fn lock(&self) -> MutexGuard<'_, BootInstant> {
        self.until.lock().expect("no holder of a lease's lock panics")
    }
}
