//! The journal in front of the records. It makes a batch durable.
//!
//! The journal has two segments, files of a fixed size that are filled with zeroes once and then
//! overwritten alternately. Syncing overwritten bytes changes no metadata of the file system; for a
//! growing file that change takes most of the time (`docs/decisions/0007-journal.md`). The batches
//! of a full segment are carried over into the records (`checkpoint`), piece by piece and as late
//! as is possible (`backlog`); then the segment is used again. What a later batch of the journal
//! deletes need not be carried over (`deletions`, `docs/decisions/0043-the-journal-is-long.md`).
//!
//! Batches are numbered consecutively over the life of the directory, and each is written after the
//! one before it is synced. So only the last batch can be incomplete, and that one was not
//! acknowledged. Batches left from an earlier use of a segment have numbers that are already among
//! the records. Module `witness` lets the other parts of the directory know the last number.

mod backlog;
pub(super) mod deletions;
pub(super) mod frame;
mod parts;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use handfast_core::Change;

use super::directory::RECORDS;
use super::disk::{self, DiskFile};
use super::witness::{self, WITNESS_BYTES};
use crate::crash_point::crash_point;
pub(super) use backlog::piece_bytes;
use backlog::{Backlog, Piece};
use deletions::Deletions;
use frame::{Frame, Seed};
pub(super) use parts::{Files, read};

pub(super) const SEGMENTS: [&str; 2] = ["journal-0", "journal-1"];
/// The file that holds the witness beside the records.
pub(super) const TAIL: &str = "records/tail";

/// Bytes that are written at a time when a file is made. The operating system keeps them together
/// in its cache, and each batch looks through the part that it is written to: with 1 MiB a batch of
/// 29 kB took 36 µs of processor time instead of 31.
const BLOCK_BYTES: usize = 64 << 10;

/// Batches after which the witnesses are synced if no pause comes earlier.
const UNSYNCED_MAX: u32 = 1000;

/// The state of the journal as it is stored in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the last batch that is certainly among the records, except for what a later
    /// batch of the journal deletes.
    pub(super) applied: u64,
    /// The seed of the checksums, drawn once per directory.
    pub(super) seed: Seed,
    /// The capacity of a segment, without its witness.
    pub(super) segment_bytes: u64,
    /// Whether the files have been created. Until then they may be missing or hold anything.
    pub(super) in_use: bool,
}

/// The segments, and the position of the next batch.
#[derive(Debug)]
pub(super) struct Journal {
    segments: [Arc<DiskFile>; 2],
    tail: DiskFile,
    active: usize,
    offset: u64,
    next_number: u64,
    mark: Mark,
    backlog: Backlog,
    deletions: Deletions,
    /// The segment of the piece that was taken last.
    taken_of: Option<usize>,
    frame: Vec<u8>,
    /// Batches since the witnesses were synced.
    unsynced: u32,
}

/// A piece of a segment that is to be carried over.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    /// The file of the segment.
    pub(super) segment: Arc<DiskFile>,
    /// Where its batches are in the file.
    pub(super) bytes: Range<u64>,
    /// The mark to store when it has been carried over.
    pub(super) mark: Mark,
    /// The records that the journal deletes in the end, as far as it is durable.
    pub(super) deletions: Deletions,
}

/// The result of appending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// The batch is durable.
    Durable,
    /// The active segment has no room for it.
    Full,
    /// It is larger than a segment.
    TooLarge,
}

/// Returns the part of a segment behind the witness.
fn batches_of(segment: &[u8]) -> &[u8] {
    usize::try_from(WITNESS_BYTES).ok().and_then(|at| segment.get(at..)).unwrap_or_default()
}

/// Returns the batches that are not among the records, in order, or the reason if one is missing or
/// damaged. The segments are passed without their witnesses.
pub(super) fn unapplied<'a>(
    segments: [&'a [u8]; 2],
    applied: u64,
    seed: Seed,
) -> Result<Vec<Frame<'a>>, String> {
    let scanned = segments.map(|segment| frame::scan(segment, seed));
    let frames = scanned.iter().flat_map(|(frames, _)| frames);
    let mut frames: Vec<Frame<'_>> = frames.filter(|it| it.number > applied).copied().collect();
    // Which of the two segments is the older one follows from the numbers alone.
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

/// Creates the files, replacing existing ones. All batches in them must be among the records, and
/// the mark must say that the files are not in use.
pub(super) fn make(directory: &Path, mark: Mark) -> io::Result<()> {
    for name in SEGMENTS {
        make_file(&directory.join(name), mark, mark.segment_bytes)?;
    }
    make_file(&directory.join(TAIL), mark, 0)?;
    // The mark says next that the files are in use, and from then on a missing one is damage.
    disk::sync_directory(&directory.join(RECORDS))?;
    disk::sync_directory(directory)
}

/// Creates a file with a witness, and with `bytes` bytes behind it that are allocated on the disk.
fn make_file(path: &Path, mark: Mark, bytes: u64) -> io::Result<()> {
    let file = DiskFile::create(path)?;
    let block = vec![0; BLOCK_BYTES];
    let (mut offset, end) = (0, WITNESS_BYTES + bytes);
    // The bytes are written and not only reserved: a sync into a reserved range writes metadata
    // each time.
    while offset < end {
        let length = (end - offset).min(block.len() as u64);
        file.write_all_at(&block[..usize::try_from(length).unwrap_or(block.len())], offset)?;
        offset += length;
    }
    // A start refuses a file that does not begin with a witness of its directory.
    witness::write(&file, mark.applied, mark.seed, &mut Vec::new())?;
    file.sync_data()
}

impl Journal {
    /// Opens the files. All batches in them must be among the records, and will be overwritten.
    pub(super) fn open(directory: &Path, mark: Mark) -> io::Result<Self> {
        let open = |name| DiskFile::open(&directory.join(name));
        Ok(Self {
            segments: [Arc::new(open(SEGMENTS[0])?), Arc::new(open(SEGMENTS[1])?)],
            tail: open(TAIL)?,
            active: 0,
            offset: WITNESS_BYTES,
            next_number: mark.applied + 1,
            mark,
            backlog: Backlog::new(mark.segment_bytes),
            deletions: Deletions::default(),
            taken_of: None,
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
        // If the process is killed, or the power fails, before the sync has returned, the frame is
        // there as a whole, in part or not at all, and its caller has no answer.
        segment.write_all_at(&self.frame, self.offset)?;
        segment.sync_data()?;
        self.add(changes, length);
        // The witnesses come before the answer: each part knows of every acknowledged batch
        // (decision 0018).
        self.write_witnesses()?;
        Ok(Appended::Durable)
    }

    /// Adds a batch that is durable at the end of the active segment.
    fn add(&mut self, changes: &[Change], length: u64) {
        let bytes = self.offset..self.offset + length;
        self.backlog.push(self.active, bytes, self.next_number, changes);
        changes.iter().for_each(|change| self.deletions.note(self.active, change));
        self.offset += length;
        self.next_number += 1;
    }

    /// Returns the mark to store when the records take the next batch directly. The journal must be
    /// empty.
    pub(super) fn mark_of_next(&self) -> Mark {
        Mark { applied: self.next_number, ..self.mark }
    }

    /// Skips the number of the next batch, which the records have taken directly and durably.
    pub(super) fn skip(&mut self) -> io::Result<()> {
        self.next_number += 1;
        self.write_witnesses()
    }

    /// Writes the number of the last batch to the other parts. The batch must be durable before: a
    /// power cut may keep the witness and nothing else that was written after the last sync.
    fn write_witnesses(&mut self) -> io::Result<()> {
        let number = self.next_number - 1;
        crash_point("before-witness");
        witness::write(&self.tail, number, self.mark.seed, &mut self.frame)?;
        crash_point("mid-witness");
        let others = [self.active, 1 - self.active];
        // A batch that the records took directly is in neither of the files.
        let skip = usize::from(!self.is_empty());
        for file in &others[skip..] {
            witness::write(&self.segments[*file], number, self.mark.seed, &mut self.frame)?;
        }
        self.unsynced += 1;
        if self.unsynced >= UNSYNCED_MAX { self.sync_witnesses() } else { Ok(()) }
    }

    /// Returns whether a power cut may leave earlier witnesses.
    pub(super) fn has_unsynced_witnesses(&self) -> bool {
        self.unsynced > 0
    }

    /// Makes the witnesses durable.
    pub(super) fn sync_witnesses(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.tail.sync_data()?;
        self.segments.iter().try_for_each(|segment| segment.sync_data())
    }

    /// Returns the segment that is being written.
    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Returns whether the active segment holds no batch.
    pub(super) fn is_empty(&self) -> bool {
        self.offset == WITNESS_BYTES
    }

    /// Returns whether the next batch must wait until a piece is being carried over.
    pub(super) fn is_overdue(&self) -> bool {
        self.backlog.is_overdue()
    }

    /// Takes the next piece if it is time to carry it over.
    pub(super) fn take_due(&mut self) -> Option<Sealed> {
        let room = (WITNESS_BYTES + self.mark.segment_bytes).saturating_sub(self.offset);
        self.backlog.take_due(self.active, room).map(|piece| self.sealed(piece))
    }

    /// Takes the next piece, if there is one in the segment that is used next.
    pub(super) fn take_of_next_segment(&mut self) -> Option<Sealed> {
        self.backlog.take_of(1 - self.active).map(|piece| self.sealed(piece))
    }

    /// Takes the next piece. The batches that were written last are one too.
    pub(super) fn take(&mut self) -> Option<Sealed> {
        self.backlog.close();
        self.backlog.take().map(|piece| self.sealed(piece))
    }

    fn sealed(&mut self, piece: Piece) -> Sealed {
        self.taken_of = Some(piece.segment);
        Sealed {
            segment: self.segments[piece.segment].clone(),
            bytes: piece.bytes,
            mark: Mark { applied: piece.last, ..self.mark },
            deletions: self.deletions.clone(),
        }
    }

    /// Returns whether the piece that was taken last is in the segment that is used next.
    pub(super) fn took_of_next_segment(&self) -> bool {
        self.taken_of == Some(1 - self.active)
    }

    /// Switches to the other segment, all of which must have been carried over.
    pub(super) fn switch(&mut self) {
        self.backlog.close();
        (self.active, self.offset) = (1 - self.active, WITNESS_BYTES);
        self.deletions.forget(self.active);
    }
}
