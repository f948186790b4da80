//! Records in memory, for tests and benchmarks. Nothing survives the process, but the same store
//! can be led again within it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use futures::future::{BoxFuture, FutureExt, ready};
use handfast_core::{Change, Epoch, Record, RecordKey};

use super::{RecordSnapshot, RecordSource, SnapshotOrigin, Store, StoreError, StoredRecord, codec};

/// A store without a disk.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: Epoch,
    /// The number of batches.
    number: u64,
    records: BTreeMap<RecordKey, Record>,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the records after the last batch.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    fn write(&self, epoch: Epoch, batch: Vec<Change>) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.epoch != epoch {
            return Err(StoreError::LostLeadership);
        }
        state.number += u64::from(!batch.is_empty());
        for change in batch {
            match change {
                Change::Put(record) => drop(state.records.insert(record.key(), record)),
                Change::Delete(key) => drop(state.records.remove(&key)),
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the memory store's lock panics")
    }
}

impl Store for MemoryStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        let mut state = self.lock();
        state.epoch = state.epoch.next().max(at_least);
        ready(Ok((state.epoch, state.records.values().cloned().collect()))).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(self.write(epoch, batch)).boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(self.write(epoch, Vec::new())).boxed()
    }
}

impl RecordSource for MemoryStore {
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>> {
        let state = self.lock();
        let stored = |record: &Record| (codec::encode_key(record.key()), codec::encode(record));
        let mut records: Vec<StoredRecord> = state.records.values().map(stored).collect();
        records.sort_unstable();
        let origin = SnapshotOrigin {
            store: "the store in memory".to_owned(),
            identity: None,
            epoch: state.epoch,
            number: state.number,
        };
        ready(Ok(RecordSnapshot::of(origin, records))).boxed()
    }
}
