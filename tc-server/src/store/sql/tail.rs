//! The newest batches of the journal, in the memory of the leader, and what is to be carried over
//! of those that leave it.
//!
//! ```text
//! batches   … 41 42 43 │ 44 45 46 47 48 49 50 … 97
//!              leaving │ tail, of a fixed number of bytes
//! ```
//!
//! A batch leaves when newer ones need its place. Of its changes only those are carried over that
//! no batch of the tail makes void. Most records live shorter than the tail is long: a global that
//! has finished is remembered until some 100,000 later ones have, which is less. So it is put and
//! deleted within the tail, and never among the records.

use std::collections::VecDeque;

use handfast_core::RecordKey;
use hashbrown::HashMap;

use super::dialect::CallError;
use super::last_batches::LastBatches;
use super::pages::StoredBatch;
use crate::store::codec;
use crate::store::journal::frame::Seed;

/// The most bytes of changes that wait to be carried over. More only while compaction does not keep
/// up; it then reads their batches from the database.
const LEAVING_BYTES_MAX: usize = 16 << 20;

/// The last change of each key; `None` deletes it.
pub(super) type LastChanges = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// Batches with successive numbers, up to the newest.
#[derive(Debug)]
pub(super) struct Tail {
    seed: Seed,
    bytes_max: u64,
    batches: VecDeque<StoredBatch>,
    bytes: u64,
    last_batches: LastBatches,
    leaving: Leaving,
}

/// The changes of batches that have left the tail, as far as they last.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The number of the last batch whose changes are not here: they are among the records, or are
    /// read from the database.
    pub(super) behind: u64,
    /// The number of the last batch that has left.
    pub(super) upto: u64,
    /// Bytes of the journal that have left, with those behind `behind`.
    bytes: u64,
    pub(super) changes: LastChanges,
    /// Bytes of the changes.
    changed_bytes: usize,
}

impl Tail {
    /// Returns a tail behind a batch, with none in it.
    pub(super) fn behind(number: u64, seed: Seed, bytes_max: u64) -> Self {
        let (batches, last_batches) = (VecDeque::new(), LastBatches::default());
        Self { seed, bytes_max, batches, bytes: 0, last_batches, leaving: Leaving::behind(number) }
    }

    /// Adds a batch that is stored, with the keys that it changes.
    pub(super) fn push(&mut self, batch: StoredBatch, keys: Vec<RecordKey>) {
        keys.into_iter().for_each(|key| self.last_batches.note(key, batch.number));
        self.add(batch);
    }

    /// Adds a batch that was read from the database.
    ///
    /// # Errors
    ///
    /// It is damaged.
    pub(super) fn push_read(&mut self, batch: StoredBatch) -> Result<(), CallError> {
        batch.visit(self.seed, |key, _| {
            if let Ok(key) = codec::decode_key(key) {
                self.last_batches.note(key, batch.number);
            }
        })?;
        self.add(batch);
        Ok(())
    }

    fn add(&mut self, batch: StoredBatch) {
        self.bytes += batch.length();
        self.batches.push_back(batch);
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.length();
            self.leave(&oldest);
        }
    }

    fn leave(&mut self, batch: &StoredBatch) {
        let (last_batches, leaving) = (&mut self.last_batches, &mut self.leaving);
        let read = batch.read(self.seed, |changes| {
            // From the end: a batch may change a record several times.
            for (key, value) in changes.into_iter().rev() {
                // A key that cannot be read is carried over as it is.
                let is_last = |key| last_batches.take(key, batch.number);
                if codec::decode_key(key).map_or(true, is_last) {
                    leaving.put(key, value);
                }
            }
        });
        self.leaving.upto = batch.number;
        self.leaving.bytes += batch.length();
        if read.is_err() || self.leaving.changed_bytes > LEAVING_BYTES_MAX {
            self.leaving.leave_to_the_database();
        }
    }

    /// Returns the seed of the journal.
    pub(super) fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the bytes of the journal that have left and were not taken.
    pub(super) fn leaving_bytes(&self) -> u64 {
        self.leaving.bytes
    }

    /// Takes what has left.
    pub(super) fn take_leaving(&mut self) -> Leaving {
        let next = Leaving::behind(self.leaving.upto);
        std::mem::replace(&mut self.leaving, next)
    }
}

impl Leaving {
    fn behind(number: u64) -> Self {
        let changes = LastChanges::default();
        Self { behind: number, upto: number, bytes: 0, changes, changed_bytes: 0 }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.changed_bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    }

    /// Drops the changes: compaction reads them.
    fn leave_to_the_database(&mut self) {
        *self = Self { bytes: self.bytes, ..Self::behind(self.upto) };
    }
}

#[cfg(test)]
mod tests {
    use handfast_core::{Change, Xid};

    use super::*;
    use crate::store::journal::frame;
    use crate::store::test_records;

    fn seed() -> Seed {
        Seed::new(7)
    }

    fn delete(xid: u64) -> Change {
        Change::Delete(RecordKey::Global(Xid(xid)))
    }

    fn put(xid: u64, name: &str) -> Change {
        Change::Put(test_records::global(xid, name))
    }

    fn batch(number: u64, changes: &[Change]) -> StoredBatch {
        let mut bytes = Vec::new();
        frame::encode(changes, number, seed(), &mut bytes).unwrap();
        StoredBatch { number, bytes }
    }

    fn push_changes(tail: &mut Tail, number: u64, changes: &[Change]) {
        tail.push(batch(number, changes), changes.iter().map(Change::key).collect());
    }

    /// The bytes of a batch that deletes one global.
    fn of_one() -> u64 {
        batch(1, &[delete(1)]).length()
    }

    fn globals_of(leaving: &Leaving) -> Vec<u64> {
        let xid = |key: &Vec<u8>| {
            let RecordKey::Global(xid) = codec::decode_key(key).unwrap() else { panic!("{key:?}") };
            xid.0
        };
        let mut globals: Vec<u64> = leaving.changes.keys().map(xid).collect();
        globals.sort_unstable();
        globals
    }

    #[test]
    fn what_the_tail_changes_again_is_not_carried_over() {
        let mut tail = Tail::behind(0, seed(), 3 * of_one());
        // 1 and 2 leave; 1 is changed again by 4, in the tail.
        for (number, global) in [(1, 1), (2, 2), (3, 3), (4, 1), (5, 5)] {
            push_changes(&mut tail, number, &[delete(global)]);
        }
        assert_eq!(tail.leaving_bytes(), 2 * of_one());
        let leaving = tail.take_leaving();
        assert_eq!((leaving.behind, leaving.upto, globals_of(&leaving)), (0, 2, vec![2]));
        (6..9).for_each(|number| push_changes(&mut tail, number, &[delete(number)]));
        let leaving = tail.take_leaving();
        assert_eq!((leaving.behind, leaving.upto, globals_of(&leaving)), (2, 5, vec![1, 3, 5]));
    }

    #[test]
    fn the_last_of_several_changes_in_a_batch_is_carried_over() {
        let changes = [put(1, "first"), put(1, "last")];
        let mut tail = Tail::behind(0, seed(), 0);
        push_changes(&mut tail, 1, &changes);
        let leaving = tail.take_leaving();
        let (key, value) = codec::encode_change(&changes[1]);
        assert_eq!(leaving.changes.into_iter().collect::<Vec<_>>(), [(key, value)]);
    }

    #[test]
    fn a_batch_that_was_read_counts_like_one_that_was_stored() {
        let mut tail = Tail::behind(0, seed(), of_one());
        for number in 1..=2 {
            tail.push_read(batch(number, &[delete(1)])).unwrap();
        }
        assert!(tail.take_leaving().changes.is_empty(), "batch 2 changes it again");
        push_changes(&mut tail, 3, &[delete(1)]);
        assert!(tail.take_leaving().changes.is_empty(), "batch 3 changes it again");
    }

    #[test]
    fn too_many_changes_are_left_to_the_database() {
        let large = "x".repeat(LEAVING_BYTES_MAX / 2);
        let mut tail = Tail::behind(0, seed(), 0);
        for number in 1..=2 {
            push_changes(&mut tail, number, &[put(number, &large)]);
        }
        let bytes = tail.leaving_bytes();
        assert!(bytes > LEAVING_BYTES_MAX as u64);
        push_changes(&mut tail, 3, &[delete(3)]);
        let leaving = tail.take_leaving();
        assert_eq!((leaving.behind, leaving.upto, globals_of(&leaving)), (2, 3, vec![3]));
        assert_eq!(leaving.bytes, bytes + of_one());
    }
}
