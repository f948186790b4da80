//! Compares embedded key-value engines under the coordinator's load.
//!
//! `cargo run --release -p handfast-server --example store-load -- [seconds] [directory]`
//!
//! One writer, one batch at a time, each synced before the next, as the engine's group commit does
//! it. The changes go round: a global and its branch are put, then a global and its branch put
//! [`LIVE_PAIRS`] pairs ago are deleted. Engines run one after the other, each on an empty
//! directory, in turns, so that a busy moment of the machine does not fall on one of them alone.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// Pairs that are there before the oldest is deleted.
const LIVE_PAIRS: u64 = 10_000;
/// Records in the recovery measurement.
const RECOVERED: u64 = 100_000;
const ROUNDS: usize = 3;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// A change as the engines see it; without a value it deletes.
type Write = (Vec<u8>, Option<Vec<u8>>);

trait Engine: Sized {
    const NAME: &'static str;
    fn open(directory: &Path) -> Result<Self>;
    /// Makes the batch durable, atomically.
    fn commit(&mut self, batch: Vec<Write>) -> Result<()>;
    /// Reads every record, as at start.
    fn count(&self) -> Result<u64>;
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

    fn commit(&mut self, batch: Vec<Write>) -> Result<()> {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in batch {
            match value {
                Some(value) => write.insert(&self.records, key, value),
                None => write.remove(&self.records, key),
            }
        }
        Ok(write.commit()?)
    }

    fn count(&self) -> Result<u64> {
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

    fn commit(&mut self, batch: Vec<Write>) -> Result<()> {
        let mut write = self.0.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        {
            let mut records = write.open_table(TABLE)?;
            for (key, value) in &batch {
                match value {
                    Some(value) => drop(records.insert(key.as_slice(), value.as_slice())?),
                    None => drop(records.remove(key.as_slice())?),
                }
            }
        }
        Ok(write.commit()?)
    }

    fn count(&self) -> Result<u64> {
        let mut count = 0;
        for record in self.0.begin_read()?.open_table(TABLE)?.iter()? {
            record?;
            count += 1;
        }
        Ok(count)
    }
}

/// Makes batches of the coordinator's shape.
#[derive(Default)]
struct Load {
    pair: u64,
    changes: u64,
}

impl Load {
    fn batch(&mut self, size: usize) -> Vec<Write> {
        let mut batch = Vec::with_capacity(size);
        while batch.len() < size {
            match self.changes % 4 {
                0 => batch.push((key(b'g', self.pair), Some(value(self.pair, 110)))),
                1 => batch.push((key(b'b', self.pair), Some(value(self.pair, 190)))),
                2 => self.delete(b'g', &mut batch),
                _ => {
                    self.delete(b'b', &mut batch);
                    self.pair += 1;
                }
            }
            self.changes += 1;
        }
        batch
    }

    fn delete(&self, kind: u8, batch: &mut Vec<Write>) {
        if let Some(old) = self.pair.checked_sub(LIVE_PAIRS) {
            batch.push((key(kind, old), None));
        }
    }
}

fn key(kind: u8, pair: u64) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend((1 << 40 | pair).to_be_bytes());
    if kind == b'b' {
        key.extend(pair.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    }
    key
}

/// Text that compresses about as badly as ids and names do.
fn value(seed: u64, length: usize) -> Vec<u8> {
    let mut random = seed;
    let mut value = Vec::with_capacity(length + 8);
    while value.len() < length {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        value.extend((random >> 24).to_be_bytes());
    }
    value.truncate(length);
    value
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
        let puts = (first..first + 200).map(|pair| (key(b'b', pair), Some(value(pair, 190))));
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

/// Bytes that this process has had written, as Linux counts them; 0 elsewhere.
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
            measure::<Fjall>(&directory, size, time)?;
            measure::<Redb>(&directory, size, time)?;
        }
        measure_recovery::<Fjall>(&directory)?;
        measure_recovery::<Redb>(&directory)?;
    }
    Ok(())
}
