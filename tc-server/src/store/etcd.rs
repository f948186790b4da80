//! Records in etcd, for coordinators of which one leads.
//!
//! ```text
//! batch ─▶ journal (one transaction, which is the fence: `term`) ─▶ durable on a majority
//!             └─ 4 MiB ─▶ checkpoint ─▶ records ─▶ the batches are deleted
//! ```
//!
//! A key that is attached to a lease says which process may try to lead (`election`). A leader
//! becomes one by its mark in the journal, not by the lease (`mark`). A start reads the records and
//! the batches that they lack (`content`). No clock decides what is stored: clocks only say how
//! soon a leader without an answer gives up, and how soon the lease of one that has vanished ends.
//!
//! etcd's history is compacted for all its users, so an etcd of its own is advised.

mod batch;
mod checkpoint;
mod content;
mod election;
mod held_lease;
mod keys;
mod mark;
mod members;
mod nodes;
mod pages;
mod record_pages;
mod record_parts;
mod term;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, ready};
use handfast_core::{Change, Epoch, Record};
use handfast_etcd::{EtcdClient, EtcdOptions};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{CoordinatorNode, Leader, RecordSnapshot, RecordSource, SeenNode, Store, StoreError};
use checkpoint::{Checkpoints, Marked, RecordsPlace};
use content::Reader;
use election::Election;
use held_lease::HeldLease;
use keys::{Keys, Position};
use members::Members;
use pages::ReadError;
use term::{EtcdTerm, JournalEnd};

/// How a store in etcd is opened.
#[derive(Clone, Debug)]
pub struct EtcdStoreSettings {
    /// How to reach the cluster, and as which user.
    pub etcd: EtcdOptions,
    /// The name of the coordinators that share records. The keys are under
    /// `/handfast/{namespace}/`.
    pub namespace: String,
    /// This node, as the others see it.
    pub node: CoordinatorNode,
    /// How long the lead outlasts its leader; etcd counts whole seconds, at least two. Too short:
    /// the lead is lost while the cluster elects its own leader, or on a busy machine; too long: it
    /// takes long to replace a coordinator that was killed.
    pub lease: Duration,
    /// Bytes of the journal after which it is carried over into the records. Too few: etcd does
    /// most of its work twice; too many: a new leader reads for longer.
    pub checkpoint_bytes: usize,
}

impl EtcdStoreSettings {
    /// The default for [`EtcdStoreSettings::checkpoint_bytes`].
    pub const CHECKPOINT_BYTES: usize = 4 << 20;
}

/// The store of several coordinators in an etcd cluster.
#[derive(Debug)]
pub struct EtcdStore {
    members: Arc<Members>,
    keys: Keys,
    node: CoordinatorNode,
    lease: Duration,
    checkpoint_bytes: usize,
    election: Arc<Election>,
    /// The largest number of a batch that this process has acknowledged or read.
    acknowledged: Arc<AtomicU64>,
    term: Mutex<Option<Arc<EtcdTerm>>>,
    _follower: AbortOnDropHandle<()>,
}

impl EtcdStore {
    /// Creates the store, and follows from now on which process leads. Must be called within a
    /// runtime. The cluster need not answer yet.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] for settings that cannot be used.
    pub fn open(settings: EtcdStoreSettings) -> Result<Self, StoreError> {
        let EtcdStoreSettings { etcd, namespace, node, lease, checkpoint_bytes } = settings;
        let store = format!("etcd under /handfast/{namespace}");
        let Some(keys) = Keys::of(&namespace) else {
            let reason = "a namespace has up to 64 letters, digits, `-`, `_` and `.`".to_owned();
            return Err(StoreError::Unusable { store, reason });
        };
        let members = Arc::new(Members::connect(etcd, store, lease)?);
        let election = Arc::new(Election::new(keys.lease()));
        let follow = Arc::clone(&election).follow(Arc::clone(&members), lease);
        Ok(Self {
            members,
            keys,
            node,
            lease,
            checkpoint_bytes,
            election,
            acknowledged: Arc::default(),
            term: Mutex::default(),
            _follower: AbortOnDropHandle::new(tokio::spawn(follow)),
        })
    }

    async fn gain_lead(&self, at_least: Epoch) -> Result<(Epoch, Vec<Record>), StoreError> {
        // An earlier term's lease would be in the way.
        let earlier = self.term().take();
        if let Some(earlier) = earlier {
            earlier.lease.revoke().await;
        }
        loop {
            let lease = self.campaign().await?;
            match self.begin_term(lease, at_least).await {
                Ok((term, records)) => {
                    let epoch = term.epoch;
                    *self.term() = Some(Arc::new(term));
                    return Ok((epoch, records));
                }
                // etcd has forgotten what was to be read, or the lease has ended: the next attempt
                // begins.
                Err(ReadError::Compacted | ReadError::Store(StoreError::LostLeadership)) => {}
                Err(ReadError::Store(error)) => return Err(error),
            }
        }
    }

    /// Waits until no process has the lease, and takes it.
    async fn campaign(&self) -> Result<HeldLease, StoreError> {
        loop {
            let read = |etcd: EtcdClient| self.election.read(etcd);
            let seen = self.members.until_answered(read, || true).await?;
            self.election.publish(seen.clone());
            if let Some(holder) = seen.holder {
                // Read again after a while: a cluster that was restored to an earlier time would
                // take long to reach that revision.
                let _elapsed = timeout(self.lease, self.election.without(holder.created)).await;
                continue;
            }
            let lease = HeldLease::grant(&self.members, &self.election, self.lease).await?;
            match lease.create_key(&self.node).await {
                Ok(true) => return Ok(lease),
                // Another candidate was quicker, or the lease ran out before it had a key.
                Ok(false) | Err(StoreError::LostLeadership) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin_term(
        &self,
        lease: HeldLease,
        at_least: Epoch,
    ) -> Result<(EtcdTerm, Vec<Record>), ReadError> {
        let goes_on = || !lease.state.is_lost();
        let stored = self.store_mark(&lease.state, at_least).await?;
        let Position { epoch, number } = stored.head;
        let Marked { mark, revision } = stored.marked;
        let (members, keys) = (&*self.members, &self.keys);
        let reader = Reader { members, keys, revision, goes_on };
        // Everything is read as of the mark, behind which no earlier leader can store anything.
        let content = reader.read(mark.number, number).await?;
        // A store that later lacks this number has gone back, whether or not this process stays the
        // leader.
        self.acknowledged.fetch_max(number, Ordering::Relaxed);
        let (members, keys) = (Arc::clone(&self.members), self.keys.clone());
        let place = RecordsPlace { members, keys, epoch, lease: Arc::clone(&lease.state) };
        let enough = self.checkpoint_bytes;
        let checkpoints = Checkpoints::new(place, enough, stored.marked, content.unapplied);
        let term = EtcdTerm {
            epoch,
            lease,
            members: Arc::clone(&self.members),
            keys: self.keys.clone(),
            acknowledged: Arc::clone(&self.acknowledged),
            journal: tokio::sync::Mutex::new(Some(JournalEnd { number, checkpoints })),
        };
        Ok((term, content.records))
    }

    /// Returns this process's term of that epoch.
    fn term_of(&self, epoch: Epoch) -> Option<Arc<EtcdTerm>> {
        self.term().clone().filter(|term| term.epoch == epoch)
    }

    fn term(&self) -> MutexGuard<'_, Option<Arc<EtcdTerm>>> {
        self.term.lock().expect("no holder of the store's lock panics")
    }
}

impl Store for EtcdStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.gain_lead(at_least).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        let Some(term) = self.term_of(epoch) else {
            return ready(Err(StoreError::LostLeadership)).boxed();
        };
        async move { term.commit(&batch).await }.boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        let Some(term) = self.term_of(epoch) else {
            return ready(Err(StoreError::LostLeadership)).boxed();
        };
        async move { term.confirm().await }.boxed()
    }

    fn lost(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        let Some(term) = self.term_of(epoch) else { return ready(()).boxed() };
        let lease = Arc::clone(&term.lease.state);
        async move { lease.lost().await }.boxed()
    }

    fn certain_until(&self, epoch: Epoch) -> Option<Instant> {
        let until = |term: Arc<EtcdTerm>| {
            let lease = &term.lease.state;
            (!lease.is_lost()).then(|| lease.until().as_instant())
        };
        Some(self.term_of(epoch).and_then(until).unwrap_or_else(Instant::now))
    }

    fn resign(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        let Some(term) = self.term_of(epoch) else { return ready(()).boxed() };
        async move { term.resign().await }.boxed()
    }

    fn leader(&self) -> watch::Receiver<Leader> {
        self.election.leader()
    }

    fn announce(&self, seen: watch::Sender<Vec<SeenNode>>) -> BoxFuture<'static, ()> {
        let members = Arc::clone(&self.members);
        nodes::announce(members, self.keys.clone(), self.node.clone(), seen).boxed()
    }
}

impl RecordSource for EtcdStore {
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>> {
        record_pages::open(Arc::clone(&self.members), self.keys.clone()).boxed()
    }
}
