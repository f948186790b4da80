//! The records in an embedded key-value engine, behind the journal.
//!
//! Why this engine: `docs/decisions/0001-embedded-store.md`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use handfast_core::{Change, Epoch, Record};

use super::StoreError;
use super::codec::{self, CodecError};
use super::journal::frame::Frame;
use crate::crash_point::crash_point;

/// Under which numbers of the store's own are kept; no record key begins like one of them.
const EPOCH_KEY: &[u8] = b"epoch";
const APPLIED_KEY: &[u8] = b"journal";

/// Changes written at a time.
const CHANGES_AT_A_TIME: usize = 1_000;

/// The engine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Records {
    database: Database,
    keyspace: Keyspace,
}

impl Records {
    /// Opens or makes them.
    pub(super) fn open(directory: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(directory.join("records")).open()?;
        let keyspace = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { database, keyspace })
    }

    /// The epoch of the last leader.
    pub(super) fn epoch(&self, directory: &Path) -> Result<Epoch, StoreError> {
        Ok(Epoch(self.number(directory, EPOCH_KEY)?.unwrap_or(0)))
    }

    /// The number of the last batch of the journal that is here for certain; `None` before there
    /// was a journal.
    pub(super) fn applied(&self, directory: &Path) -> Result<Option<u64>, StoreError> {
        self.number(directory, APPLIED_KEY)
    }

    fn number(&self, directory: &Path, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let stored = self.keyspace.get(key).map_err(|error| open_error(directory, error))?;
        let number = stored.map(|bytes| bytes.as_ref().try_into().map(u64::from_be_bytes));
        number.transpose().map_err(|_| damaged(directory, CodecError::Key(key.to_vec())))
    }

    /// Makes the epoch durable.
    pub(super) fn set_epoch(&self, epoch: Epoch) -> Result<(), fjall::Error> {
        self.set_number(EPOCH_KEY, epoch.0)
    }

    /// Makes everything durable that was written before, and then says so: no batch of the journal
    /// up to this one is needed any more.
    pub(super) fn set_applied(&self, number: u64) -> Result<(), fjall::Error> {
        self.set_number(APPLIED_KEY, number)
    }

    fn set_number(&self, key: &[u8], number: u64) -> Result<(), fjall::Error> {
        self.keyspace.insert(key, number.to_be_bytes())?;
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

    /// Takes over batches of the journal, all of those up to `last` that are not here yet; durable
    /// when this returns. A crash in between leaves some: taken over again they change nothing.
    pub(super) fn take_over<'a>(
        &self,
        frames: impl IntoIterator<Item = Frame<'a>>,
        last: u64,
    ) -> io::Result<()> {
        // Most records are gone again when their segment is full: the last change counts.
        let mut newest: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        for change in frames.into_iter().flat_map(Frame::changes) {
            let (key, value) = change.ok_or(io::ErrorKind::InvalidData)?;
            newest.insert(key, value);
        }
        let newest: Vec<_> = newest.into_iter().collect();
        for changes in newest.chunks(CHANGES_AT_A_TIME) {
            let mut batch = self.database.batch();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.insert(&self.keyspace, *key, *value),
                    None => batch.remove(&self.keyspace, *key),
                }
            }
            batch.commit().map_err(io_error)?;
            crash_point("mid-checkpoint");
        }
        self.set_applied(last).map_err(io_error)
    }

    /// Everything there is.
    pub(super) fn read(&self, directory: &Path) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for stored in self.keyspace.iter() {
            let (key, value) = stored.into_inner().map_err(|error| open_error(directory, error))?;
            if [EPOCH_KEY, APPLIED_KEY].contains(&key.as_ref()) {
                continue;
            }
            let record =
                codec::decode(&key, &value).map_err(|source| damaged(directory, source))?;
            records.push(record);
        }
        Ok(records)
    }
}

pub(super) fn open_error(directory: &Path, error: fjall::Error) -> StoreError {
    StoreError::Open { directory: directory.to_owned(), source: io_error(error) }
}

fn damaged(directory: &Path, source: CodecError) -> StoreError {
    StoreError::Damaged { directory: directory.to_owned(), source }
}

pub(super) fn io_error(error: fjall::Error) -> io::Error {
    if let fjall::Error::Io(error) = error { error } else { io::Error::other(error) }
}
