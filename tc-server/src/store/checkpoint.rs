//! Carries a piece of the journal over into the records, on a thread of its own.
//!
//! One checkpoint runs at a time. It reads the piece in the way a start after a crash does. It
//! opens no file: the store opens its files at the start and keeps them open.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use super::journal::{Sealed, frame};
use super::records::Records;
use crate::crash_point::crash_point;

/// Bytes of a piece read at a time.
const READ_AT_A_TIME: usize = 256 << 10;

/// The checkpoint that is under way, if one is.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    worker: Option<Worker>,
    is_running: bool,
}

/// The thread of the checkpoints. It ends when it is dropped, and has let go of the records before
/// it says that a checkpoint is over.
///
/// It stays from one checkpoint to the next with the memory that it has used, since memory that is
/// fresh has to be zeroed.
#[derive(Debug)]
struct Worker {
    pieces: Sender<(Records, Sealed)>,
    results: Receiver<io::Result<()>>,
}

impl Checkpoint {
    /// Starts carrying over a piece. The caller must have seen `finish` succeed for the piece
    /// before it.
    pub(super) fn begin(&mut self, records: &Records, sealed: Sealed) -> io::Result<()> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start()?,
        };
        let sent = worker.pieces.send((records.clone(), sealed));
        self.worker = Some(worker);
        self.is_running = true;
        sent.map_err(|_| panicked())
    }

    /// Waits for the running checkpoint, if there is one. Only after `Ok` may the piece be
    /// overwritten.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(worker) = self.worker.as_ref().filter(|_| self.is_running) else { return Ok(()) };
        let result = worker.results.recv();
        self.is_running = false;
        result.unwrap_or_else(|_| Err(panicked()))
    }

    /// Reports a failure of the last checkpoint, without waiting for a running one.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let Some(worker) = self.worker.as_ref().filter(|_| self.is_running) else { return Ok(()) };
        let result = match worker.results.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => Err(panicked()),
        };
        self.is_running = false;
        result
    }

    /// Returns whether a checkpoint is under way, or its result was not asked for.
    pub(super) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Returns whether there is memory to give back, now or when the running checkpoint is over.
    pub(super) fn holds_memory(&self) -> bool {
        self.worker.is_some()
    }

    /// Gives memory back, unless a checkpoint is running. As [`check`](Self::check), it reports a
    /// failure of the last one.
    pub(super) fn give_back_memory(&mut self) -> io::Result<()> {
        self.check()?;
        if !self.is_running {
            self.worker = None;
        }
        Ok(())
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (pieces, sealed) = channel::<(Records, Sealed)>();
        let (done, results) = channel();
        let work = move || {
            let mut buffer = Vec::new();
            for (records, sealed) in sealed {
                let result = carry_over(&records, &sealed, &mut buffer);
                drop((records, sealed));
                // A store that is dropped in a panic asks no more.
                drop(done.send(result));
            }
        };
        thread::Builder::new().name("checkpoint".to_owned()).spawn(work)?;
        Ok(Self { pieces, results })
    }
}

fn panicked() -> io::Error {
    io::Error::other("the storage engine panicked in a checkpoint")
}

fn carry_over(records: &Records, sealed: &Sealed, buffer: &mut Vec<u8>) -> io::Result<()> {
    crash_point("after-seal");
    read(sealed, buffer)?;
    let (frames, end) = frame::scan(buffer, sealed.mark.seed);
    let last = frames.last().map(|frame| frame.number);
    // The piece is overwritten later, and what cannot be read back would be lost without a sign.
    if end != buffer.len() || last != Some(sealed.mark.applied) {
        let name = sealed.segment.path().display();
        return Err(io::Error::other(format!("{name} does not hold what was written to it")));
    }
    records.take_over(frames, &sealed.deletions, sealed.mark)?;
    crash_point("after-checkpoint");
    Ok(())
}

/// Reads the piece through the open descriptor of its file. Yields between blocks, for the reason
/// given at `records::CHANGES_AT_A_TIME`.
fn read(sealed: &Sealed, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut offset = sealed.bytes.start;
    bytes.resize(usize::try_from(sealed.bytes.end - offset).unwrap_or_default(), 0);
    for block in bytes.chunks_mut(READ_AT_A_TIME) {
        sealed.segment.read_exact_at(block, offset)?;
        offset += block.len() as u64;
        thread::yield_now();
    }
    Ok(())
}
