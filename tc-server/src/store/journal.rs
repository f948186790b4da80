//! The journal before the records: what makes a batch durable.
//!
//! Two files of a fixed size that are written full of zeroes once, then overwritten in turn. A sync
//! of bytes that are there already changes nothing of the file system's own, which is what takes
//! most of the time where a file grows (`docs/decisions/0007-journal.md`). A full segment is
//! sealed, carried over into the records (`checkpoint`), and used again.
//!
//! Batches are numbered through for as long as the directory lives, and one is written after the
//! one before it is synced. So only the last can be there in part, which nobody was told of; and
//! what is left of an earlier use of a segment has numbers that are among the records. How the
//! other parts of the directory know how far it goes: `witness`.

pub(super) mod frame;
mod parts;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;

use handfast_core::Change;

use super::disk::{self, DiskFile};
use super::records::RECORDS;
use super::witness::{self, WITNESS_BYTES};
use crate::crash_point::crash_point;
use frame::{Frame, Seed};
pub(super) use parts::{PartsError, read};

pub(super) const SEGMENTS: [&str; 2] = ["journal-0", "journal-1"];
/// The witness beside the records.
pub(super) const TAIL: &str = "records/tail";

/// Batches after which the witnesses are synced, if there is no pause before.
const UNSYNCED_MAX: u32 = 1000;

/// What the records know of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the last batch that is among the records for certain.
    pub(super) applied: u64,
    /// Drawn once for a directory.
    pub(super) seed: Seed,
    /// How much a segment holds, its witness aside.
    pub(super) segment_bytes: u64,
    /// Not before the files are made: until then they may be missing, or hold anything.
    pub(super) in_use: bool,
}

/// The segments and where the next batch goes.
#[derive(Debug)]
pub(super) struct Journal {
    segments: [Arc<DiskFile>; 2],
    tail: DiskFile,
    active: usize,
    offset: u64,
    next_number: u64,
    mark: Mark,
    frame: Vec<u8>,
    /// Batches since the witnesses were synced.
    unsynced: u32,
}

/// A segment that is full, or to be carried over for another reason.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    /// What it is in.
    pub(super) segment: Arc<DiskFile>,
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

/// The batches of a segment, in order.
pub(super) fn frames_of(segment: &[u8], seed: Seed) -> Vec<Frame<'_>> {
    frame::scan(batches_of(segment), seed).0
}

/// What is behind the witness.
fn batches_of(segment: &[u8]) -> &[u8] {
    usize::try_from(WITNESS_BYTES).ok().and_then(|at| segment.get(at..)).unwrap_or_default()
}

/// The batches that are not among the records, in order; `Err` with the reason if one is missing or
/// damaged. What the segments hold is given without their witnesses.
pub(super) fn unapplied<'a>(
    segments: [&'a [u8]; 2],
    applied: u64,
    seed: Seed,
) -> Result<Vec<Frame<'a>>, String> {
    let scanned = segments.map(|segment| frame::scan(segment, seed));
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

/// Makes the files anew: all that is in them must be among the records, and the mark must say that
/// they are not in use.
pub(super) fn make(directory: &Path, mark: Mark) -> io::Result<()> {
    for name in SEGMENTS {
        make_file(&directory.join(name), mark, mark.segment_bytes)?;
    }
    make_file(&directory.join(TAIL), mark, 0)?;
    disk::sync_directory(&directory.join(RECORDS))?;
    disk::sync_directory(directory)
}

/// A witness, and so many bytes behind it that are really on the disk.
fn make_file(path: &Path, mark: Mark, bytes: u64) -> io::Result<()> {
    let file = DiskFile::create(path)?;
    let block = vec![0; 1 << 20];
    let (mut offset, end) = (0, WITNESS_BYTES + bytes);
    while offset < end {
        let length = (end - offset).min(block.len() as u64);
        file.write_all_at(&block[..usize::try_from(length).unwrap_or(block.len())], offset)?;
        offset += length;
    }
    witness::write(&file, mark.applied, mark.seed, &mut Vec::new())?;
    file.sync_data()
}

impl Journal {
    /// Opens files in use: all that is in them must be among the records, and is overwritten.
    pub(super) fn open(directory: &Path, mark: Mark) -> io::Result<Self> {
        let open = |name| DiskFile::open(&directory.join(name));
        Ok(Self {
            segments: [Arc::new(open(SEGMENTS[0])?), Arc::new(open(SEGMENTS[1])?)],
            tail: open(TAIL)?,
            active: 0,
            offset: WITNESS_BYTES,
            next_number: mark.applied + 1,
            mark,
            frame: Vec::new(),
            unsynced: 0,
        })
    }

    /// Writes a batch and waits until it is durable.
    pub(super) fn append(&mut self, changes: &[Change]) -> io::Result<Appended> {
        let encoded = frame::encode(changes, self.next_number, self.mark.seed, &mut self.frame);
        let length = self.frame.len() as u64;
        if encoded.is_none() || length > self.mark.segment_bytes {
            return Ok(Appended::TooLarge);
        }
        if self.offset + length > WITNESS_BYTES + self.mark.segment_bytes {
            return Ok(Appended::Full);
        }
        let segment = &self.segments[self.active];
        segment.write_all_at(&self.frame, self.offset)?;
        segment.sync_data()?;
        self.offset += length;
        self.next_number += 1;
        self.bear_witness()?;
        Ok(Appended::Durable)
    }

    /// What the records are to know when they take over a batch by themselves. The journal must be
    /// empty.
    pub(super) fn mark_of_next(&self) -> Mark {
        Mark { applied: self.next_number, ..self.mark }
    }

    /// The records have taken over the next batch, and it is durable there.
    pub(super) fn skip(&mut self) -> io::Result<()> {
        self.next_number += 1;
        self.bear_witness()
    }

    /// Has the other parts know the number of the last batch, which must be durable: a power cut
    /// may keep this and nothing else that was written after a sync.
    fn bear_witness(&mut self) -> io::Result<()> {
        let number = self.next_number - 1;
        crash_point("before-witness");
        witness::write(&self.tail, number, self.mark.seed, &mut self.frame)?;
        crash_point("mid-witness");
        let others = [self.active, 1 - self.active];
        // A batch that the records took over by themselves is in neither of the files.
        let skip = usize::from(!self.is_empty());
        for file in &others[skip..] {
            witness::write(&self.segments[*file], number, self.mark.seed, &mut self.frame)?;
        }
        self.unsynced += 1;
        if self.unsynced >= UNSYNCED_MAX { self.sync_witnesses() } else { Ok(()) }
    }

    /// Whether a power cut may leave earlier witnesses.
    pub(super) fn has_unsynced_witnesses(&self) -> bool {
        self.unsynced > 0
    }

    /// Makes durable what the parts know of each other.
    pub(super) fn sync_witnesses(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.tail.sync_data()?;
        self.segments.iter().try_for_each(|segment| segment.sync_data())
    }

    /// Whether there is a batch in the segment at hand.
    pub(super) fn is_empty(&self) -> bool {
        self.offset == WITNESS_BYTES
    }

    /// Goes on with the other segment, which must have been carried over.
    pub(super) fn switch(&mut self) -> Sealed {
        let mark = Mark { applied: self.next_number - 1, ..self.mark };
        let sealed = Sealed { segment: self.segments[self.active].clone(), mark };
        (self.active, self.offset) = (1 - self.active, WITNESS_BYTES);
        sealed
    }
}
