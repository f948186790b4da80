//! Which batch changes a record last.

use handfast_core::RecordKey;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// The number of the last batch that changes each record, of the batches that are noted.
///
/// What an earlier batch does to a record has no effect once a later one changes it again. So when
/// batches are carried over into the records, that need not be done.
#[derive(Debug, Default)]
pub(super) struct LastBatches {
    numbers: HashMap<RecordKey, u64>,
}

impl LastBatches {
    /// Notes that a batch changes a record. It comes behind every batch that was noted before.
    pub(super) fn note(&mut self, key: RecordKey, number: u64) {
        self.numbers.insert(key, number);
    }

    /// Removes a batch for one of its records. Returns whether it is the last one for it: no batch
    /// that is noted changes that record again.
    pub(super) fn take(&mut self, key: RecordKey, number: u64) -> bool {
        match self.numbers.entry(key) {
            Entry::Occupied(last) if *last.get() == number => {
                last.remove();
                true
            }
            Entry::Occupied(_) | Entry::Vacant(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use handfast_core::Xid;

    use super::*;

    #[test]
    fn only_the_last_batch_of_a_record_is_one() {
        let [one, other] = [1, 2].map(|xid| RecordKey::Global(Xid(xid)));
        let mut last = LastBatches::default();
        for (key, number) in [(one, 1), (other, 1), (one, 2), (one, 2)] {
            last.note(key, number);
        }
        assert!(!last.take(one, 1), "batch 2 changes it again");
        assert!(last.take(other, 1));
        assert!(last.take(one, 2));
        assert!(!last.take(one, 2), "it was taken");
        assert!(last.numbers.is_empty());
    }
}
