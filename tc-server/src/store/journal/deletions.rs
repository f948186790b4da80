//! The records that the journal deletes in the end, known without a look at it.
//!
//! A finished global is put, remembered until many later ones have finished, and deleted. When a
//! part of the journal is carried over, and the deletion is in a later part, the record need not be
//! written among the records only to be deleted from them.
//!
//! Ids are drawn one after the other, so a bit for each takes little memory, and noting one takes
//! little time. Branches are not noted: they are deleted soon after they are put, mostly within the
//! part that is carried over.

use handfast_core::{Change, RecordKey};
use hashbrown::HashMap;

use super::frame::Frame;
use crate::store::codec;

/// The ids of a word.
const WORD_BITS: u32 = 6;
/// The most words of a segment (BOUNDED): 2 MiB. A deletion that finds no room is not noted, and
/// its record passes through the records.
const WORDS_MAX: usize = 1 << 16;

/// A kind of records, and the number of a word among its ids.
type WordNumber = (u8, u64);

/// The globals, sagas and leases whose last change in the journal is a deletion.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Deletions {
    /// The words of each segment. An id whose deletion is in a segment has its bit in there.
    words: [HashMap<WordNumber, u64>; 2],
}

impl Deletions {
    /// Notes a change of a durable batch in a segment. A batch that is not durable may be lost, and
    /// what it deletes would be lost with it.
    pub(in crate::store) fn note(&mut self, segment: usize, change: &Change) {
        match change {
            Change::Delete(key) => self.note_deletion(segment, *key),
            Change::Put(record) => self.note_put(record.key()),
        }
    }

    /// Returns what these batches of a journal delete in the end, wherever they are.
    pub(in crate::store) fn of(frames: &[Frame<'_>]) -> Self {
        let mut deletions = Self::default();
        for (key, value) in frames.iter().flat_map(|frame| frame.changes()).flatten() {
            match (codec::decode_key(key), value) {
                (Ok(key), None) => deletions.note_deletion(0, key),
                (Ok(key), Some(_)) => deletions.note_put(key),
                (Err(_), _) => {}
            }
        }
        deletions
    }

    fn note_deletion(&mut self, segment: usize, key: RecordKey) {
        let Some((word, bit)) = word_of(key) else { return };
        let words = &mut self.words[segment];
        if words.len() < WORDS_MAX || words.contains_key(&word) {
            *words.entry(word).or_default() |= bit;
        }
    }

    fn note_put(&mut self, key: RecordKey) {
        let Some((word, bit)) = word_of(key) else { return };
        for word in self.words.iter_mut().filter_map(|words| words.get_mut(&word)) {
            *word &= !bit;
        }
    }

    /// Forgets the deletions of a segment that is used again.
    pub(in crate::store) fn forget(&mut self, segment: usize) {
        self.words[segment].clear();
    }

    /// Returns whether the journal deletes the record of this key in the end.
    pub(in crate::store) fn include(&self, key: &[u8]) -> bool {
        let Some((word, bit)) = codec::decode_key(key).ok().and_then(word_of) else { return false };
        self.words.iter().any(|words| words.get(&word).is_some_and(|word| word & bit != 0))
    }
}

/// Returns the word of a key, and its bit there; `None` for kinds that are not noted.
fn word_of(key: RecordKey) -> Option<(WordNumber, u64)> {
    let (kind, id) = match key {
        RecordKey::Global(xid) => (0, xid.0),
        RecordKey::Saga(xid) => (1, xid.0),
        RecordKey::Lease(id) => (2, id.0),
        RecordKey::Branch(..) | RecordKey::Closure => return None,
    };
    Some(((kind, id >> WORD_BITS), 1 << (id % (1 << WORD_BITS))))
}

#[cfg(test)]
mod tests {
    use handfast_core::{BranchId, LeaseId, Xid};

    use super::*;
    use crate::store::test_records;

    fn delete(key: RecordKey) -> Change {
        Change::Delete(key)
    }

    fn includes(deletions: &Deletions, key: RecordKey) -> bool {
        deletions.include(&codec::encode_key(key))
    }

    #[test]
    fn each_kind_and_id_has_its_own_bit() {
        let mut deletions = Deletions::default();
        let [global, saga] = [RecordKey::Global(Xid(70)), RecordKey::Saga(Xid(71))];
        let lease = RecordKey::Lease(LeaseId(1 << 40));
        [global, saga, lease].iter().for_each(|key| deletions.note(0, &delete(*key)));
        assert!([global, saga, lease].into_iter().all(|key| includes(&deletions, key)));
        for xid in [0, 6, 69, 71, 134] {
            assert!(!includes(&deletions, RecordKey::Global(Xid(xid))), "{xid}");
        }
        assert!(!includes(&deletions, RecordKey::Saga(Xid(70))));
        assert!(!deletions.include(b"g"));
    }

    #[test]
    fn branches_are_not_noted() {
        let mut deletions = Deletions::default();
        let branch = RecordKey::Branch(Xid(1), BranchId(2));
        deletions.note(0, &delete(branch));
        deletions.note(0, &delete(RecordKey::Closure));
        assert!(!includes(&deletions, branch));
        assert!(!includes(&deletions, RecordKey::Global(Xid(1))));
        assert!(deletions.words.iter().all(HashMap::is_empty));
    }

    #[test]
    fn what_is_put_again_is_not_deleted_in_the_end() {
        let mut deletions = Deletions::default();
        let global = RecordKey::Global(Xid(5));
        for (deleted_in, put_in) in [(0, 0), (0, 1), (1, 0)] {
            deletions.note(deleted_in, &delete(global));
            assert!(includes(&deletions, global));
            deletions.note(put_in, &Change::Put(test_records::global(5, "again")));
            assert!(!includes(&deletions, global));
        }
    }

    #[test]
    fn a_segment_that_is_used_again_deletes_nothing() {
        let mut deletions = Deletions::default();
        let [first, second] = [1, 2].map(|xid| RecordKey::Global(Xid(xid)));
        deletions.note(0, &delete(first));
        deletions.note(1, &delete(second));
        deletions.forget(0);
        assert!(!includes(&deletions, first));
        assert!(includes(&deletions, second));
    }

    #[test]
    fn more_words_than_fit_are_not_noted() {
        let mut deletions = Deletions::default();
        let far = |number: usize| RecordKey::Global(Xid((number as u64) << WORD_BITS));
        (0..=WORDS_MAX).for_each(|number| deletions.note(0, &delete(far(number))));
        assert!(includes(&deletions, far(WORDS_MAX - 1)));
        assert!(!includes(&deletions, far(WORDS_MAX)));
        // Words that are there take further ids.
        deletions.note(0, &delete(RecordKey::Global(Xid(1))));
        assert!(includes(&deletions, RecordKey::Global(Xid(1))));
    }
}
