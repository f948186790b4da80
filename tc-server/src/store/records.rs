//! The records in an embedded key-value engine, behind the journal.
//!
//! The records are in one file. The engine writes copies of the changed pages and then switches to
//! them with one page, so a commit survives a power cut as a whole or not at all. Checksums cover
//! everything. Why this engine: `docs/decisions/0017-records-in-redb.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use handfast_core::{Change, Epoch, Record, RecordKey, Xid};
use hashbrown::HashMap;
use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, Table, TableDefinition, WriteTransaction,
};

use super::StoreError;
use super::codec::{self, CodecError, Decoder};
use super::directory::RECORDS;
use super::disk::{self, DiskFile};
use super::feed::RecordFeed;
use super::journal::Mark;
use super::journal::deletions::Deletions;
use super::journal::frame::{Frame, Seed, StoredChange};
use super::snapshot::{GatheredPage, PageReader, PageSender, RecordSnapshot, SnapshotOrigin};
use super::stored_keys::StoredKeys;
use crate::crash_point::crash_point;

/// The engine's file in it.
const FILE: &str = "records.redb";

const STORED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// The store's own values: epoch and mark.
const OWN: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("store");
const EPOCH: &str = "epoch";
const MARK: &str = "journal";
/// The last byte of a stored mark, its format.
const MARK_FORMAT: u8 = 1;

/// The engine's cache of its file, which also buffers the writes of a commit.
const CACHE_BYTES: usize = 8 << 20;

/// Changes written before the thread yields: about 0.1 ms of work. A thread that never yields keeps
/// a processor for milliseconds, and the callers of the journal's next batch would wait for it.
const CHANGES_AT_A_TIME: usize = 100;

/// Returns the path of the engine's file.
pub(super) fn file(directory: &Path) -> PathBuf {
    directory.join(RECORDS).join(FILE)
}

/// Creates the file of the records under another name and renames it when it is complete, so that
/// a crash leaves all of it or nothing.
pub(super) fn create_file(
    directory: &Path,
    epoch: Epoch,
    mark: Mark,
    content: Vec<(Vec<u8>, Vec<u8>)>,
) -> io::Result<()> {
    let records = directory.join(RECORDS);
    fs::create_dir_all(&records)?;
    // A power cut that takes the name of the directory takes the file in it as well.
    disk::sync_directory(directory)?;
    let file = file(directory);
    let unfinished = file.with_extension("making");
    Records::create(&unfinished, epoch, mark, content)?;
    disk::rename(&unfinished, &file)?;
    disk::sync_directory(&records)
}

/// The engine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Records {
    database: Arc<Database>,
}

impl Records {
    /// Creates the file with the first epoch and mark, and with the given records.
    pub(super) fn create(
        file: &Path,
        epoch: Epoch,
        mark: Mark,
        records: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> io::Result<()> {
        let database = builder().create_with_backend(EngineFile(DiskFile::create(file)?));
        let records_of = |database| Self { database: Arc::new(database) };
        records_of(database.map_err(engine_error)?).commit(Some(epoch), mark, |stored| {
            for (key, value) in records {
                stored.insert(&key[..], &value[..]).map_err(engine_error)?;
            }
            Ok(())
        })
    }

    /// Opens the file and reads all of it against its checksums.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let file = DiskFile::open(file)?;
        // The engine would turn an empty file into an empty database.
        if file.len()? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        let open = || {
            let mut database = builder().create_with_backend(EngineFile(file))?;
            database.check_integrity()?;
            Ok(database)
        };
        // A file that is not the engine's may break its assumptions before the engine detects it.
        let opened = catch_unwind(AssertUnwindSafe(open)).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "the storage engine panicked over it")
        })?;
        let database = opened.map_err(|error: redb::DatabaseError| engine_error(error))?;
        Ok(Self { database: Arc::new(database) })
    }

    /// The epoch of the last leader; 0 before there was one.
    pub(super) fn epoch(&self) -> io::Result<Epoch> {
        self.own(EPOCH, |bytes| Some(Epoch(u64::from_be_bytes(bytes.try_into().ok()?))))
    }

    /// Returns the mark of the journal.
    pub(super) fn mark(&self) -> io::Result<Mark> {
        self.own(MARK, |bytes| {
            let (applied, rest) = bytes.split_first_chunk()?;
            let (seed, rest) = rest.split_first_chunk()?;
            let (segment_bytes, rest) = rest.split_first_chunk()?;
            let &[in_use, MARK_FORMAT] = rest else { return None };
            Some(Mark {
                applied: u64::from_be_bytes(*applied),
                seed: Seed::new(u64::from_be_bytes(*seed)),
                segment_bytes: u64::from_be_bytes(*segment_bytes),
                in_use: in_use != 0,
            })
        })
    }

    fn own<T>(&self, key: &str, read: impl FnOnce(&[u8]) -> Option<T>) -> io::Result<T> {
        let transaction = self.database.begin_read().map_err(engine_error)?;
        let table = transaction.open_table(OWN).map_err(engine_error)?;
        let stored = table.get(key).map_err(engine_error)?;
        let lacking = || format!("its `{key}` is missing, or of a later version");
        let value = stored.and_then(|stored| read(stored.value()));
        value.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, lacking()))
    }

    /// Writes the mark durably.
    pub(super) fn set_mark(&self, mark: Mark) -> io::Result<()> {
        self.commit(None, mark, |_| Ok(()))
    }

    /// Writes an epoch durably. It counts as a batch of its own.
    pub(super) fn set_epoch(&self, epoch: Epoch, mark: Mark) -> io::Result<()> {
        self.commit(Some(epoch), mark, |_| Ok(()))
    }

    /// Writes one batch atomically and durably.
    pub(super) fn write(&self, changes: &[Change], mark: Mark) -> io::Result<()> {
        self.commit(None, mark, |stored| {
            for change in changes {
                let (key, value) = codec::encode_change(change);
                match value {
                    Some(value) => drop(stored.insert(&key[..], &value[..]).map_err(engine_error)?),
                    None => drop(stored.remove(&key[..]).map_err(engine_error)?),
                }
            }
            Ok(())
        })
    }

    /// Writes batches of the journal, namely all up to the mark that are not among the records yet,
    /// atomically and durably. A record that is not there and that the journal deletes in the end
    /// is left out. One that is there changes with every batch: without the journal, the records
    /// are then those of one moment, except for what was deleted later.
    pub(super) fn take_over<'a>(
        &self,
        frames: impl IntoIterator<Item = Frame<'a>>,
        deletions: &Deletions,
        mark: Mark,
    ) -> io::Result<()> {
        // Most records are deleted again before their segment is full, so only the last change of
        // each key is written.
        let mut newest: HashMap<&[u8], Option<&[u8]>> = HashMap::new();
        for frame in frames {
            for change in frame.changes() {
                let (key, value) = change.ok_or(io::ErrorKind::InvalidData)?;
                newest.insert(key, value);
            }
            thread::yield_now();
        }
        self.commit(None, mark, |stored| {
            let mut newest: Vec<_> = lasting(newest, deletions, stored)?;
            // Sorted, because neighbouring keys share a page.
            newest.sort_unstable_by_key(|(key, _)| *key);
            for changes in newest.chunks(CHANGES_AT_A_TIME) {
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(stored.insert(*key, *value).map_err(engine_error)?),
                        None => drop(stored.remove(*key).map_err(engine_error)?),
                    }
                }
                crash_point("mid-checkpoint");
                thread::yield_now();
            }
            Ok(())
        })
    }

    /// Removes the branches whose global is not among the records, durably. Returns how many. A
    /// global that the journal deletes is left out in `take_over`, and its branches, which it
    /// deletes too, may be there until it is carried over; without the journal they stay.
    pub(super) fn remove_branches_without_global(&self, mark: Mark) -> io::Result<usize> {
        let mut orphans: Vec<Vec<u8>> = Vec::new();
        self.commit(None, mark, |stored| {
            let (from, to) = ([codec::BRANCH], [codec::BRANCH + 1]);
            for branch in stored.range::<&[u8]>(&from[..]..&to[..]).map_err(engine_error)? {
                let (key, _) = branch.map_err(engine_error)?;
                let Ok(RecordKey::Branch(xid, _)) = codec::decode_key(key.value()) else {
                    continue;
                };
                let global = codec::encode_key(RecordKey::Global(xid));
                if stored.get(&global[..]).map_err(engine_error)?.is_none() {
                    orphans.push(key.value().to_vec());
                }
            }
            for key in &orphans {
                stored.remove(&key[..]).map_err(engine_error)?;
            }
            Ok(())
        })?;
        Ok(orphans.len())
    }

    /// Reads all records.
    pub(super) fn read(&self, directory: &Path) -> Result<Vec<Record>, StoreError> {
        let failed = |error| open_error(directory, error);
        let transaction = self.database.begin_read().map_err(engine_error).map_err(failed)?;
        let mut records = Vec::new();
        visit_in_order(&transaction, directory, |record| {
            records.push(record);
            ControlFlow::Continue(())
        })?;
        Ok(records)
    }

    /// Reads all records as they are at this moment, on a thread of its own, for a coordinator that
    /// is made of them.
    pub(super) fn feed(&self, directory: &Path) -> Result<RecordFeed, StoreError> {
        let failed = |error| open_error(directory, error);
        let transaction = self.database.begin_read().map_err(engine_error).map_err(failed)?;
        let table = transaction.open_table(STORED).map_err(engine_error).map_err(failed)?;
        let count = table.len().map_err(engine_error).map_err(failed)?;
        let total = usize::try_from(count).unwrap_or(usize::MAX);
        let (feed, mut sender) = RecordFeed::begin(directory, total);
        let directory_read = directory.to_owned();
        let read = move || {
            let read = visit_in_order(&transaction, &directory_read, |record| sender.send(record));
            sender.end(read);
        };
        thread::Builder::new().name("records".to_owned()).spawn(read).map_err(failed)?;
        Ok(feed)
    }

    /// Reads all records as they are at this moment, on a thread of its own. The caller must have
    /// carried the journal over.
    pub(super) fn snapshot(&self, directory: &Path) -> Result<RecordSnapshot, StoreError> {
        let failed = |error| open_error(directory, error);
        let transaction = self.database.begin_read().map_err(engine_error).map_err(failed)?;
        // The mark is of the same moment as the transaction: this is the thread that writes, and no
        // checkpoint is under way.
        let mark = self.mark().map_err(failed)?;
        let (snapshot, pages) = RecordSnapshot::begin(SnapshotOrigin {
            store: format!("the directory {}", directory.display()),
            identity: Some(mark.seed.identity()),
            epoch: self.epoch().map_err(failed)?,
            number: mark.applied,
        });
        let directory_read = directory.to_owned();
        let read = move || {
            let sent = send_pages(&transaction, &pages);
            pages.end_blocking(sent.map_err(|error| open_error(&directory_read, error)));
        };
        thread::Builder::new().name("snapshot".to_owned()).spawn(read).map_err(failed)?;
        Ok(snapshot)
    }

    /// Writes changes, epoch and mark in one atomic and durable commit.
    fn commit(
        &self,
        epoch: Option<Epoch>,
        mark: Mark,
        change: impl FnOnce(&mut Table<'_, &'static [u8], &'static [u8]>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut transaction = self.database.begin_write().map_err(engine_error)?;
        // With two-phase commit, a partly written page is never the current one. With quick repair,
        // a start need not read the file to find its free pages.
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        change(&mut transaction.open_table(STORED).map_err(engine_error)?)?;
        // The mark is in the same commit, so that it says what the records hold.
        write_own(&transaction, epoch, mark)?;
        transaction.commit().map_err(engine_error)
    }
}

/// Returns the changes that have an effect on the records.
fn lasting<'a>(
    newest: HashMap<&'a [u8], Option<&'a [u8]>>,
    deletions: &Deletions,
    stored: &Table<'_, &'static [u8], &'static [u8]>,
) -> io::Result<Vec<StoredChange<'a>>> {
    let kinds: BTreeSet<u8> = newest.keys().filter_map(|key| key.first()).copied().collect();
    let greatest = greatest_keys(kinds, stored)?;
    let mut lasting = Vec::new();
    for (key, value) in newest {
        let lasts = match value {
            Some(_) if deletions.include(key) => {
                greatest.may_have(key) && stored.get(key).map_err(engine_error)?.is_some()
            }
            Some(_) => true,
            None => greatest.may_have(key),
        };
        if lasts {
            lasting.push((key, value));
        }
    }
    Ok(lasting)
}

/// Returns the greatest key of each of these kinds, the first bytes of keys.
fn greatest_keys(
    kinds: BTreeSet<u8>,
    stored: &Table<'_, &'static [u8], &'static [u8]>,
) -> io::Result<StoredKeys> {
    let mut keys = StoredKeys::default();
    for kind in kinds {
        // Kinds are ASCII.
        let (from, to) = ([kind], [kind + 1]);
        let mut range = stored.range::<&[u8]>(&from[..]..&to[..]).map_err(engine_error)?;
        if let Some((key, _)) = range.next_back().transpose().map_err(engine_error)? {
            keys.note(key.value());
        }
    }
    Ok(keys)
}

/// Visits the records in the order in which they are loaded, until the visitor breaks it off.
fn visit_in_order(
    transaction: &ReadTransaction,
    directory: &Path,
    mut visit: impl FnMut(Record) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    let table = transaction.open_table(STORED).map_err(engine_error).map_err(failed)?;
    let read = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
        let range = table.range::<&[u8]>((from, to)).map_err(engine_error).map_err(failed)?;
        let mut decoder = Decoder::default();
        Ok::<_, StoreError>(range.map(move |stored| {
            let (key, value) = stored.map_err(engine_error).map_err(failed)?;
            let record = decoder.decode(key.value(), value.value());
            record.map_err(|source| damaged(directory, source))
        }))
    };
    // The keys of globals and of branches are both in the order of XIDs.
    let (first, behind) = ([codec::BRANCH], [codec::BRANCH + 1]);
    let mut branches = read(Bound::Included(&first), Bound::Excluded(&behind))?.peekable();
    let others = read(Bound::Unbounded, Bound::Excluded(&first))?
        .chain(read(Bound::Included(&behind), Bound::Unbounded)?);
    for record in others {
        let record = record?;
        let global = if let Record::Global(global) = &record { Some(global.xid) } else { None };
        if visit(record).is_break() {
            return Ok(());
        }
        while let Some(branch) = branches.next_if(|branch| is_no_later(branch, global)) {
            if visit(branch?).is_break() {
                return Ok(());
            }
        }
    }
    // They have no global. That is for the coordinator to refuse.
    for branch in branches {
        if visit(branch?).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns whether a branch belongs to this global or to one before it.
fn is_no_later(branch: &Result<Record, StoreError>, global: Option<Xid>) -> bool {
    match branch {
        Ok(Record::Branch(branch)) => global.is_some_and(|global| branch.xid <= global),
        Ok(_) | Err(_) => true,
    }
}

fn send_pages(transaction: &ReadTransaction, pages: &PageSender) -> io::Result<()> {
    let table = transaction.open_table(STORED).map_err(engine_error)?;
    let mut gathered = GatheredPage::default();
    for stored in table.iter().map_err(engine_error)? {
        let (key, value) = stored.map_err(engine_error)?;
        let page = gathered.push(key.value().to_vec(), value.value().to_vec());
        if page.is_some_and(|page| pages.send_blocking(page) == PageReader::Gone) {
            return Ok(());
        }
    }
    pages.send_blocking(gathered.take());
    Ok(())
}

fn write_own(transaction: &WriteTransaction, epoch: Option<Epoch>, mark: Mark) -> io::Result<()> {
    let mut own = transaction.open_table(OWN).map_err(engine_error)?;
    if let Some(epoch) = epoch {
        own.insert(EPOCH, &epoch.0.to_be_bytes()[..]).map_err(engine_error)?;
    }
    let numbers = [mark.applied, mark.seed.number(), mark.segment_bytes].map(u64::to_be_bytes);
    let mark = [numbers.as_flattened(), &[u8::from(mark.in_use), MARK_FORMAT]].concat();
    own.insert(MARK, &mark[..]).map_err(engine_error)?;
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// The file as the engine sees it. The directory's lock keeps other processes from it.
#[derive(Debug)]
struct EngineFile(DiskFile);

impl StorageBackend for EngineFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

/// Converts an error of opening the store, distinguishing damage from a disk that cannot be read.
pub(super) fn open_error(directory: &Path, error: io::Error) -> StoreError {
    let directory = directory.to_owned();
    if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
        return StoreError::Journal { directory, reason: format!("{RECORDS}/{FILE}: {error}") };
    }
    StoreError::Open { directory, source: error }
}

fn damaged(directory: &Path, source: CodecError) -> StoreError {
    StoreError::Damaged { directory: directory.to_owned(), source }
}

fn engine_error(error: impl Into<redb::Error>) -> io::Error {
    let error = error.into();
    if let redb::Error::Io(error) = error {
        return error;
    }
    let is_damage = matches!(error, redb::Error::Corrupted(_));
    let kind = if is_damage { io::ErrorKind::InvalidData } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}
