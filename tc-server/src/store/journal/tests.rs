//! Power cuts at every write of the journal, and damage to its files.

use std::fs;
use std::ops::Range;

use handfast_core::{BranchId, RecordKey, Xid};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Small enough to be full after a few batches.
const SEGMENT_BYTES: u64 = 2 << 10;
/// The unit that a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;

fn mark(applied: u64) -> Mark {
    Mark { applied, seed: Seed::new(77), segment_bytes: SEGMENT_BYTES, in_use: true }
}

/// Creates a directory with the files of a journal that continues after batch `applied`.
fn made(applied: u64) -> (tempfile::TempDir, Journal) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(RECORDS)).unwrap();
    make(directory.path(), mark(applied)).unwrap();
    let journal = Journal::open(directory.path(), mark(applied)).unwrap();
    (directory, journal)
}

fn segments(directory: &Path) -> [Vec<u8>; 2] {
    SEGMENTS.map(|name| fs::read(directory.join(name)).unwrap())
}

/// A journal, and the number of the last batch among the records.
struct Written {
    directory: tempfile::TempDir,
    journal: Journal,
    applied: u64,
    last: u64,
    /// The last batch of the segment that is sealed and not carried over yet.
    sealed: Option<u64>,
}

impl Written {
    fn new() -> Self {
        let (directory, journal) = made(0);
        Self { directory, journal, applied: 0, last: 0, sealed: None }
    }

    fn segments(&self) -> [Vec<u8>; 2] {
        segments(self.directory.path())
    }

    /// Appends in the way the store's writer does. Returns where the frame is, without its padding.
    fn append(&mut self, changes: u64) -> (usize, Range<usize>) {
        let xids = (0..changes).map(|change| Xid(self.last << 8 | change));
        let delete = |xid| Change::Delete(RecordKey::Branch(xid, BranchId(7)));
        let batch: Vec<Change> = xids.map(delete).collect();
        while self.journal.append(&batch).unwrap() == Appended::Full {
            self.applied = self.sealed.replace(self.last).unwrap_or(self.applied);
            self.journal.switch();
        }
        self.last += 1;
        // A header, and for each change two lengths and a key.
        let length = 24 + batch.len() * (1 + 17 + 4);
        let end = usize::try_from(self.journal.offset).unwrap();
        let start = end - length.next_multiple_of(8);
        (self.journal.active, start..start + length)
    }

    /// Starts a process after one that ended at any moment.
    fn restart(&mut self) {
        let segments = self.segments();
        assert_eq!(numbers(&segments, self.applied).unwrap().end, self.last + 1);
        (self.applied, self.sealed) = (self.last, None);
        self.journal = Journal::open(self.directory.path(), mark(self.last)).unwrap();
    }
}

/// Returns the numbers of the batches that are not among the records.
fn numbers(segments: &[Vec<u8>; 2], applied: u64) -> Result<Range<u64>, String> {
    let [first, second] = segments;
    let frames = unapplied([batches_of(first), batches_of(second)], applied, mark(applied).seed)?;
    Ok(applied + 1..frames.last().map_or(applied, |frame| frame.number) + 1)
}

#[derive(Clone, Debug)]
enum Step {
    /// A batch of so many changes, and the set of its sectors that arrive before the power is cut.
    Append {
        changes: u64,
        arrived: u32,
    },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = (0..40_u64, any::<u32>());
    let append = append.prop_map(|(changes, arrived)| Step::Append { changes, arrived });
    vec(prop_oneof![8 => append, 1 => Just(Step::Restart)], 1..40)
}

/// Returns the content of the disk if only some of the changed sectors have arrived.
fn cut(before: &[u8], after: &[u8], arrived: u32) -> Vec<u8> {
    let mut disk = before.to_vec();
    let changed = |at: &usize| before[*at..][..SECTOR_BYTES] != after[*at..][..SECTOR_BYTES];
    let changed = (0..after.len()).step_by(SECTOR_BYTES).filter(changed);
    for (sector, at) in changed.enumerate() {
        if arrived >> (sector % 32) & 1 == 1 {
            disk[at..at + SECTOR_BYTES].copy_from_slice(&after[at..at + SECTOR_BYTES]);
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whichever sectors of a batch have arrived, everything before it is read, and the batch
    /// itself is read as a whole or not at all.
    #[test]
    fn a_power_cut_at_any_write_loses_nothing_acknowledged(steps in steps()) {
        let mut written = Written::new();
        for step in steps {
            let Step::Append { changes, arrived } = step else {
                written.restart();
                continue;
            };
            let (before, acknowledged) = (written.segments(), written.last);
            let (segment, range) = written.append(changes);
            let after = written.segments();
            let disk = [0, 1].map(|segment| cut(&before[segment], &after[segment], arrived));
            let found = numbers(&disk, written.applied).unwrap();
            let whole = disk[segment][range.clone()] == after[segment][range];
            let last = acknowledged + u64::from(whole);
            prop_assert_eq!(found, written.applied + 1..last + 1);
        }
    }

    /// A changed bit in any batch but the last is distinguished from a write that was cut off.
    #[test]
    fn damage_before_the_last_batch_is_noticed(
        sizes in vec(0..40_u64, 2..40),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut written = Written::new();
        let mut places = Vec::new();
        for changes in sizes {
            let (segment, range) = written.append(changes);
            places.push((written.last, segment, range));
        }
        let needed = written.applied + 1..written.last;
        places.retain(|(number, ..)| needed.contains(number));
        prop_assume!(!places.is_empty());
        let (number, segment, range) = place.get(&places).clone();
        let mut segments = written.segments();
        let at = range.start + place.index(range.len());
        segments[segment][at] ^= 1 << bit;
        let reason = numbers(&segments, written.applied).unwrap_err();
        prop_assert!(reason.starts_with(&format!("batch {number} ")), "{}", reason);
    }
}

#[test]
fn partly_created_files_are_created_again() {
    let (directory, _) = made(0);
    fs::write(directory.path().join(SEGMENTS[0]), [0; 100]).unwrap();
    make(directory.path(), mark(41)).unwrap();
    let mut journal = Journal::open(directory.path(), mark(41)).unwrap();
    assert_eq!(journal.append(&[]).unwrap(), Appended::Durable);
    let segments = segments(directory.path());
    let lengths = segments.each_ref().map(|segment| segment.len() as u64);
    assert_eq!(lengths, [WITNESS_BYTES + SEGMENT_BYTES; 2]);
    assert_eq!(numbers(&segments, 41).unwrap(), 42..43);
}

#[test]
fn a_batch_larger_than_a_segment_is_not_written() {
    let (_directory, mut journal) = made(0);
    let delete = |xid| Change::Delete(RecordKey::Global(Xid(xid)));
    let batch: Vec<Change> = (0..SEGMENT_BYTES / 8).map(delete).collect();
    assert_eq!(journal.append(&batch).unwrap(), Appended::TooLarge);
    assert!(journal.is_empty());
}

/// Whichever part is left, it knows of every acknowledged batch.
#[test]
fn each_part_knows_of_the_last_batch() {
    let (directory, mut journal) = made(7);
    for number in 8..40 {
        if journal.append(&[]).unwrap() == Appended::Full {
            journal.switch();
            continue;
        }
        let [first, second] = segments(directory.path());
        let tail = fs::read(directory.path().join(TAIL)).unwrap();
        let in_batches =
            |file: &[u8]| frame::scan(batches_of(file), mark(0).seed).0.last().map(|it| it.number);
        for file in [&first, &second, &tail] {
            let known = witness::read(file, mark(0).seed);
            assert_eq!(known.max(in_batches(file)), Some(number));
        }
    }
}
