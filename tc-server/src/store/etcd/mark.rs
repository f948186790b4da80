//! The mark by which a process becomes the leader.
//!
//! In one transaction it takes the next number in the journal for a batch without changes, and so
//! shuts out every earlier leader. It holds only if this process still has the lease's key: a
//! candidate that slept since it took the lease does not depose a leader that came later.

use std::sync::atomic::Ordering;

use handfast_core::Epoch;
use handfast_etcd::{EtcdClient, KeyRange, KeyValue, is_created, is_unchanged, put, read_all};

use super::EtcdStore;
use super::batch::JournalBatch;
use super::checkpoint::Marked;
use super::election::LeaseValue;
use super::held_lease::LeaseState;
use super::keys::Position;
use super::term::went_back;
use crate::store::StoreError;

/// A mark that is durable.
#[derive(Debug)]
pub(super) struct StoredMark {
    /// The position of the mark itself, the newest batch.
    pub(super) head: Position,
    /// The position that the records stand at, under this leader's epoch.
    pub(super) marked: Marked,
}

/// The keys that a mark replaces.
#[derive(Debug)]
struct Replaced {
    head: Option<KeyValue>,
    mark: Option<KeyValue>,
}

impl EtcdStore {
    /// Makes an epoch durable that is later than every earlier one and no earlier than `at_least`.
    ///
    /// If an answer is lost, the mark that is perhaps stored counts as that of another leader, and
    /// the next epoch is taken.
    pub(super) async fn store_mark(
        &self,
        lease: &LeaseState,
        at_least: Epoch,
    ) -> Result<StoredMark, StoreError> {
        loop {
            let replaced = self.read_replaced(lease).await?;
            let last = self.position(replaced.head.as_ref())?;
            let applied = self.position(replaced.mark.as_ref())?.number;
            let acknowledged = self.acknowledged.load(Ordering::Relaxed);
            // Both were durable once: a newest batch before them is of an etcd that was restored.
            if last.number < acknowledged.max(applied) {
                let head = replaced.head.is_some().then_some(last);
                return Err(went_back(&self.members, acknowledged.max(applied), head));
            }
            let epoch = last.epoch.next().max(at_least);
            let head = Position { epoch, number: last.number + 1 };
            // The records stay as they are. The epoch in the mark shuts out checkpoints of earlier
            // leaders.
            let mark = Position { epoch, number: applied };
            if let Some(revision) = self.try_to_mark(lease, &replaced, head, mark).await? {
                return Ok(StoredMark { head, marked: Marked { mark, revision } });
            }
        }
    }

    async fn read_replaced(&self, lease: &LeaseState) -> Result<Replaced, StoreError> {
        let [head, mark] = [self.keys.head(), self.keys.mark()].map(KeyRange::one);
        let read = |etcd: EtcdClient| {
            let steps = vec![read_all(&head), read_all(&mark)];
            async move { etcd.run(steps).await }
        };
        let mut read = self.members.until_answered(read, || !lease.is_lost()).await?;
        let [head, mark] = [0, 1].map(|step| read.found(step).into_iter().next());
        Ok(Replaced { head, mark })
    }

    /// Returns the position in a key. The first batch is number 1 of epoch 1.
    fn position(&self, found: Option<&KeyValue>) -> Result<Position, StoreError> {
        let Some(found) = found else { return Ok(Position { epoch: Epoch(0), number: 0 }) };
        Position::read(&found.value).ok_or_else(|| {
            let key = String::from_utf8_lossy(&found.key);
            let reason = format!("a later version wrote its key {key}, or it is damaged");
            StoreError::Unusable { store: self.members.store().to_owned(), reason }
        })
    }

    /// Returns the revision of the mark, or `None` if something was not as it was read.
    async fn try_to_mark(
        &self,
        lease: &LeaseState,
        replaced: &Replaced,
        head: Position,
        mark: Position,
    ) -> Result<Option<i64>, StoreError> {
        let keys = &self.keys;
        let changed = |found: &Option<KeyValue>| found.as_ref().map_or(0, |key| key.mod_revision);
        let conditions = vec![
            is_created(keys.lease(), lease.created()),
            is_unchanged(keys.head(), changed(&replaced.head)),
            is_unchanged(keys.mark(), changed(&replaced.mark)),
        ];
        let batch = JournalBatch::encode(head, &[]).expect("a frame without changes is small");
        let value = LeaseValue { epoch: Some(head.epoch.0), node: self.node.clone() };
        let steps = vec![
            put(keys.lease(), value.encode(), lease.id),
            put(keys.journal(head.number), batch.entry(), 0),
            put(keys.head(), head.to_string(), 0),
            put(keys.mark(), mark.to_string(), 0),
        ];
        let write = |etcd: EtcdClient| {
            let (conditions, steps) = (conditions.clone(), steps.clone());
            async move { etcd.transaction(conditions, steps, Vec::new()).await }
        };
        let written = self.members.until_answered(write, || !lease.is_lost()).await?;
        if written.succeeded {
            return Ok(Some(written.revision));
        }
        // Without its key the process has to wait for its turn again.
        let seen = self.members.until_answered(|etcd| self.election.read(etcd), || true).await?;
        self.election.publish(seen);
        if lease.is_lost() { Err(StoreError::LostLeadership) } else { Ok(None) }
    }
}
