//! The records in an embedded key-value engine, behind the journal.
//!
//! Why this engine: `docs/decisions/0001-embedded-store.md`.

use std::io;
use std::path::Path;
use std::thread;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, UserKey};
use handfast_core::{Change, Epoch, Record};
use hashbrown::HashMap;

use super::StoreError;
use super::codec::{self, CodecError};
use super::journal::Mark;
use super::journal::frame::{Frame, Seed};
use crate::crash_point::crash_point;

/// The engine's directory within that of the store.
pub(super) const RECORDS: &str = "records";

/// Where the store keeps what is its own; no record key begins like one of them.
const EPOCH_KEY: &[u8] = b"epoch";
const MARK_KEY: &[u8] = b"journal";
/// What ends a mark of a journal whose frames begin with what follows from its seed; nothing ends
/// those from before.
const MARK_FORMAT: u8 = 2;

/// Files that the engine keeps open, out of those that are set aside in `descriptors`.
const CACHED_FILES_MAX: usize = 64;

/// Changes written at a time: some 0.1 ms of work. A thread that never pauses keeps a processor for
/// milliseconds, for which those who wait for the journal's next batch would wait too.
const CHANGES_AT_A_TIME: usize = 100;

/// The engine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Records {
    database: Database,
    keyspace: Keyspace,
}

impl Records {
    /// Opens or makes the engine's directory.
    pub(super) fn open(directory: &Path) -> Result<Self, fjall::Error> {
        let database =
            Database::builder(directory).max_cached_files(Some(CACHED_FILES_MAX)).open()?;
        let keyspace = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { database, keyspace })
    }

    /// The epoch of the last leader; 0 before there was one.
    pub(super) fn epoch(&self, directory: &Path) -> Result<Epoch, StoreError> {
        let epoch = self.own(directory, EPOCH_KEY, |bytes| bytes.try_into().ok())?;
        Ok(Epoch(epoch.map_or(0, u64::from_be_bytes)))
    }

    /// How far the journal is carried over; `None` before there was one.
    pub(super) fn mark(&self, directory: &Path) -> Result<Option<Mark>, StoreError> {
        self.own(directory, MARK_KEY, |bytes| {
            let (applied, rest) = bytes.split_first_chunk()?;
            let (seed, format) = rest.split_first_chunk()?;
            let seed = u64::from_be_bytes(*seed);
            let seed = match format {
                [] => Seed::of_first_format(seed),
                [MARK_FORMAT] => Seed::new(seed),
                _ => return None,
            };
            Some(Mark { applied: u64::from_be_bytes(*applied), seed })
        })
    }

    fn own<T>(
        &self,
        directory: &Path,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let stored = self.keyspace.get(key).map_err(|error| open_error(directory, error))?;
        let Some(bytes) = stored else { return Ok(None) };
        let value =
            read(&bytes).ok_or_else(|| damaged(directory, CodecError::Key(key.to_vec())))?;
        Ok(Some(value))
    }

    /// Makes the epoch durable.
    pub(super) fn set_epoch(&self, epoch: Epoch) -> Result<(), fjall::Error> {
        self.keyspace.insert(EPOCH_KEY, epoch.0.to_be_bytes())?;
        self.database.persist(PersistMode::SyncAll)
    }

    /// Makes everything durable that was written before, and says so behind it: no batch of the
    /// journal up to this mark is needed any more, nor any of the first format.
    pub(super) fn set_mark(&self, mark: Mark) -> Result<(), fjall::Error> {
        let numbers = [mark.applied, mark.seed.number()].map(u64::to_be_bytes);
        self.keyspace.insert(MARK_KEY, [numbers.as_flattened(), &[MARK_FORMAT]].concat())?;
        self.database.persist(PersistMode::SyncAll)
    }

    /// Writes one batch as a whole, durable when this returns.
    pub(super) fn write(&self, changes: &[Change]) -> Result<(), fjall::Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for change in changes {
            let (key, value) = codec::encode_change(change);
            match value {
                Some(value) => batch.insert(&self.keyspace, key, value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit()
    }

    /// Takes over batches of the journal, all of those up to the mark that are not here yet;
    /// durable when this returns. A crash in between leaves some: taken over again they change
    /// nothing.
    pub(super) fn take_over<'a>(
        &self,
        frames: impl IntoIterator<Item = Frame<'a>>,
        mark: Mark,
    ) -> io::Result<()> {
        // Most records are gone again when their segment is full: the last change counts.
        let mut newest: HashMap<&[u8], Option<&[u8]>> = HashMap::new();
        for frame in frames {
            for change in frame.changes() {
                let (key, value) = change.ok_or(io::ErrorKind::InvalidData)?;
                newest.insert(key, value);
            }
            thread::yield_now();
        }
        let mut newest: Vec<_> = newest.into_iter().collect();
        // Keys that are neighbours find the engine's memory where the processor still has it.
        newest.sort_unstable_by_key(|(key, _)| *key);
        let mut stored = Stored::new(&self.keyspace);
        for changes in newest.chunks(CHANGES_AT_A_TIME) {
            let mut batch = self.database.batch();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.insert(&self.keyspace, *key, *value),
                    // Most have never been here, and to remove one costs as much as to insert it.
                    None if stored.has(key).map_err(io_error)? => {
                        batch.remove(&self.keyspace, *key);
                    }
                    None => {}
                }
            }
            batch.commit().map_err(io_error)?;
            crash_point("mid-checkpoint");
            thread::yield_now();
        }
        self.set_mark(mark).map_err(io_error)
    }

    /// Everything there is.
    pub(super) fn read(&self, directory: &Path) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for stored in self.keyspace.iter() {
            let (key, value) = stored.into_inner().map_err(|error| open_error(directory, error))?;
            if [EPOCH_KEY, MARK_KEY].contains(&key.as_ref()) {
                continue;
            }
            let record =
                codec::decode(&key, &value).map_err(|source| damaged(directory, source))?;
            records.push(record);
        }
        Ok(records)
    }
}

/// What is stored, asked for many keys in their order.
///
/// Most were made and removed since the last checkpoint. Ids grow, so that those lie behind the
/// last key of their kind, where there is no need to look.
struct Stored<'a> {
    keyspace: &'a Keyspace,
    /// A kind of record and its last key.
    last: Option<(u8, Option<UserKey>)>,
}

impl<'a> Stored<'a> {
    fn new(keyspace: &'a Keyspace) -> Self {
        Self { keyspace, last: None }
    }

    fn has(&mut self, key: &[u8]) -> Result<bool, fjall::Error> {
        let Some(&kind) = key.first() else { return Ok(false) };
        let is_behind_all = self.last_of(kind)?.is_none_or(|last| key > last.as_ref());
        Ok(!is_behind_all && self.keyspace.contains_key(key)?)
    }

    fn last_of(&mut self, kind: u8) -> Result<Option<&UserKey>, fjall::Error> {
        if self.last.as_ref().is_none_or(|(of, _)| *of != kind) {
            let last = self.keyspace.prefix([kind]).next_back();
            self.last = Some((kind, last.map(|stored| stored.key()).transpose()?));
        }
        Ok(self.last.as_ref().and_then(|(_, last)| last.as_ref()))
    }
}

pub(super) fn open_error(directory: &Path, error: fjall::Error) -> StoreError {
    StoreError::Open { directory: directory.to_owned(), source: io_error(error) }
}

fn damaged(directory: &Path, source: CodecError) -> StoreError {
    StoreError::Damaged { directory: directory.to_owned(), source }
}

pub(super) fn io_error(error: fjall::Error) -> io::Error {
    if let fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) = error {
        return error;
    }
    io::Error::other(error)
}
