//! Cuts the power behind any call that the store makes, over its whole directory: the journal, the
//! file of the records with all that its engine does, what is made at a first start.
//!
//! A run is recorded (`disk::account`). A cut keeps of it what was synced and any part of the rest.
//! Every start from that must succeed by itself and find what was acknowledged, and the next run
//! goes on from one of them, so that starts are cut as well. `HANDFAST_POWER_CUTS` has more of
//! them made than the tests do by themselves, `HANDFAST_POWER_CUT_SEED` others.

mod image;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;

use futures::executor::block_on;
use handfast_core::{Change, Epoch, GlobalRecord, GlobalState, Record, RecordKey, Timestamp, Xid};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::disk::account::{self, Call, Entry};
use super::{EmbeddedStore, Store, codec};
use image::{Image, Loss};

/// Cuts of each test unless told otherwise.
const CUTS: u64 = 300;
/// Of each run.
const CUTS_OF_A_RUN: u64 = 10;
/// Full after some batches.
const SEGMENT_BYTES: [u64; 3] = [2 << 10, 4 << 10, 16 << 10];

type Records = BTreeMap<RecordKey, Record>;

/// What a run did, and what its caller was told.
struct Run {
    from: Image,
    entries: Vec<Entry>,
    before: Records,
    batches: Vec<Vec<Change>>,
}

impl Run {
    /// Starts from what a cut has left, and writes.
    fn record(from: Image, before: Records, random: &mut StdRng) -> Self {
        let directory = scratch();
        from.lay_out(directory.path());
        account::begin(directory.path());
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
            account::note(directory.path(), || Call::Acknowledged(number));
            run.batches.push(batch);
            if random.random_range(0..20) == 0 {
                (epoch, _) = block_on(store.lead(Epoch(0))).unwrap();
            }
        }
        // The end of a process is a part of it, or not.
        if random.random() {
            drop(store);
        }
        run.entries = account::end(directory.path());
        run
    }

    /// Cuts the power somewhere. Returns what was left, and what a start found in it.
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
            // The one that was under way may be there as well, as a whole.
            self.batches.get(acknowledged).into_iter().for_each(|it| apply(&mut expected, it));
        }
        assert!(found == expected, "{told}: {} of {} records", found.len(), expected.len());
        (image, found)
    }
}

/// What a process finds that starts from an image.
fn start(image: &Image) -> Result<Records, String> {
    let directory = scratch();
    image.lay_out(directory.path());
    let told = |error: super::StoreError| format!("{}: {error}", error.code());
    let store = EmbeddedStore::open_with(directory.path(), SEGMENT_BYTES[0]).map_err(told)?;
    block_on(store.lead(Epoch(0))).map(|(_, records)| keyed(records)).map_err(told)
}

/// What a cut leaves is worked out, so that no disk is needed.
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

/// Some records put, some put again, some deleted; once in a while too many for the journal.
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
    Record::Global(GlobalRecord {
        xid: Xid(number),
        address: "127.0.0.1:7091".into(),
        application: "order-service".into(),
        name: "x".repeat(random.random_range(0..300)).into(),
        begun_at: Timestamp(1),
        deadline: Timestamp(2),
        state: GlobalState::Active,
        paused: false,
        rollback_only: false,
        events: [].into(),
        finished_branches: [].into(),
    })
}

fn asked(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |text| text.parse().expect("it is a number"))
}

/// Has the power cut often, each run going on from what one of the cuts before it has left. After
/// so many runs a directory is begun anew.
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
fn after_any_power_cut_a_start_finds_what_was_acknowledged() {
    cut_often(12, || (Image::default(), Records::new()));
}

/// The first start of a directory of an earlier program, too.
#[test]
fn after_any_power_cut_amid_a_migration_too() {
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
    // Most of it is zeroes in reserve, which each cut would copy.
    let log = fs::OpenOptions::new().write(true).open(directory.join("records/0.jnl")).unwrap();
    log.set_len(1 << 20).unwrap();
    fs::write(directory.join("records.sound"), "").unwrap();
    records
}
