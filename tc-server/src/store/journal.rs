//! The journal before the records: what makes a batch durable.
//!
//! Two files of a fixed size that are written full of zeroes once, then overwritten in turn. A sync
//! of bytes that are there already changes nothing of the file system's own, which is what takes
//! most of the time where a file grows (`docs/decisions/0007-journal.md`). A full segment is
//! sealed, carried over into the records (`checkpoint`), and used again.
//!
//! Batches are numbered through for as long as the directory lives, and one is written after the
//! one before it is synced. So only the last can be there in part, which nobody was told of; and
//! what is left of an earlier use of a segment has numbers that are among the records.

pub(super) mod frame;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use handfast_core::Change;

use super::zeroes::is_blank;
use frame::{Frame, Seed};

const SEGMENTS: [&str; 2] = ["journal-0", "journal-1"];

/// What the records know of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the last batch that is among the records for certain.
    pub(super) applied: u64,
    /// Drawn once for a directory.
    pub(super) seed: Seed,
}

/// The segments and where the next batch goes.
#[derive(Debug)]
pub(super) struct Journal {
    segments: [File; 2],
    paths: [PathBuf; 2],
    segment_bytes: u64,
    active: usize,
    offset: u64,
    next_number: u64,
    seed: Seed,
    frame: Vec<u8>,
}

/// A segment that is full, or to be carried over for another reason.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    /// Where it is.
    pub(super) path: PathBuf,
    /// What the records know when it is carried over.
    pub(super) mark: Mark,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is durable.
    Durable,
    /// The segment has no room for it.
    Full,
    /// No segment has.
    TooLarge,
}

/// The segments as bytes; `Err` with the name of one that cannot be read.
pub(super) fn read(directory: &Path) -> Result<[Vec<u8>; 2], (&'static str, io::Error)> {
    let read = |name| fs::read(directory.join(name)).map_err(|error| (name, error));
    Ok([read(SEGMENTS[0])?, read(SEGMENTS[1])?])
}

/// The name of a segment that has been written to, if one has.
pub(super) fn in_use(directory: &Path) -> io::Result<Option<&'static str>> {
    for name in SEGMENTS {
        if !is_blank(&directory.join(name))? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The batches that are not among the records, in order; `Err` with the reason if one is missing or
/// damaged.
pub(super) fn unapplied(segments: &[Vec<u8>; 2], mark: Mark) -> Result<Vec<Frame<'_>>, String> {
    let Mark { applied, seed } = mark;
    let scanned = segments.each_ref().map(|segment| frame::scan(segment, seed));
    let frames = scanned.iter().flat_map(|(frames, _)| frames);
    let mut frames: Vec<Frame<'_>> = frames.filter(|it| it.number > applied).copied().collect();
    frames.sort_unstable_by_key(|frame| frame.number);
    for (frame, expected) in frames.iter().zip(applied + 1..) {
        if frame.number != expected {
            return Err(format!("batch {expected} is missing before batch {}", frame.number));
        }
    }
    let last = frames.last().map_or(applied, |frame| frame.number);
    let mut read_to_the_end = segments.iter().zip(&scanned);
    if read_to_the_end.any(|(segment, (_, end))| frame::has_later(segment, *end, last, seed)) {
        return Err(format!("batch {} cannot be read, and there are later ones", last + 1));
    }
    Ok(frames)
}

impl Journal {
    /// Makes the segments, or overwrites those that are there: all that is in them must be among
    /// the records.
    pub(super) fn open(directory: &Path, segment_bytes: u64, mark: Mark) -> io::Result<Self> {
        let paths = SEGMENTS.map(|name| directory.join(name));
        let segments = [zeroed(&paths[0], segment_bytes)?, zeroed(&paths[1], segment_bytes)?];
        File::open(directory)?.sync_all()?;
        Ok(Self {
            segments,
            paths,
            segment_bytes,
            active: 0,
            offset: 0,
            next_number: mark.applied + 1,
            seed: mark.seed,
            frame: Vec::new(),
        })
    }

    /// Writes a batch and waits until it is durable.
    pub(super) fn append(&mut self, changes: &[Change]) -> io::Result<Appended> {
        let encoded = frame::encode(changes, self.next_number, self.seed, &mut self.frame);
        let length = self.frame.len() as u64;
        if encoded.is_none() || length > self.segment_bytes {
            return Ok(Appended::TooLarge);
        }
        if self.offset + length > self.segment_bytes {
            return Ok(Appended::Full);
        }
        let segment = &self.segments[self.active];
        segment.write_all_at(&self.frame, self.offset)?;
        segment.sync_data()?;
        self.offset += length;
        self.next_number += 1;
        Ok(Appended::Durable)
    }

    /// Whether there is a batch in the segment at hand.
    pub(super) fn is_empty(&self) -> bool {
        self.offset == 0
    }

    /// Goes on with the other segment, which must have been carried over.
    pub(super) fn switch(&mut self) -> Sealed {
        let mark = Mark { applied: self.next_number - 1, seed: self.seed };
        let sealed = Sealed { path: self.paths[self.active].clone(), mark };
        (self.active, self.offset) = (1 - self.active, 0);
        sealed
    }
}

/// A file of so many bytes that are really on the disk; one that is as large already stays.
fn zeroed(path: &Path, bytes: u64) -> io::Result<File> {
    let options = OpenOptions::new().create(true).truncate(false).write(true).clone();
    let mut file = options.open(path)?;
    if file.metadata()?.len() == bytes {
        return Ok(file);
    }
    file.set_len(0)?;
    let block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(block.len() as u64);
        file.write_all(&block[..usize::try_from(length).unwrap_or(block.len())])?;
        left -= length;
    }
    file.sync_all()?;
    Ok(file)
}
