//! Carries a sealed segment of the journal over into the records, on a thread of its own.
//!
//! One checkpoint runs at a time, since there are two segments and the other one is being written.
//! It reads the segment in the way a start after a crash does. It opens no file: the store opens
//! its files at the start and keeps them open.

use std::io;
use std::thread::{self, JoinHandle};

use super::disk::DiskFile;
use super::journal::{Sealed, frames_of};
use super::records::Records;
use crate::crash_point::crash_point;

/// Bytes of a segment read at a time.
const READ_AT_A_TIME: usize = 256 << 10;

/// The checkpoint that is under way, if one is.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Checkpoint {
    /// Starts carrying over a segment. The caller must have seen `finish` succeed for the segment
    /// before it.
    pub(super) fn begin(&mut self, records: &Records, sealed: Sealed) -> io::Result<()> {
        let records = records.clone();
        let carry_over = move || carry_over(&records, &sealed);
        self.thread = Some(thread::Builder::new().name("checkpoint".to_owned()).spawn(carry_over)?);
        Ok(())
    }

    /// Waits for the running checkpoint, if there is one. Only after `Ok` may the segment be
    /// overwritten.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("the storage engine panicked in a checkpoint"));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }

    /// Reports a failure of the last checkpoint, without waiting for a running one.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let is_over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if is_over { self.finish() } else { Ok(()) }
    }
}

fn carry_over(records: &Records, sealed: &Sealed) -> io::Result<()> {
    crash_point("after-seal");
    let segment = read(&sealed.segment)?;
    let frames = frames_of(&segment, sealed.mark.seed);
    // The segment is overwritten next, and what cannot be read back would be lost without a sign.
    if frames.last().map(|frame| frame.number) != Some(sealed.mark.applied) {
        let name = sealed.segment.path().display();
        return Err(io::Error::other(format!("{name} does not hold what was written to it")));
    }
    records.take_over(frames, sealed.mark)?;
    crash_point("after-checkpoint");
    Ok(())
}

/// Reads the whole file through its open descriptor. Yields between blocks, for the reason given at
/// `records::CHANGES_AT_A_TIME`.
fn read(file: &DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or_default()];
    let mut offset = 0;
    for block in bytes.chunks_mut(READ_AT_A_TIME) {
        file.read_exact_at(block, offset)?;
        offset += block.len() as u64;
        thread::yield_now();
    }
    Ok(bytes)
}
