//! The parts of the journal as a start finds them. Before any batch is read, each part must exist,
//! be complete, and belong to the directory.

use std::fs;
use std::io;
use std::path::Path;

use super::{Mark, SEGMENTS, TAIL, batches_of, unapplied};
use crate::store::journal::frame::Frame;
use crate::store::witness::{self, WITNESS_BYTES};

/// The files as bytes.
#[derive(Debug)]
pub(in crate::store) struct Parts {
    segments: [Vec<u8>; 2],
    /// The greatest batch number that any part knows as acknowledged.
    acknowledged: u64,
    /// None of the files exists: an operator has removed them all, to go on without them.
    pub(in crate::store) are_removed: bool,
}

/// Why a start cannot go on.
#[derive(Debug)]
pub(in crate::store) enum PartsError {
    /// They are not what was written; with the reason.
    Damaged(String),
    /// They cannot be read.
    Unreadable(io::Error),
}

/// Reads the files. If they are not in use, they may be missing or hold anything.
pub(in crate::store) fn read(directory: &Path, mark: Mark) -> Result<Parts, PartsError> {
    let [first, second] = SEGMENTS.map(|name| read_file(directory, name));
    let (first, second, tail) = (first?, second?, read_file(directory, TAIL)?);
    let are_removed = [&first, &second, &tail].iter().all(|file| file.is_none());
    let files = [(SEGMENTS[0], first), (SEGMENTS[1], second), (TAIL, tail)];
    // That all three are missing is an operator's word. One or two missing are damage.
    if mark.in_use && !are_removed {
        files.iter().try_for_each(|(name, file)| check(name, file.as_deref(), mark))?;
    }
    let known = files.iter().filter_map(|(_, file)| witness::read(file.as_deref()?, mark.seed));
    let acknowledged = known.max().unwrap_or_default();
    let [first, second, _] = files.map(|(_, file)| file.unwrap_or_default());
    Ok(Parts { segments: [first, second], acknowledged, are_removed })
}

fn read_file(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, PartsError> {
    match fs::read(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PartsError::Unreadable(error)),
        Ok(bytes) => Ok(Some(bytes)),
    }
}

fn check(name: &str, file: Option<&[u8]>, mark: Mark) -> Result<(), PartsError> {
    let damaged = |reason| Err(PartsError::Damaged(reason));
    let Some(bytes) = file else { return damaged(format!("{name} is missing")) };
    let batches = if name == TAIL { 0 } else { mark.segment_bytes };
    let (length, expected) = (bytes.len() as u64, WITNESS_BYTES + batches);
    if length != expected {
        return damaged(format!("{name} has {length} bytes instead of {expected}"));
    }
    if witness::read(bytes, mark.seed).is_none() {
        return damaged(format!("{name} was overwritten, or belongs to another directory"));
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
