//! Puts records into an empty store, and opens it to coordinators when they are all there.
//!
//! ```text
//! closure ─▶ records, batch by batch ─▶ read back and compared ─▶ closure deleted
//! ```
//!
//! Until the closure is deleted no coordinator continues from the store. A copy that was broken off
//! is begun again by the same command: the records that it has left are deleted first.

use std::collections::BTreeMap;

use handfast_core::{Change, ClosureReason, ClosureRecord, Record, RecordKey};

use super::source::LedStore;
use super::{MaintenanceError, failed};
use crate::clock;
use crate::crash_point::crash_point;

/// The size of a batch to which no more is added.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_CHANGES: usize = 1_000;

/// Returns the closure among the records of a store, if there is one.
pub(super) fn closure_of(records: &[Record]) -> Option<&ClosureRecord> {
    records.iter().find_map(|record| match record {
        Record::Closure(closure) => Some(closure),
        Record::Global(_) | Record::Branch(_) | Record::Saga(_) | Record::Lease(_) => None,
    })
}

/// Returns the change that closes a store.
pub(super) fn close(reason: ClosureReason, place: &str) -> Change {
    let (place, at) = (place.into(), clock::of_machine());
    Change::Put(Record::Closure(ClosureRecord { reason, place, at }))
}

/// Checks that a store is empty, or was left by a copy from the same place that was broken off. A
/// store that was left by another copy may hold the only records that are not closed.
fn check_empty(target: &LedStore, from: &str) -> Result<(), MaintenanceError> {
    let place = || target.place.clone();
    match closure_of(&target.records) {
        Some(ClosureRecord { reason: ClosureReason::Incomplete, place, .. })
            if **place == *from =>
        {
            Ok(())
        }
        Some(closure) => Err(MaintenanceError::Closed { place: place(), closure: closure.clone() }),
        None if target.records.is_empty() => Ok(()),
        None => Err(MaintenanceError::NotEmpty { place: place(), records: target.records.len() }),
    }
}

/// Fills a store that is empty or was left by the same copy, broken off, and compares what it gives
/// back. It stays closed.
pub(super) async fn fill(
    mut target: LedStore,
    records: &[Record],
    from: &str,
) -> Result<LedStore, MaintenanceError> {
    check_empty(&target, from)?;
    // The closure comes first: a tool that is killed at any later point leaves a store from which
    // no coordinator continues.
    target.commit(vec![close(ClosureReason::Incomplete, from)]).await?;
    // A copy that was broken off may have stored records that the source has deleted since.
    let left = target.records.iter().map(Record::key).filter(|key| *key != RecordKey::Closure);
    let left: Vec<Change> = left.map(Change::Delete).collect();
    let copied = records.iter().cloned().map(Change::Put);
    for batch in batches(left.into_iter().chain(copied)) {
        target.commit(batch).await?;
        crash_point("mid-copy");
    }
    // The epoch grows, so that what is read back has passed the store's own fence.
    target.lead_again().await?;
    compare(&target, records)?;
    Ok(target)
}

/// Opens a store that was filled, and gives it up.
pub(super) async fn open(target: LedStore) -> Result<(), MaintenanceError> {
    target.commit(vec![Change::Delete(RecordKey::Closure)]).await?;
    target.release().await;
    Ok(())
}

impl LedStore {
    pub(super) async fn commit(&self, batch: Vec<Change>) -> Result<(), MaintenanceError> {
        self.store.commit(self.epoch, batch).await.map_err(failed(&self.place))
    }
}

/// Divides changes into batches that every store takes.
fn batches(changes: impl Iterator<Item = Change>) -> impl Iterator<Item = Vec<Change>> {
    let mut changes = changes.peekable();
    std::iter::from_fn(move || {
        changes.peek()?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_CHANGES {
            let Some(change) = changes.next() else { break };
            bytes += change.approximate_bytes();
            batch.push(change);
        }
        Some(batch)
    })
}

/// Compares what a store gives back with what was written, record by record.
fn compare(target: &LedStore, written: &[Record]) -> Result<(), MaintenanceError> {
    let by_key = |records: &[Record]| -> BTreeMap<RecordKey, Record> {
        let records = records.iter().filter(|record| record.key() != RecordKey::Closure);
        records.map(|record| (record.key(), record.clone())).collect()
    };
    let (written, stored) = (by_key(written), by_key(&target.records));
    let differs = |what| MaintenanceError::Differs { place: target.place.clone(), what };
    for (key, record) in &written {
        match stored.get(key) {
            Some(found) if found == record => {}
            Some(_) => return Err(differs(format!("{key:?} has changed"))),
            None => return Err(differs(format!("{key:?} is missing"))),
        }
    }
    match stored.keys().find(|key| !written.contains_key(key)) {
        Some(key) => Err(differs(format!("{key:?} was never written"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use handfast_core::{Epoch, GlobalRecord, GlobalState, Labels, Timestamp, Xid};

    use super::*;
    use crate::store::{MemoryStore, Store, StoreError};

    /// A store that no process gains the lead of a second time.
    #[derive(Debug)]
    struct LedOnce {
        memory: MemoryStore,
        is_led: AtomicBool,
    }

    impl Store for LedOnce {
        fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
            if self.is_led.swap(true, Ordering::SeqCst) {
                return pending().boxed();
            }
            self.memory.lead(at_least)
        }

        fn commit(
            &self,
            epoch: Epoch,
            batch: Vec<Change>,
        ) -> BoxFuture<'_, Result<(), StoreError>> {
            self.memory.commit(epoch, batch)
        }
    }

    fn global(number: u64) -> Record {
        Record::Global(GlobalRecord {
            xid: Xid(1 << 40 | number),
            address: "tc".into(),
            application: "shop".into(),
            name: "a".repeat(400).into(),
            begun_at: Timestamp(1),
            deadline: Timestamp(2),
            state: GlobalState::Active,
            paused: false,
            rollback_only: false,
            events: [].into(),
            labels: Labels::NONE,
            key: None,
            finished_branches: [].into(),
            trace: None,
        })
    }

    async fn led<S: Store>(store: &Arc<S>) -> LedStore {
        let (epoch, records) = store.lead(Epoch(5)).await.unwrap();
        let (place, limit) = ("a test".to_owned(), Duration::from_secs(60));
        LedStore { place, store: Arc::clone(store) as _, epoch, records, limit }
    }

    #[test]
    fn batches_have_all_changes_in_order() {
        let changes: Vec<Change> = (0..3_000).map(|at| Change::Put(global(at))).collect();
        let divided: Vec<Vec<Change>> = batches(changes.clone().into_iter()).collect();
        assert_eq!(divided.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_CHANGES; 3]);
        assert!(divided.concat() == changes);
        assert_eq!(batches(std::iter::empty()).count(), 0);
    }

    #[tokio::test]
    async fn a_store_is_closed_until_it_is_opened() {
        let store = Arc::new(MemoryStore::new());
        let records: Vec<Record> = (0..10).map(global).collect();
        let filled = fill(led(&store).await, &records, "elsewhere").await.unwrap();
        let closure = closure_of(&store.records()).cloned().unwrap();
        assert_eq!((closure.reason, &*closure.place), (ClosureReason::Incomplete, "elsewhere"));
        open(filled).await.unwrap();
        assert_eq!(store.records(), records);
    }

    #[tokio::test]
    async fn a_copy_that_was_broken_off_is_begun_again() {
        let store = Arc::new(MemoryStore::new());
        let half: Vec<Record> = (0..10).map(global).collect();
        drop(fill(led(&store).await, &half, "elsewhere").await.unwrap());
        let all: Vec<Record> = (5..20).map(global).collect();
        open(fill(led(&store).await, &all, "elsewhere").await.unwrap()).await.unwrap();
        assert_eq!(store.records(), all);
        let again = fill(led(&store).await, &all, "elsewhere").await;
        assert!(matches!(again, Err(MaintenanceError::NotEmpty { records: 15, .. })), "{again:?}");
    }

    #[tokio::test]
    async fn remains_of_another_copy_are_not_overwritten() {
        let store = Arc::new(MemoryStore::new());
        drop(fill(led(&store).await, &[global(1)], "elsewhere").await.unwrap());
        let refused = fill(led(&store).await, &[global(2)], "somewhere").await;
        let Err(MaintenanceError::Closed { closure, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(&*closure.place, "elsewhere");
        assert!(store.records().contains(&global(1)));
    }

    /// Regression: a tool waited forever when another process led the store that it filled.
    #[tokio::test(start_paused = true)]
    async fn a_lead_that_does_not_come_again_is_not_waited_for_for_ever() {
        let store = LedOnce { memory: MemoryStore::new(), is_led: AtomicBool::new(false) };
        let refused = fill(led(&Arc::new(store)).await, &[global(1)], "elsewhere").await;
        assert!(matches!(refused, Err(MaintenanceError::Unanswered { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn a_difference_is_named() {
        let store = Arc::new(MemoryStore::new());
        let target = fill(led(&store).await, &[global(1), global(2)], "elsewhere").await.unwrap();
        let what = |written: &[Record]| {
            let found = compare(&target, written);
            let Err(MaintenanceError::Differs { what, .. }) = found else { panic!("{found:?}") };
            what
        };
        assert!(what(&[global(1)]).ends_with("was never written"));
        assert!(what(&[global(1), global(2), global(3)]).ends_with("is missing"));
        let Record::Global(mut changed) = global(2) else { unreachable!("it is a global") };
        changed.paused = true;
        assert!(what(&[global(1), Record::Global(changed)]).ends_with("has changed"));
    }
}
