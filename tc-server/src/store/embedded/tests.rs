//! The records that are carried over from the journal, and those that are not.

use std::collections::BTreeMap;
use std::fs;

use handfast_core::{
    BranchId, BranchRecord, BranchState, FencingToken, LockMode, Mode, RecordKey, RowLock,
    Timestamp, Xid,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::*;
use crate::store::journal::{SEGMENTS, TAIL};
use crate::store::test_records;

const SEGMENT_BYTES: u64 = 16 << 10;

type Content = BTreeMap<RecordKey, Record>;

/// A store without its thread: each checkpoint is over before the next batch.
struct Directory {
    directory: TempDir,
    writer: Writer,
}

impl Directory {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let writer = open(directory.path());
        Self { directory, writer }
    }

    /// Ends the process, and starts another one.
    fn reopen(self) -> Self {
        let Self { directory, writer } = self;
        drop(writer);
        let writer = open(directory.path());
        Self { directory, writer }
    }

    /// As `reopen`, after an operator has removed the journal.
    fn reopen_without_journal(self) -> Self {
        let Self { directory, writer } = self;
        drop(writer);
        for name in [SEGMENTS[0], SEGMENTS[1], TAIL] {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
        let writer = open(directory.path());
        Self { directory, writer }
    }

    fn commit(&mut self, batch: &[Change]) {
        self.writer.write(batch).unwrap();
        self.writer.checkpoint.finish().unwrap();
    }

    /// Returns what is among the records, whatever the journal has.
    fn carried_over(&self) -> Content {
        let records = self.writer.records.read(self.directory.path()).unwrap();
        records.into_iter().map(|record| (record.key(), record)).collect()
    }

    /// Returns what a leader finds.
    fn found(&mut self) -> Content {
        self.writer.carry_over().unwrap();
        self.carried_over()
    }

    /// Puts globals, one a batch, each of which is deleted when so many later ones are there.
    fn run(&mut self, xids: std::ops::Range<u64>, remembered: u64) {
        for xid in xids {
            let forgotten = xid.checked_sub(remembered).map(delete);
            let batch: Vec<Change> = [put(xid, "short")].into_iter().chain(forgotten).collect();
            self.commit(&batch);
        }
    }
}

fn open(directory: &Path) -> Writer {
    Writer::open(DirectoryLock::take(directory).unwrap(), SEGMENT_BYTES).unwrap()
}

fn key(xid: u64) -> RecordKey {
    RecordKey::Global(Xid(xid))
}

fn put(xid: u64, name: &str) -> Change {
    Change::Put(test_records::global(xid, name))
}

fn delete(xid: u64) -> Change {
    Change::Delete(key(xid))
}

fn put_branch(xid: u64) -> Change {
    Change::Put(Record::Branch(BranchRecord {
        xid: Xid(xid),
        id: BranchId(1),
        sequence: 0,
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        rows: vec![RowLock {
            table: "orders".into(),
            key: b"7"[..].into(),
            mode: LockMode::Exclusive,
        }],
        token: FencingToken(1),
        registered_at: Timestamp(1),
        application_data: [].into(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    }))
}

/// A batch of one global and one deletion has some 120 bytes, so that 50 of them are less than
/// half of a segment. The last piece of a segment waits for longer.
const FORGOTTEN_IN_TIME: u64 = 50;

#[test]
fn a_global_that_is_forgotten_in_time_is_never_among_the_records() {
    let mut directory = Directory::new();
    // Until the first globals are forgotten, nothing shows that waiting helps.
    directory.run(0..200, FORGOTTEN_IN_TIME);
    let mut segments = 0;
    for xid in 200..2_000 {
        let active = directory.writer.journal.active();
        directory.run(xid..xid + 1, FORGOTTEN_IN_TIME);
        segments += u32::from(directory.writer.journal.active() != active);
        let carried_over = directory.carried_over();
        let late = carried_over.keys().find(|it| **it >= key(200));
        assert_eq!(late, None, "at global {xid}");
    }
    assert!(segments > 10, "{segments}");
    assert!(directory.carried_over().is_empty(), "the early ones are deleted");
}

#[test]
fn what_is_alive_is_carried_over_among_globals_that_are_forgotten() {
    let mut directory = Directory::new();
    let mut expected = Vec::new();
    for round in 0..20 {
        let (first, staying) = (round * 100, 1 << 32 | round);
        directory.commit(&[put(staying, "stays"), put_branch(staying)]);
        directory.run(first..first + 100, FORGOTTEN_IN_TIME);
        expected.extend([key(staying), RecordKey::Branch(Xid(staying), BranchId(1))]);
    }
    expected.extend((2_000 - FORGOTTEN_IN_TIME..2_000).map(key));
    expected.sort_unstable();
    assert!(directory.carried_over().len() > 20, "many of them have left the journal");
    let mut directory = directory.reopen();
    assert_eq!(directory.found().into_keys().collect::<Vec<_>>(), expected);
}

/// A record that is put again after its deletion is alive.
#[test]
fn any_order_of_changes_is_kept_through_many_segments() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut directory, mut expected) = (Directory::new(), Content::new());
        for _ in 0..random.random_range(200..800) {
            // A large batch comes when there is no room for it and pieces are left.
            let size = if random.random_range(0..10) == 0 { 80 } else { 8 };
            let batch: Vec<Change> = (0..random.random_range(0..size))
                .map(|_| match (random.random_range(1..60), random.random_range(0..5)) {
                    (xid, 0 | 1) => delete(xid),
                    (xid, 2) => put_branch(xid),
                    (xid, 3) => Change::Delete(RecordKey::Branch(Xid(xid), BranchId(1))),
                    (xid, _) => put(xid, &"x".repeat(random.random_range(0..100))),
                })
                .collect();
            for change in &batch {
                match change {
                    Change::Put(record) => drop(expected.insert(record.key(), record.clone())),
                    Change::Delete(key) => drop(expected.remove(key)),
                }
            }
            directory.commit(&batch);
            if random.random_range(0..150) == 0 {
                directory = directory.reopen();
            }
        }
        assert!(directory.found() == expected, "seed {seed}");
    }
}

/// The records alone are those of one moment, so that an operator can go on from them: what is
/// among them has every change up to there, even if it is deleted later.
#[test]
fn a_record_that_is_there_has_every_change_of_its_moment() {
    let mut directory = Directory::new();
    directory.run(0..100, FORGOTTEN_IN_TIME);
    directory.commit(&[put(1 << 32, "undecided")]);
    directory.writer.carry_over().unwrap();
    directory.commit(&[put(1 << 32, "decided")]);
    directory.run(100..140, FORGOTTEN_IN_TIME);
    // The deletion comes behind the first piece of the segment.
    directory.commit(&[delete(1 << 32)]);
    let mut xid = 140;
    let undecided = directory.carried_over();
    while directory.carried_over() == undecided {
        directory.run(xid..xid + 1, FORGOTTEN_IN_TIME);
        xid += 1;
    }
    let Some(Record::Global(global)) = directory.carried_over().remove(&key(1 << 32)) else {
        panic!("it is deleted in a later piece");
    };
    assert_eq!(&*global.name, "decided");
}

/// A coordinator refuses a branch without a global. The global of this one is forgotten before it
/// would be carried over; the branch is carried over, and then the journal is lost.
#[test]
fn records_without_a_journal_have_no_branch_without_its_global() {
    let mut directory = Directory::new();
    directory.run(0..100, FORGOTTEN_IN_TIME);
    directory.writer.carry_over().unwrap();
    directory.commit(&[put(1 << 32, "short"), put_branch(1 << 32)]);
    directory.commit(&[put(2 << 32, "stays"), put_branch(2 << 32)]);
    directory.run(100..140, FORGOTTEN_IN_TIME);
    let branch = RecordKey::Branch(Xid(1 << 32), BranchId(1));
    directory.commit(&[Change::Delete(branch), delete(1 << 32)]);
    let mut xid = 140;
    while !directory.carried_over().contains_key(&branch) {
        directory.run(xid..xid + 1, FORGOTTEN_IN_TIME);
        xid += 1;
    }
    assert!(!directory.carried_over().contains_key(&key(1 << 32)));
    let directory = directory.reopen_without_journal();
    let left: Vec<RecordKey> = directory.carried_over().into_keys().collect();
    assert!(!left.contains(&branch) && !left.contains(&key(1 << 32)), "{left:?}");
    let stays = [key(2 << 32), RecordKey::Branch(Xid(2 << 32), BranchId(1))];
    assert!(stays.iter().all(|key| left.contains(key)), "{left:?}");
}
