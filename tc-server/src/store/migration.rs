//! Migrates the records of an earlier version, which used another storage engine.
//!
//! Everything is copied to a file of the current engine, and the old files are removed when it is
//! complete and durable. So a crash at any moment leaves either the old files or the complete copy.
//! The old journal is read here too: it has no witnesses, and its frames may begin with the magic
//! of the first format.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use handfast_core::Epoch;
use hashbrown::HashMap;

use super::directory::RECORDS;
use super::journal::frame::{Frame, Seed};
use super::journal::{self, Mark, SEGMENTS};
use super::records::{self, open_error};
use super::write_failure_marker::SUSPECT;
use super::{StoreError, disk, preallocated};

/// The file that the old engine creates last.
pub(super) const VERSION: &str = "version";
const VERSION_BYTES: u64 = 4;
/// Its other files.
const KEYSPACES: &str = "keyspaces";
const LOCK: &str = "lock";
/// The extension of its logs.
const LOG: &str = "jnl";

/// The keys of the store's own values. No record key begins like one of them.
const EPOCH_KEY: &[u8] = b"epoch";
const MARK_KEY: &[u8] = b"journal";
/// The last byte of a mark of a journal whose frames begin with a magic derived from the seed.
/// Marks of earlier journals end without it.
const MARK_FORMAT: u8 = 2;

/// Returns whether the directory of the records is the old engine's, and complete.
pub(super) fn is_needed(records: &Path) -> io::Result<bool> {
    let version = records.join(VERSION);
    Ok(version.try_exists()? && version.metadata()?.len() >= VERSION_BYTES)
}

/// Creates the file of the records from the old records and the journal beside them.
pub(super) fn migrate(directory: &Path, segment_bytes: u64) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    let damaged = |reason| StoreError::Journal { directory: directory.to_owned(), reason };
    tracing::info!("migrating the records of an earlier version");
    let records_directory = directory.join(RECORDS);
    // The logs are rewritten before the old engine reads them, as in `write_failure_marker`.
    if directory.join(SUSPECT).try_exists().map_err(failed)? {
        rewrite_logs(&records_directory).map_err(failed)?;
    }
    let old = OldRecords::open(&records_directory).map_err(io_error).map_err(failed)?;
    let mark = old.mark().map_err(failed)?;
    let segments = read_segments(directory, mark)?;
    let (applied, seed) = mark.unwrap_or_else(|| (0, Seed::new(rand::random())));
    let segments = segments.each_ref().map(Vec::as_slice);
    let frames = journal::unapplied(segments, applied, seed).map_err(damaged)?;
    let last = frames.last().map_or(applied, |frame| frame.number);
    let seed = seed.of_later_frames();
    let mark = Mark { applied: last, seed, segment_bytes, in_use: false };
    let epoch = old.epoch().map_err(failed)?;
    let content = old.with(frames).map_err(failed)?;
    records::create_file(directory, epoch, mark, content).map_err(failed)?;
    drop(old);
    remove_rest(&records_directory).map_err(failed)
}

/// Reads the segments of the old journal. They hold no batch if the records have no mark.
fn read_segments(directory: &Path, mark: Option<(u64, Seed)>) -> Result<[Vec<u8>; 2], StoreError> {
    let failed = |error| open_error(directory, error);
    let damaged = |reason| StoreError::Journal { directory: directory.to_owned(), reason };
    let mut segments = [Vec::new(), Vec::new()];
    for (name, segment) in SEGMENTS.into_iter().zip(&mut segments) {
        let path = directory.join(name);
        if mark.is_none() {
            if !preallocated::is_blank(&path).map_err(failed)? {
                return Err(damaged(format!("{name} holds batches, and {RECORDS} knows of none")));
            }
            continue;
        }
        if !path.try_exists().map_err(failed)? {
            return Err(damaged(format!("{name} is missing")));
        }
        *segment = fs::read(path).map_err(failed)?;
    }
    Ok(segments)
}

/// Removes the old engine's files, which are of no use beside the file of the records.
pub(super) fn remove_rest(records: &Path) -> io::Result<()> {
    for entry in fs::read_dir(records)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == LOG);
        let is_rest = |name: &OsStr| [KEYSPACES, LOCK, VERSION].iter().any(|rest| name == *rest);
        if is_log || path.file_name().is_some_and(is_rest) {
            disk::remove(&path)?;
        }
    }
    Ok(())
}

/// Rewrites the old engine's logs as they are read, after a failed write of the earlier version.
fn rewrite_logs(records: &Path) -> io::Result<()> {
    for entry in fs::read_dir(records)? {
        let log = entry?.path();
        if log.extension().is_some_and(|extension| extension == LOG) {
            let copy = log.with_extension("copy");
            preallocated::copy(&log, &copy)?;
            disk::rename(&copy, &log)?;
        }
    }
    disk::sync_directory(records)
}

/// The old engine.
struct OldRecords {
    keyspace: Keyspace,
    _database: Database,
}

/// Keys and values as they are stored.
type Content = Vec<(Vec<u8>, Vec<u8>)>;

impl OldRecords {
    fn open(records: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(records).open()?;
        let keyspace = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { keyspace, _database: database })
    }

    fn epoch(&self) -> io::Result<Epoch> {
        let stored = self.keyspace.get(EPOCH_KEY).map_err(io_error)?;
        let Some(bytes) = stored else { return Ok(Epoch(0)) };
        let bytes = bytes.as_ref().try_into().map_err(|_| lacking("epoch"))?;
        Ok(Epoch(u64::from_be_bytes(bytes)))
    }

    /// Returns the number of the last batch carried over and the journal's seed, or `None` for
    /// records from before there was a journal.
    fn mark(&self) -> io::Result<Option<(u64, Seed)>> {
        let stored = self.keyspace.get(MARK_KEY).map_err(io_error)?;
        let Some(bytes) = stored else { return Ok(None) };
        let parts = bytes.split_first_chunk().and_then(|(applied, rest)| {
            let (seed, format) = rest.split_first_chunk()?;
            Some((u64::from_be_bytes(*applied), u64::from_be_bytes(*seed), format))
        });
        match parts {
            Some((applied, seed, [])) => Ok(Some((applied, Seed::of_first_format(seed)))),
            Some((applied, seed, [MARK_FORMAT])) => Ok(Some((applied, Seed::new(seed)))),
            Some(_) | None => Err(lacking("mark")),
        }
    }

    /// Returns all records after applying the batches that are only in the journal.
    fn with(&self, frames: Vec<Frame<'_>>) -> io::Result<Content> {
        let mut newest: HashMap<&[u8], Option<&[u8]>> = HashMap::new();
        for frame in frames {
            for change in frame.changes() {
                let (key, value) = change.ok_or(io::ErrorKind::InvalidData)?;
                newest.insert(key, value);
            }
        }
        let mut content = Content::new();
        for stored in self.keyspace.iter() {
            let (key, value) = stored.into_inner().map_err(io_error)?;
            if ![EPOCH_KEY, MARK_KEY].contains(&key.as_ref()) && !newest.contains_key(&key[..]) {
                content.push((key.to_vec(), value.to_vec()));
            }
        }
        let put = newest.into_iter().filter_map(|(key, value)| Some((key, value?)));
        content.extend(put.map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok(content)
    }
}

fn lacking(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its {what} is of a later version"))
}

fn io_error(error: fjall::Error) -> io::Error {
    if let fjall::Error::Io(error) = error { error } else { io::Error::other(error) }
}
