//! Simulates power cuts after any file system call of the store, over its whole directory: the
//! journal, the file of the records with all calls of its engine, and the files of a first start.
//!
//! The calls of a run are logged (`disk::call_log`). A cut keeps the synced bytes and any part of
//! the rest. Every start from the result must succeed without help and find all acknowledged
//! batches. The next run continues from one of the results, so that starts are cut as well.
//! `HANDFAST_POWER_CUTS` sets the number of cuts, `HANDFAST_POWER_CUT_SEED` the seed.

mod image;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;

use futures::executor::block_on;
use handfast_core::{Change, Epoch, Record, RecordKey};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::disk::call_log::{self, Call, LoggedCall};
use super::{EmbeddedStore, Store, codec, test_records};
use image::{Image, Loss};

/// The default number of cuts per test.
const CUTS: u64 = 300;
/// The number of cuts per run.
const CUTS_OF_A_RUN: u64 = 10;
/// Small enough to be full after a few batches.
const SEGMENT_BYTES: [u64; 3] = [2 << 10, 4 << 10, 16 << 10];

type Records = BTreeMap<RecordKey, Record>;

/// The calls of a run, and the batches that were acknowledged to its caller.
struct Run {
    from: Image,
    entries: Vec<LoggedCall>,
    before: Records,
    batches: Vec<Vec<Change>>,
}

impl Run {
    /// Starts from the state that a cut has left, and writes.
    fn record(from: Image, before: Records, random: &mut StdRng) -> Self {
        let directory = scratch();
        from.lay_out(directory.path());
        call_log::start(directory.path());
        let segment_bytes = SEGMENT_BYTES[random.random_range(0..SEGMENT_BYTES.len())];
        let store = EmbeddedStore::open_with(directory.path(), segment_bytes).unwrap();
        let (mut epoch, found) = block_on(store.lead(Epoch(0))).unwrap();
        assert_eq!(keyed(found), before);
        let mut run = Self { from, entries: Vec::new(), before, batches: Vec::new() };
        let mut records = run.before.clone();
        for number in 1..=random.random_range(1..60) {
            let batch = batch(&records, random);
            apply(&mut records, &batch);
            block_on(store.commit(epoch, batch.clone())).unwrap();
            call_log::record(directory.path(), || Call::Acknowledged(number));
            run.batches.push(batch);
            if random.random_range(0..20) == 0 {
                (epoch, _) = block_on(store.lead(Epoch(0))).unwrap();
            }
        }
        // The calls of an orderly end belong to some runs, and not to others.
        if random.random() {
            drop(store);
        }
        run.entries = call_log::finish(directory.path());
        run
    }

    /// Cuts the power at a random place. Returns the state left, and the records a start found.
    fn cut(&self, random: &mut StdRng) -> (Image, Records) {
        let behind = random.random_range(0..=self.entries.len());
        let done = &self.entries[..behind];
        let acknowledged = done.iter().rev().find_map(|entry| match entry.call {
            Call::Acknowledged(number) => Some(number),
            Call::Create
            | Call::Write { .. }
            | Call::SetLen(_)
            | Call::Sync
            | Call::Rename(_)
            | Call::Remove
            | Call::SyncNames => None,
        });
        let acknowledged = usize::try_from(acknowledged.unwrap_or_default()).unwrap();
        let loss = Loss::any(random);
        let image = self.from.after(done, loss, random);
        let found = start(&image);
        let told = format!("{loss:?} behind {behind} of {} calls", self.entries.len());
        let found = found.unwrap_or_else(|error| panic!("{told}: {error}"));
        let mut expected = self.before.clone();
        self.batches[..acknowledged].iter().for_each(|batch| apply(&mut expected, batch));
        if found != expected {
            // The batch in progress may be found as well, as a whole.
            self.batches.get(acknowledged).into_iter().for_each(|it| apply(&mut expected, it));
        }
        assert!(found == expected, "{told}: {} of {} records", found.len(), expected.len());
        (image, found)
    }
}

/// Returns the records that a start from an image finds.
fn start(image: &Image) -> Result<Records, String> {
    let directory = scratch();
    image.lay_out(directory.path());
    let told = |error: super::StoreError| format!("{}: {error}", error.code());
    let store = EmbeddedStore::open_with(directory.path(), SEGMENT_BYTES[0]).map_err(told)?;
    block_on(store.lead(Epoch(0))).map(|(_, records)| keyed(records)).map_err(told)
}

/// Returns a directory in memory if there is one: the state after a cut is computed, so no disk is
/// needed.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn keyed(records: Vec<Record>) -> Records {
    records.into_iter().map(|record| (record.key(), record)).collect()
}

fn apply(records: &mut Records, batch: &[Change]) {
    for change in batch {
        match change {
            Change::Put(record) => drop(records.insert(record.key(), record.clone())),
            Change::Delete(key) => drop(records.remove(key)),
        }
    }
}

/// Returns a batch that adds, replaces and deletes records. Now and then it is larger than a
/// segment.
fn batch(records: &Records, random: &mut StdRng) -> Vec<Change> {
    let size = if random.random_range(0..40) == 0 { 300 } else { random.random_range(0..12) };
    let change = |_| {
        let known = records.keys().nth(random.random_range(0..=records.len()));
        match known {
            Some(key) if random.random_range(0..3) > 0 => Change::Delete(*key),
            Some(_) | None => Change::Put(global(random.random_range(1..2000), random)),
        }
    };
    (0..size).map(change).collect()
}

fn global(number: u64, random: &mut StdRng) -> Record {
    test_records::global(number, &"x".repeat(random.random_range(0..300)))
}

fn asked(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |text| text.parse().expect("it is a number"))
}

/// Cuts the power many times. Each run continues from the state that one of the earlier cuts has
/// left. After `runs_of_a_directory` runs the next begins with an empty directory.
fn cut_often(runs_of_a_directory: u64, begin: impl Fn() -> (Image, Records)) {
    let seed = asked("HANDFAST_POWER_CUT_SEED", 1);
    let runs = asked("HANDFAST_POWER_CUTS", CUTS).div_ceil(CUTS_OF_A_RUN);
    for number in 0..runs.div_ceil(runs_of_a_directory) {
        let (mut image, mut found) = begin();
        for run in number * runs_of_a_directory..runs.min((number + 1) * runs_of_a_directory) {
            eprintln!("seed {seed}, run {run}");
            let mut random = StdRng::seed_from_u64(seed << 32 | run);
            let run = Run::record(image, found, &mut random);
            let mut cuts: Vec<_> = (0..CUTS_OF_A_RUN).map(|_| run.cut(&mut random)).collect();
            (image, found) = cuts.swap_remove(random.random_range(0..cuts.len()));
        }
    }
}

#[test]
fn acknowledged_batches_survive_any_power_cut() {
    cut_often(12, || (Image::default(), Records::new()));
}

/// The power is cut during the first start of a directory of an earlier version too.
#[test]
fn acknowledged_batches_survive_a_power_cut_in_migration() {
    cut_often(2, || {
        let directory = scratch();
        let records = write_as_earlier_programs_did(directory.path());
        (Image::of(directory.path()), records)
    });
}

fn write_as_earlier_programs_did(directory: &Path) -> Records {
    let database = fjall::Database::builder(directory.join("records")).open().unwrap();
    let keyspace = database.keyspace("records", fjall::KeyspaceCreateOptions::default).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let records = keyed((1..100).map(|number| global(number, &mut random)).collect());
    for (key, record) in &records {
        keyspace.insert(codec::encode_key(*key), codec::encode(record)).unwrap();
    }
    database.persist(fjall::PersistMode::SyncAll).unwrap();
    drop((keyspace, database));
    // Most of the log is preallocated zeroes, which each cut would copy.
    let log = fs::OpenOptions::new().write(true).open(directory.join("records/0.jnl")).unwrap();
    log.set_len(1 << 20).unwrap();
    fs::write(directory.join("records.sound"), "").unwrap();
    records
}
