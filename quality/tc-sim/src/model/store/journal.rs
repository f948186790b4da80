//! The journal of the store, and the records that it is carried over into.
//!
//! The rules are those of the stores that coordinators share. A batch is stored only behind the row
//! before it, if that has the same epoch; a mark only behind the newest row, if that has an earlier
//! epoch. So the store decides who leads, however late a message of an earlier leader is.

use std::collections::BTreeMap;

use handfast_core::Epoch;

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPosition {
    pub(super) number: u64,
    pub(super) epoch: Epoch,
}

impl RowPosition {
    /// Returns the place of the leader's next batch.
    pub(super) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

/// The changes of a batch by key; `None` deletes the record.
pub(super) type EncodedChanges = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The records by key.
pub(super) type EncodedRecords = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug)]
struct JournalRow {
    epoch: Epoch,
    changes: EncodedChanges,
}

/// The rows, and the records that hold the changes of all rows up to a number.
#[derive(Debug)]
pub(super) struct Journal {
    rows: BTreeMap<u64, JournalRow>,
    applied: u64,
    records: EncodedRecords,
}

impl Journal {
    /// Makes a journal whose only row is that of epoch 0.
    pub(super) fn new() -> Self {
        let first = JournalRow { epoch: Epoch(0), changes: Vec::new() };
        Self { rows: BTreeMap::from([(0, first)]), applied: 0, records: BTreeMap::new() }
    }

    /// Returns the place of the newest row.
    pub(super) fn newest(&self) -> RowPosition {
        let (number, row) = self.rows.last_key_value().expect("the newest row is never deleted");
        RowPosition { number: *number, epoch: row.epoch }
    }

    /// Returns the number up to which rows are carried over.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// Stores a batch behind its leader's last row. Returns whether it is stored.
    pub(super) fn append(&mut self, last: RowPosition, changes: EncodedChanges) -> bool {
        // The row before counts, with its epoch: behind a compaction a free number says nothing.
        let before = self.rows.get(&last.number);
        let leads = before.is_some_and(|before| before.epoch == last.epoch);
        let number = last.number + 1;
        if !leads || self.rows.contains_key(&number) {
            return false;
        }
        self.rows.insert(number, JournalRow { epoch: last.epoch, changes });
        true
    }

    /// Stores the mark of an epoch behind the row that its candidate has found to be the newest.
    /// Returns whether it is stored.
    pub(super) fn lay_mark(&mut self, newest: RowPosition, epoch: Epoch) -> bool {
        if self.newest() != newest || epoch <= newest.epoch {
            return false;
        }
        self.rows.insert(newest.number + 1, JournalRow { epoch, changes: Vec::new() });
        true
    }

    /// Carries over the rows up to a number and deletes those before it, unless rows were carried
    /// over since the caller looked.
    pub(super) fn compact(&mut self, seen_applied: u64, upto: u64) {
        if self.applied != seen_applied || upto <= seen_applied {
            return;
        }
        self.records = self.read(upto);
        self.applied = upto;
        // The next batch is stored behind the last row.
        self.rows.retain(|number, _| *number >= upto);
    }

    /// Returns the records as they are behind a row.
    pub(super) fn read(&self, upto: u64) -> EncodedRecords {
        let mut records = self.records.clone();
        let behind = self.rows.range(self.applied + 1..).take_while(|(number, _)| **number <= upto);
        for (key, value) in behind.flat_map(|(_, row)| &row.changes) {
            match value {
                Some(value) => drop(records.insert(key.clone(), value.clone())),
                None => drop(records.remove(key)),
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64, epoch: u64) -> RowPosition {
        RowPosition { number, epoch: Epoch(epoch) }
    }

    fn put(value: u8) -> EncodedChanges {
        vec![(vec![1], Some(vec![value]))]
    }

    /// A journal with the mark of epoch 1 and two batches.
    fn journal() -> Journal {
        let mut journal = Journal::new();
        assert!(journal.lay_mark(at(0, 0), Epoch(1)));
        assert!(journal.append(at(1, 1), put(1)));
        assert!(journal.append(at(2, 1), put(2)));
        journal
    }

    #[test]
    fn a_batch_is_stored_once_and_without_a_gap() {
        let mut journal = journal();
        assert!(!journal.append(at(2, 1), put(3)), "it is there");
        assert!(!journal.append(at(4, 1), put(3)), "the one before it is not");
        assert_eq!(journal.newest(), at(3, 1));
        assert_eq!(journal.read(3)[&vec![1]], [2]);
        assert_eq!(journal.read(2)[&vec![1]], [1]);
    }

    #[test]
    fn an_earlier_leader_stores_nothing_also_behind_a_compaction() {
        let mut journal = journal();
        assert!(journal.lay_mark(at(3, 1), Epoch(4)));
        assert!(!journal.append(at(3, 1), put(3)));
        assert!(journal.append(at(4, 4), put(4)));
        journal.compact(0, 5);
        assert!(!journal.append(at(3, 1), put(3)), "its number is free");
        assert!(journal.append(at(5, 4), put(5)));
        assert_eq!(journal.read(6)[&vec![1]], [5]);
    }

    #[test]
    fn a_mark_is_laid_behind_the_newest_row_of_an_earlier_epoch() {
        let mut journal = journal();
        assert!(!journal.lay_mark(at(2, 1), Epoch(2)), "it has looked too early");
        assert!(!journal.lay_mark(at(3, 1), Epoch(1)));
        assert!(journal.lay_mark(at(3, 1), Epoch(7)));
        assert!(!journal.lay_mark(at(4, 7), Epoch(3)), "it has slept");
    }

    #[test]
    fn a_late_compaction_changes_nothing() {
        let mut journal = journal();
        journal.compact(0, 3);
        assert_eq!(journal.applied(), 3);
        journal.compact(0, 2);
        assert_eq!(journal.applied(), 3);
        assert_eq!(journal.read(3)[&vec![1]], [2]);
        assert_eq!(journal.newest(), at(3, 1));
    }
}
