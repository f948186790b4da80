//! Records on one machine: a journal that makes batches durable, and an embedded key-value engine
//! that holds the records.
//!
//! ```text
//! batch ─▶ journal (one write, one sync) ─▶ durable
//!             └─ a full segment, late ─▶ checkpoint ─▶ records ─▶ the segment is used again
//! ```
//!
//! The journal is so long that most globals are forgotten before their batches are carried over. A
//! start carries over the batches that the journal has and the records lack. All writes run on the
//! store's own threads, so that no asynchronous task waits for the disk. Why there are both a
//! journal and records: `docs/decisions/0007-journal.md`; why the journal is long:
//! `docs/decisions/0043-the-journal-is-long.md`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use handfast_core::{Change, Epoch, Record};
use tokio::sync::oneshot;

use super::checkpoint::Checkpoint;
use super::directory::DirectoryLock;
use super::journal::deletions::Deletions;
use super::journal::frame::Frame;
use super::journal::{self, Appended, Files, Journal, Mark, Sealed};
use super::records::{self, Records, open_error};
use super::{
    RecordFeed, RecordSnapshot, RecordSource, Store, StoreError, initialize, write_failure_marker,
};
use crate::crash_point::crash_point;

/// The default size of a segment of the journal, in bytes. A finished global is remembered until
/// 100,000 later ones have finished, which takes some 90 MB of batches of simple globals.
pub const SEGMENT_BYTES: u64 = 96 << 20;

/// The pause without a batch after which the witnesses of the last batch number are synced, and
/// memory of the last checkpoint is given back.
const PAUSE: Duration = Duration::from_millis(100);

/// How long dropping the store waits for its writer, which may be carrying over a segment. A caller
/// that cannot wait drops the store on another thread.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The store of one machine.
pub struct EmbeddedStore {
    directory: PathBuf,
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<thread::JoinHandle<()>>,
    /// Disconnected when the writer has released the directory. Locked only while dropping.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// A request to the writer, with the channel for the answer.
enum Job {
    Lead { at_least: Epoch, done: oneshot::Sender<Result<(Epoch, Vec<Record>), StoreError>> },
    LeadAndFeed { at_least: Epoch, done: oneshot::Sender<Result<(Epoch, RecordFeed), StoreError>> },
    Commit { epoch: Epoch, batch: Vec<Change>, done: oneshot::Sender<Result<(), StoreError>> },
    Snapshot { done: oneshot::Sender<Result<RecordSnapshot, StoreError>> },
}

impl EmbeddedStore {
    /// Locks the directory and recovers its content. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// When another process has the directory, or it cannot be read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        Self::open_with(directory, SEGMENT_BYTES)
    }

    /// Like [`EmbeddedStore::open`], with the size of the journal's two segments. From small ones
    /// records are carried over that are soon deleted. Large ones take disk space, and a start
    /// takes longer.
    ///
    /// # Errors
    ///
    /// As [`EmbeddedStore::open`].
    pub fn open_with(directory: &Path, segment_bytes: u64) -> Result<Self, StoreError> {
        let lock = DirectoryLock::take(directory)?;
        let writer = Writer::open(lock, segment_bytes)?;
        let (jobs, asked) = mpsc::channel();
        let (running, ended) = mpsc::channel();
        let spawned = thread::Builder::new().name("store".to_owned()).spawn(move || {
            // Locals are dropped in reverse order, also in a panic: the sender is dropped last, so
            // its end shows that the writer has released the directory.
            let _running: mpsc::Sender<()> = running;
            let mut writer = writer;
            while let Some(job) = writer.next_job(&asked) {
                writer.run(job);
            }
        });
        let failed = |source| StoreError::Open { directory: directory.to_owned(), source };
        let writer = Some(spawned.map_err(failed)?);
        let ended = Mutex::new(ended);
        Ok(Self { directory: directory.to_owned(), jobs: Some(jobs), writer, ended })
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job,
    ) -> Result<T, StoreError> {
        let (done, answer) = oneshot::channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job(done)).is_ok());
        let answered = if sent { answer.await.ok() } else { None };
        answered.unwrap_or_else(|| {
            let source = io::Error::other("the store's thread has ended");
            Err(StoreError::Write { directory: self.directory.clone(), source })
        })
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Store for EmbeddedStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.ask(move |done| Job::Lead { at_least, done }).boxed()
    }

    fn lead_and_feed(
        &self,
        at_least: Epoch,
    ) -> BoxFuture<'_, Result<(Epoch, RecordFeed), StoreError>> {
        self.ask(move |done| Job::LeadAndFeed { at_least, done }).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(move |done| Job::Commit { epoch, batch, done }).boxed()
    }
}

impl RecordSource for EmbeddedStore {
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>> {
        self.ask(|done| Job::Snapshot { done }).boxed()
    }
}

impl Drop for EmbeddedStore {
    /// Waits for the writer, so that the directory is free when this returns. If the storage engine
    /// panicked, as it may on a full disk, the caller has already been answered that the write
    /// failed. A writer that hangs is abandoned and keeps the directory.
    fn drop(&mut self) {
        // Without a sender the writer ends once it has done what it was asked for.
        self.jobs = None;
        let ended = self.ended.get_mut().expect("only drop locks it");
        // `join` has no time limit, and a disk may hang forever.
        if ended.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(directory = %self.directory.display(), "the disk hangs: not waiting");
            return;
        }
        if let Some(Err(_)) = self.writer.take().map(thread::JoinHandle::join) {
            tracing::error!(directory = %self.directory.display(), "the store's thread panicked");
        }
    }
}

/// The state of the store's thread. The lock is the last field: fields are dropped in order, and
/// the directory must become free only when the other fields are closed.
struct Writer {
    journal: Journal,
    checkpoint: Checkpoint,
    records: Records,
    epoch: Epoch,
    /// Set by a failed write: the effect of any further write would be unknown.
    failed: bool,
    lock: DirectoryLock,
}

impl Writer {
    fn open(lock: DirectoryLock, segment_bytes: u64) -> Result<Self, StoreError> {
        let directory = lock.directory().to_owned();
        let opened = Self::open_locked(lock, segment_bytes);
        // A start writes too: it carries over the journal, and may create files.
        if let Err(StoreError::Open { .. }) = &opened {
            write_failure_marker::set(&directory);
        }
        opened
    }

    fn open_locked(lock: DirectoryLock, segment_bytes: u64) -> Result<Self, StoreError> {
        let directory = lock.directory();
        let failed = |error| open_error(directory, error);
        initialize::create_or_migrate(directory, segment_bytes)?;
        // The repair comes before the records are read: after a failed write, what is read need not
        // be on the disk.
        write_failure_marker::repair(directory).map_err(failed)?;
        let (records, journal) = open_parts(directory);
        let records = records.map_err(failed)?;
        let mark = recover(directory, &records, journal.map_err(failed)?, segment_bytes)?;
        let epoch = records.epoch().map_err(failed)?;
        let journal = Journal::open(directory, mark).map_err(failed)?;
        Ok(Self { journal, checkpoint: Checkpoint::default(), records, epoch, failed: false, lock })
    }

    /// Waits for the next job. Returns `None` when the store is being dropped.
    fn next_job(&mut self, asked: &mpsc::Receiver<Job>) -> Option<Job> {
        // In a pause this delays no batch.
        while self.is_to_clear_up() {
            match asked.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => self.clear_up(),
                asked => return asked.ok(),
            }
        }
        asked.recv().ok()
    }

    fn is_to_clear_up(&self) -> bool {
        !self.failed && (self.journal.has_unsynced_witnesses() || self.checkpoint.holds_memory())
    }

    fn clear_up(&mut self) {
        if self.journal.has_unsynced_witnesses() {
            self.sync_witnesses();
        } else if let Err(error) = self.attempt(|writer| writer.checkpoint.give_back_memory()) {
            tracing::error!(%error, "the last checkpoint failed");
        }
    }

    /// Syncs the witnesses. A failure is reported to the next batch.
    fn sync_witnesses(&mut self) {
        if let Err(error) = self.attempt(|writer| writer.journal.sync_witnesses()) {
            tracing::error!(%error, "the last batch number is not synced to all parts");
        }
    }

    fn run(&mut self, job: Job) {
        // The receiver may be gone: a server that is dropped does not wait for its store.
        match job {
            Job::Lead { at_least, done } => {
                drop(done.send(self.lead(at_least, |records, place| records.read(place))));
            }
            Job::LeadAndFeed { at_least, done } => {
                drop(done.send(self.lead(at_least, |records, place| records.feed(place))));
            }
            Job::Commit { epoch, batch, done } => drop(done.send(self.commit(epoch, &batch))),
            Job::Snapshot { done } => drop(done.send(self.snapshot())),
        }
    }

    fn lead<Content>(
        &mut self,
        at_least: Epoch,
        read: impl FnOnce(&Records, &Path) -> Result<Content, StoreError>,
    ) -> Result<(Epoch, Content), StoreError> {
        let epoch = self.epoch.next().max(at_least);
        self.attempt(|writer| {
            // The records are read from the engine alone, below.
            writer.carry_over()?;
            // The epoch takes a number of its own: records that are put back from before it are
            // behind the other parts, and are noticed (decision 0018).
            writer.records.set_epoch(epoch, writer.journal.mark_of_next())?;
            writer.journal.skip()
        })?;
        self.epoch = epoch;
        Ok((epoch, read(&self.records, self.lock.directory())?))
    }

    /// Begins to read the records, after the journal was carried over into them. A batch that comes
    /// meanwhile waits for as long as that takes.
    fn snapshot(&mut self) -> Result<RecordSnapshot, StoreError> {
        self.attempt(Self::carry_over)?;
        self.records.snapshot(self.lock.directory())
    }

    fn commit(&mut self, epoch: Epoch, batch: &[Change]) -> Result<(), StoreError> {
        if epoch != self.epoch {
            return Err(StoreError::LostLeadership);
        }
        crash_point("before-write");
        let written = self.attempt(|writer| writer.write(batch));
        crash_point("after-write");
        written
    }

    /// Runs a write. After one failure every later write is refused.
    fn attempt(
        &mut self,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let written = if self.failed {
            Err(io::Error::other("an earlier write failed"))
        } else {
            write(self)
        };
        self.failed = written.is_err();
        written.map_err(|source| {
            let directory = self.lock.directory().to_owned();
            write_failure_marker::set(&directory);
            StoreError::Write { directory, source }
        })
    }

    /// Makes a batch durable, all of it or nothing.
    fn write(&mut self, batch: &[Change]) -> io::Result<()> {
        // A checkpoint that has failed ends the store with the next batch, not only when its
        // segment is needed again.
        self.checkpoint.check()?;
        self.carry_over_due()?;
        loop {
            match self.journal.append(batch)? {
                Appended::Durable => return Ok(()),
                Appended::Full => self.switch()?,
                Appended::TooLarge => {
                    // The journal is carried over first, so that the order of batches is kept.
                    self.carry_over()?;
                    self.records.write(batch, self.journal.mark_of_next())?;
                    return self.journal.skip();
                }
            }
        }
    }

    /// Begins to carry over a piece of the journal, if one is due.
    fn carry_over_due(&mut self) -> io::Result<()> {
        if self.checkpoint.is_running() && !self.journal.is_overdue() {
            return Ok(());
        }
        self.journal.take_due().map_or(Ok(()), |sealed| self.begin_checkpoint(sealed))
    }

    fn begin_checkpoint(&mut self, sealed: Sealed) -> io::Result<()> {
        self.checkpoint.finish()?;
        self.checkpoint.begin(&self.records, sealed)
    }

    /// Switches to the other segment as soon as all of it has been carried over. So the batches
    /// that are not yet among the records never take more than two segments (BOUNDED).
    fn switch(&mut self) -> io::Result<()> {
        while let Some(sealed) = self.journal.take_of_next_segment() {
            self.begin_checkpoint(sealed)?;
        }
        if self.journal.took_of_next_segment() {
            self.checkpoint.finish()?;
        }
        self.journal.switch();
        Ok(())
    }

    /// Waits until all batches of the journal are among the records.
    fn carry_over(&mut self) -> io::Result<()> {
        while let Some(sealed) = self.journal.take() {
            self.begin_checkpoint(sealed)?;
        }
        self.checkpoint.finish()?;
        if !self.journal.is_empty() {
            self.journal.switch();
        }
        Ok(())
    }
}

impl Drop for Writer {
    /// Waits for the checkpoint, so that nothing is written after the directory is released.
    /// Batches that could not be carried over are still in the journal.
    fn drop(&mut self) {
        let finished = self.checkpoint.finish();
        if let Err(error) = &finished {
            tracing::error!(%error, "the last checkpoint failed");
        }
        // The storage engine may panic where a write fails, as on a full disk.
        if finished.is_err() || thread::panicking() {
            write_failure_marker::set(self.lock.directory());
        } else if !self.failed && self.journal.has_unsynced_witnesses() {
            self.sync_witnesses();
        }
    }
}

/// Opens the records, which reads all of them, and reads the journal meanwhile.
fn open_parts(directory: &Path) -> (io::Result<Records>, io::Result<Files>) {
    thread::scope(|scope| {
        let reading = thread::Builder::new().name("journal".to_owned());
        let journal = reading.spawn_scoped(scope, || journal::read(directory));
        let records = Records::open(&records::file(directory));
        let journal = journal.and_then(|journal| {
            journal.join().unwrap_or_else(|_| Err(io::Error::other("reading the journal panicked")))
        });
        (records, journal)
    })
}

/// Carries over the batches that an earlier process left in the journal, and recreates the
/// journal's files if they do not have the size asked for.
fn recover(
    directory: &Path,
    records: &Records,
    journal: Files,
    segment_bytes: u64,
) -> Result<Mark, StoreError> {
    let failed = |error| open_error(directory, error);
    let damaged = |reason| StoreError::Journal { directory: directory.to_owned(), reason };
    let mark = records.mark().map_err(failed)?;
    let parts = journal.check(mark).map_err(damaged)?;
    let frames = parts.unapplied(mark).map_err(damaged)?;
    let applied = frames.last().map_or(mark.applied, |last| last.number);
    if mark.in_use && parts.are_removed {
        let branches = records.remove_branches_without_global(mark).map_err(failed)?;
        tracing::warn!(branches, "the journal was removed: going on from the records alone");
    }
    // Files that are made again below are not in use from here on: if this process is killed before
    // all are there, the next start makes them, and takes none of them for damaged.
    let in_use = mark.in_use && !parts.are_removed && mark.segment_bytes == segment_bytes;
    let mut recovered = Mark { applied, segment_bytes, in_use, ..mark };
    // This is durable before `make` below overwrites the files.
    if recovered != mark {
        tracing::info!(batches = frames.len(), "carrying over the journal");
        carry_over_pieces(records, &frames, mark).map_err(failed)?;
        records.set_mark(recovered).map_err(failed)?;
    }
    if !in_use {
        journal::make(directory, recovered).map_err(failed)?;
        recovered.in_use = true;
        // Stored before the first batch is in the journal: from then on a missing file is damage.
        records.set_mark(recovered).map_err(failed)?;
    }
    Ok(recovered)
}

/// Carries batches over piece by piece, as checkpoints do, so that little memory is needed beside
/// the journal itself. A start that is killed goes on behind the last piece.
fn carry_over_pieces(records: &Records, frames: &[Frame<'_>], mark: Mark) -> io::Result<()> {
    let deletions = Deletions::of(frames);
    let mut left = frames;
    while !left.is_empty() {
        let mut bytes = 0;
        let mut is_within = |frame: &Frame<'_>| {
            let is_within = bytes < journal::piece_bytes(mark.segment_bytes);
            bytes += frame.length();
            is_within
        };
        let count = left.iter().take_while(|frame| is_within(frame)).count().max(1);
        let (piece, behind) = left.split_at(count);
        let applied = piece.last().map_or(mark.applied, |last| last.number);
        records.take_over(piece.iter().copied(), &deletions, Mark { applied, ..mark })?;
        left = behind;
    }
    Ok(())
}
