//! Carries sealed segments of the journal over into the records, on a thread of its own.
//!
//! One at a time: there are two segments, and the other one is being written. It reads the segment
//! as a start after a crash does.

use std::fs;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use super::journal::{Sealed, frame};
use super::records::Records;
use crate::crash_point::crash_point;

/// The thread, and whether it is at work.
#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` only while dropping.
    sealed: Option<Sender<Sealed>>,
    done: Receiver<io::Result<()>>,
    is_at_work: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread.
    pub(super) fn start(records: Records) -> io::Result<Self> {
        let (sealed, segments) = mpsc::channel::<Sealed>();
        let (tell, done) = mpsc::channel();
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
            for sealed in segments {
                // Whoever waited may have gone.
                drop(tell.send(carry_over(&records, &sealed)));
            }
        })?;
        Ok(Self { sealed: Some(sealed), done, is_at_work: false, thread: Some(thread) })
    }

    /// Has a segment carried over; the one before it must be done.
    pub(super) fn begin(&mut self, sealed: Sealed) {
        // A thread that has ended says so when it is asked for the result.
        self.is_at_work = self.sealed.as_ref().is_some_and(|to| to.send(sealed).is_ok());
    }

    /// Waits until the segment is carried over, if one is being.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if !self.is_at_work {
            return Ok(());
        }
        let done = self.done.recv().unwrap_or_else(|RecvError| Err(ended()));
        self.is_at_work = false;
        done
    }

    /// Whether something has gone wrong, without waiting.
    pub(super) fn look(&mut self) -> io::Result<()> {
        if !self.is_at_work {
            return Ok(());
        }
        match self.done.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => Err(ended()),
            Ok(done) => {
                self.is_at_work = false;
                done
            }
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.sealed = None;
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the checkpoint's thread panicked");
        }
    }
}

fn carry_over(records: &Records, sealed: &Sealed) -> io::Result<()> {
    crash_point("after-seal");
    let segment = fs::read(&sealed.path)?;
    let (frames, _) = frame::scan(&segment);
    if frames.last().map(|frame| frame.number) != Some(sealed.last) {
        let name = sealed.path.display();
        return Err(io::Error::other(format!("{name} does not hold what was written to it")));
    }
    records.take_over(frames, sealed.last)?;
    crash_point("after-checkpoint");
    Ok(())
}

fn ended() -> io::Error {
    io::Error::other("the checkpoint's thread has ended")
}
