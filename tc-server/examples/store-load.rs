//! Compares the embedded store, and key-value engines alone, under the coordinator's load.
//!
//! `cargo run --release -p handfast-server --example store-load -- [seconds] [directory]`
//!
//! One writer writes one batch at a time and syncs it before the next, like the engine's group
//! commit. The changes are cyclic: a global and its branch are put, then the global and branch put
//! [`LIVE_PAIRS`] pairs ago are deleted. Engines run alternately, each on an empty directory, so
//! that a busy moment of the machine does not affect only one of them. The store is called in the
//! way of the coordinator's engine, including its thread.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use futures::executor::block_on;
use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, Epoch, FencingToken, GlobalRecord, GlobalState,
    Labels, LockMode, Mode, Record, RecordKey, RowLock, Timestamp, Xid,
};
use handfast_server::store::codec::encode_change;
use handfast_server::store::{EmbeddedStore, Store as _};
use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// Pairs that exist before the oldest is deleted.
const LIVE_PAIRS: u64 = 10_000;
/// Records in the recovery measurement.
const RECOVERED: u64 = 100_000;
const ROUNDS: usize = 3;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

trait Engine: Sized {
    const NAME: &'static str;
    fn open(directory: &Path) -> Result<Self>;
    /// Makes the batch durable, atomically.
    fn commit(&mut self, batch: Vec<Change>) -> Result<()>;
    /// Reads every record, as a start does.
    fn count(&self) -> Result<usize>;
}

/// The store itself: a journal before fjall.
struct Embedded {
    store: EmbeddedStore,
    epoch: Epoch,
}

impl Engine for Embedded {
    const NAME: &'static str = "store";

    fn open(directory: &Path) -> Result<Self> {
        let store = EmbeddedStore::open(directory)?;
        let (epoch, _) = block_on(store.lead(Epoch(0)))?;
        Ok(Self { store, epoch })
    }

    fn commit(&mut self, batch: Vec<Change>) -> Result<()> {
        Ok(block_on(self.store.commit(self.epoch, batch))?)
    }

    fn count(&self) -> Result<usize> {
        Ok(block_on(self.store.lead(Epoch(0)))?.1.len())
    }
}

struct Fjall {
    database: Database,
    records: Keyspace,
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";

    fn open(directory: &Path) -> Result<Self> {
        let database = Database::builder(directory).open()?;
        let records = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { database, records })
    }

    fn commit(&mut self, batch: Vec<Change>) -> Result<()> {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncData));
        for change in &batch {
            let (key, value) = encode_change(change);
            match value {
                Some(value) => write.insert(&self.records, key, value),
                None => write.remove(&self.records, key),
            }
        }
        Ok(write.commit()?)
    }

    fn count(&self) -> Result<usize> {
        let mut count = 0;
        for record in self.records.iter() {
            record.into_inner()?;
            count += 1;
        }
        Ok(count)
    }
}

struct Redb(redb::Database);

impl Engine for Redb {
    const NAME: &'static str = "redb";

    fn open(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self(redb::Database::create(directory.join("records.redb"))?))
    }

    fn commit(&mut self, batch: Vec<Change>) -> Result<()> {
        let mut write = self.0.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        {
            let mut records = write.open_table(TABLE)?;
            for change in &batch {
                let (key, value) = encode_change(change);
                match value {
                    Some(value) => drop(records.insert(key.as_slice(), value.as_slice())?),
                    None => drop(records.remove(key.as_slice())?),
                }
            }
        }
        Ok(write.commit()?)
    }

    fn count(&self) -> Result<usize> {
        let mut count = 0;
        for record in self.0.begin_read()?.open_table(TABLE)?.iter()? {
            record?;
            count += 1;
        }
        Ok(count)
    }
}

/// Builds batches of the coordinator's shape.
#[derive(Default)]
struct Load {
    pair: u64,
    changes: u64,
}

impl Load {
    fn batch(&mut self, size: usize) -> Vec<Change> {
        let mut batch = Vec::with_capacity(size);
        while batch.len() < size {
            let pair = self.pair;
            let old = pair.checked_sub(LIVE_PAIRS);
            match self.changes % 4 {
                0 => batch.push(Change::Put(global(pair))),
                1 => batch.push(Change::Put(branch(pair))),
                2 => batch.extend(old.map(|old| Change::Delete(RecordKey::Global(xid(old))))),
                _ => {
                    let key = |old| RecordKey::Branch(xid(old), branch_id(old));
                    batch.extend(old.map(|old| Change::Delete(key(old))));
                    self.pair += 1;
                }
            }
            self.changes += 1;
        }
        batch
    }
}

fn xid(pair: u64) -> Xid {
    Xid(1 << 40 | pair)
}

fn branch_id(pair: u64) -> BranchId {
    BranchId(pair.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Returns a record of about 100 bytes.
fn global(pair: u64) -> Record {
    Record::Global(GlobalRecord {
        xid: xid(pair),
        address: "coordinator.example:7091".into(),
        application: "order-service".into(),
        name: "place-order".into(),
        begun_at: Timestamp(1_800_000_000_000),
        deadline: Timestamp(1_800_000_060_000),
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

/// Returns a record of about 190 bytes.
fn branch(pair: u64) -> Record {
    let row = |table: &str, number: u64| RowLock {
        table: table.into(),
        key: format!("{number:032x}").into_bytes().into(),
        mode: LockMode::Exclusive,
    };
    Record::Branch(BranchRecord {
        xid: xid(pair),
        id: branch_id(pair),
        sequence: 0,
        resource: "postgres:orders@db.example".into(),
        mode: Mode::At,
        rows: vec![row("orders", pair), row("order_lines", branch_id(pair).0)],
        token: FencingToken(pair),
        registered_at: Timestamp(1_800_000_000_000),
        application_data: [].into(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    })
}

fn measure<E: Engine>(directory: &Path, size: usize, time: Duration) -> Result<()> {
    let directory = directory.join(format!("{}-{size}", E::NAME));
    let mut engine = E::open(&directory)?;
    let mut load = Load::default();
    let mut latencies = Vec::new();
    let written_before = written();
    let started = Instant::now();
    while started.elapsed() < time {
        let batch = load.batch(size);
        let begun = Instant::now();
        engine.commit(batch)?;
        latencies.push(begun.elapsed());
    }
    let seconds = started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() * share / 1_000).min(latencies.len() - 1)];
    writeln!(
        io::stdout(),
        "{:6} batch {size:4}: {:7.0} batches/s, p50 {:6} us, p99 {:6} us, p99.9 {:7} us, {:6.1} kB written a batch, {:5.1} MB for {} live pairs",
        E::NAME,
        latencies.len() as f64 / seconds,
        at(500).as_micros(),
        at(990).as_micros(),
        at(999).as_micros(),
        (written() - written_before) as f64 / latencies.len() as f64 / 1e3,
        bytes(&directory)? as f64 / 1e6,
        load.pair.min(LIVE_PAIRS),
    )?;
    drop(engine);
    Ok(std::fs::remove_dir_all(&directory)?)
}

fn measure_recovery<E: Engine>(directory: &Path) -> Result<()> {
    let directory = directory.join(format!("{}-recovery", E::NAME));
    let mut engine = E::open(&directory)?;
    for first in (0..RECOVERED).step_by(200) {
        let puts = (first..first + 200).map(|pair| Change::Put(branch(pair)));
        engine.commit(puts.collect())?;
    }
    drop(engine);
    let started = Instant::now();
    let engine = E::open(&directory)?;
    let opened = started.elapsed();
    let count = engine.count()?;
    writeln!(
        io::stdout(),
        "{:6} recovery of {count} records: open {} ms, open and read {} ms, {:.1} MB",
        E::NAME,
        opened.as_millis(),
        started.elapsed().as_millis(),
        bytes(&directory)? as f64 / 1e6,
    )?;
    drop(engine);
    Ok(std::fs::remove_dir_all(&directory)?)
}

fn bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.metadata()?;
        // A background thread may have removed the file just listed.
        bytes += if file.is_dir() { self::bytes(&entry.path()).unwrap_or(0) } else { file.len() };
    }
    Ok(bytes)
}

/// Returns the bytes that this process has written, as counted by Linux, and 0 elsewhere.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(3.0), |text| text.parse()).context("seconds")?;
    let directory = arguments.next().map_or_else(|| PathBuf::from("target/store-load"), Into::into);
    std::fs::create_dir_all(&directory)?;
    let time = Duration::from_secs_f64(seconds);
    for _ in 0..ROUNDS {
        for size in [1, 10, 50, 200] {
            measure::<Embedded>(&directory, size, time)?;
            measure::<Fjall>(&directory, size, time)?;
            measure::<Redb>(&directory, size, time)?;
        }
        measure_recovery::<Embedded>(&directory)?;
        measure_recovery::<Fjall>(&directory)?;
        measure_recovery::<Redb>(&directory)?;
    }
    Ok(())
}
