//! Takes over what an earlier program left, whose records were in the directory of another engine.
//!
//! Everything is copied to a new file, and the old ones are removed when that is whole and durable.
//! So a crash at any moment leaves the one or the other. The journal of then is read here too: it
//! has no witnesses, and its frames may begin as all did once.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use handfast_core::Epoch;
use hashbrown::HashMap;

use super::journal::frame::{Frame, Seed};
use super::journal::{self, Mark, SEGMENTS};
use super::records::{RECORDS, open_error};
use super::suspect::SUSPECT;
use super::{StoreError, disk, making, zeroes};

/// The file of the old engine that it makes last.
pub(super) const VERSION: &str = "version";
const VERSION_BYTES: u64 = 4;
/// What else it has.
const KEYSPACES: &str = "keyspaces";
const LOCK: &str = "lock";
/// How the names of its logs end.
const LOG: &str = "jnl";

/// Where the store kept what is its own; no record key begins like one of them.
const EPOCH_KEY: &[u8] = b"epoch";
const MARK_KEY: &[u8] = b"journal";
/// What ends a mark of a journal whose frames begin with what follows from its seed; nothing ends
/// those from before.
const MARK_FORMAT: u8 = 2;

/// Whether the directory of the records is of the old engine, and whole.
pub(super) fn is_needed(records: &Path) -> io::Result<bool> {
    let version = records.join(VERSION);
    Ok(version.try_exists()? && version.metadata()?.len() >= VERSION_BYTES)
}

/// Makes the records anew from the old ones and the journal beside them.
pub(super) fn migrate(directory: &Path, segment_bytes: u64) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    let damaged = |reason| StoreError::Journal { directory: directory.to_owned(), reason };
    tracing::info!("taking over the records of an earlier program");
    let records = directory.join(RECORDS);
    if directory.join(SUSPECT).try_exists().map_err(failed)? {
        write_logs_anew(&records).map_err(failed)?;
    }
    let old = OldRecords::open(&records).map_err(io_error).map_err(failed)?;
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
    making::make(directory, epoch, mark, content).map_err(failed)?;
    drop(old);
    remove_rest(&records).map_err(failed)
}

/// The files of the journal of then. Where the records know of no batch, none has been in them.
fn read_segments(directory: &Path, mark: Option<(u64, Seed)>) -> Result<[Vec<u8>; 2], StoreError> {
    let failed = |error| open_error(directory, error);
    let damaged = |reason| StoreError::Journal { directory: directory.to_owned(), reason };
    let mut segments = [Vec::new(), Vec::new()];
    for (name, segment) in SEGMENTS.into_iter().zip(&mut segments) {
        let path = directory.join(name);
        if mark.is_none() {
            if !zeroes::is_blank(&path).map_err(failed)? {
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

/// Removes what the old engine left, which is of no use beside the new file.
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

/// After a failed write of an earlier program: its engine's logs, as they are read, on the disk.
fn write_logs_anew(records: &Path) -> io::Result<()> {
    for entry in fs::read_dir(records)? {
        let log = entry?.path();
        if log.extension().is_some_and(|extension| extension == LOG) {
            let copy = log.with_extension("copy");
            zeroes::copy(&log, &copy)?;
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

    /// How far the journal is carried over, and its seed; `None` before there was one.
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

    /// All records, as the batches left them that are in the journal alone.
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
