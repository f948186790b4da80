//! The parts of the journal as a start finds them. Before any batch is read, each part must exist,
//! be complete, and belong to the directory.

use std::fs;
use std::io;
use std::path::Path;

use super::{Mark, SEGMENTS, TAIL, batches_of, unapplied};
use crate::store::journal::frame::Frame;
use crate::store::witness::{self, WITNESS_BYTES};

/// The files as they were read; `None` for one that does not exist.
#[derive(Debug)]
pub(in crate::store) struct Files {
    segments: [Option<Vec<u8>>; 2],
    tail: Option<Vec<u8>>,
}

/// The files as bytes, each of them checked.
#[derive(Debug)]
pub(in crate::store) struct Parts {
    segments: [Vec<u8>; 2],
    /// The greatest batch number that any part knows as acknowledged.
    acknowledged: u64,
    /// None of the files exists: an operator has removed them all, to go on without them.
    pub(in crate::store) are_removed: bool,
}

/// Reads the files, whatever they hold.
pub(in crate::store) fn read(directory: &Path) -> io::Result<Files> {
    let [first, second] = SEGMENTS.map(|name| read_file(directory, name));
    Ok(Files { segments: [first?, second?], tail: read_file(directory, TAIL)? })
}

fn read_file(directory: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

impl Files {
    /// Returns the files as parts of the directory with this mark, or the reason why they are not
    /// what was written. If they are not in use, they may be missing or hold anything.
    pub(in crate::store) fn check(self, mark: Mark) -> Result<Parts, String> {
        let [first, second] = self.segments;
        let files = [(SEGMENTS[0], first), (SEGMENTS[1], second), (TAIL, self.tail)];
        let are_removed = files.iter().all(|(_, file)| file.is_none());
        // That all three are missing is an operator's word. One or two missing are damage.
        if mark.in_use && !are_removed {
            files.iter().try_for_each(|(name, file)| check(name, file.as_deref(), mark))?;
        }
        let known = files.iter().filter_map(|(_, file)| witness::read(file.as_deref()?, mark.seed));
        let acknowledged = known.max().unwrap_or_default();
        let [first, second, _] = files.map(|(_, file)| file.unwrap_or_default());
        Ok(Parts { segments: [first, second], acknowledged, are_removed })
    }
}

fn check(name: &str, file: Option<&[u8]>, mark: Mark) -> Result<(), String> {
    let Some(bytes) = file else { return Err(format!("{name} is missing")) };
    let batches = if name == TAIL { 0 } else { mark.segment_bytes };
    let (length, expected) = (bytes.len() as u64, WITNESS_BYTES + batches);
    if length != expected {
        return Err(format!("{name} has {length} bytes instead of {expected}"));
    }
    if witness::read(bytes, mark.seed).is_none() {
        return Err(format!("{name} was overwritten, or belongs to another directory"));
    }
    Ok(())
}

impl Parts {
    /// Returns the batches that are not among the records, in order, or the reason if one is
    /// missing or damaged, even behind the last one that can be read.
    pub(in crate::store) fn unapplied(&self, mark: Mark) -> Result<Vec<Frame<'_>>, String> {
        let [first, second] = &self.segments;
        let frames = unapplied([batches_of(first), batches_of(second)], mark.applied, mark.seed)?;
        let last = frames.last().map_or(mark.applied, |frame| frame.number);
        if self.acknowledged > last {
            let Self { acknowledged, .. } = self;
            return Err(format!("batch {acknowledged} was acknowledged, and {last} is the last"));
        }
        Ok(frames)
    }
}
