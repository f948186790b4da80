//! Records in an embedded key-value engine in a directory of their own.
//!
//! A batch is one synced write. All of it happens on one thread, so that no asynchronous task waits
//! for the disk. Why this engine: `docs/decisions/0001-embedded-store.md`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use futures::future::{BoxFuture, FutureExt};
use handfast_core::{Change, Epoch, Record};
use tokio::sync::oneshot;

use super::codec;
use super::directory::DirectoryLock;
use super::{Store, StoreError};
use crate::crash_point::crash_point;

/// Under which the epoch is stored; no record key begins like it.
const EPOCH_KEY: &[u8] = b"epoch";

/// The store of one machine.
pub struct EmbeddedStore {
    directory: PathBuf,
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<thread::JoinHandle<()>>,
}

/// What the writer is asked, and where the answer goes.
enum Job {
    Lead(oneshot::Sender<Result<(Epoch, Vec<Record>), StoreError>>),
    Commit { epoch: Epoch, batch: Vec<Change>, done: oneshot::Sender<Result<(), StoreError>> },
}

impl EmbeddedStore {
    /// Takes the directory and recovers what is in it. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// When another process has the directory, or it cannot be read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let lock = DirectoryLock::take(directory)?;
        let mut writer = Writer::open(lock)?;
        let (jobs, asked) = mpsc::channel();
        let spawned = thread::Builder::new().name("store".to_owned()).spawn(move || {
            while let Ok(job) = asked.recv() {
                writer.run(job);
            }
        });
        let failed = |source| StoreError::Open { directory: directory.to_owned(), source };
        let writer = Some(spawned.map_err(failed)?);
        Ok(Self { directory: directory.to_owned(), jobs: Some(jobs), writer })
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
    fn lead(&self) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.ask(Job::Lead).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(move |done| Job::Commit { epoch, batch, done }).boxed()
    }
}

impl Drop for EmbeddedStore {
    /// Waits for the writer, so that the directory is free when this returns. If the storage engine
    /// panicked, as it may on a full disk, whoever asked has been told that the write failed.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(_)) = self.writer.take().map(thread::JoinHandle::join) {
            tracing::error!(directory = %self.directory.display(), "the store's thread panicked");
        }
    }
}

/// What the thread owns. The lock comes last: fields are dropped in order, and the directory must
/// be free only when the engine is closed.
struct Writer {
    database: Database,
    records: Keyspace,
    epoch: Epoch,
    /// After a failed write nothing is known about the next.
    failed: bool,
    lock: DirectoryLock,
}

impl Writer {
    fn open(lock: DirectoryLock) -> Result<Self, StoreError> {
        let failed = |error| open_error(lock.directory(), error);
        let path = lock.directory().join("records");
        let database = Database::builder(path).open().map_err(failed)?;
        let records =
            database.keyspace("records", KeyspaceCreateOptions::default).map_err(failed)?;
        let stored = records.get(EPOCH_KEY).map_err(failed)?;
        let epoch = match stored {
            None => Epoch(0),
            Some(bytes) => Epoch(u64::from_be_bytes(bytes.as_ref().try_into().map_err(|_| {
                StoreError::Damaged {
                    directory: lock.directory().to_owned(),
                    source: codec::CodecError::Key(EPOCH_KEY.to_vec()),
                }
            })?)),
        };
        Ok(Self { database, records, epoch, failed: false, lock })
    }

    fn run(&mut self, job: Job) {
        // Whoever asked may be gone: a server that is dropped does not wait for its store.
        match job {
            Job::Lead(done) => drop(done.send(self.lead())),
            Job::Commit { epoch, batch, done } => drop(done.send(self.commit(epoch, &batch))),
        }
    }

    fn lead(&mut self) -> Result<(Epoch, Vec<Record>), StoreError> {
        let epoch = Epoch(self.epoch.0 + 1);
        let mut batch = self.database.batch();
        batch.insert(&self.records, EPOCH_KEY, epoch.0.to_be_bytes());
        self.write(batch)?;
        self.epoch = epoch;
        Ok((epoch, self.read()?))
    }

    fn commit(&mut self, epoch: Epoch, changes: &[Change]) -> Result<(), StoreError> {
        if epoch != self.epoch {
            return Err(StoreError::LostLeadership);
        }
        crash_point("before-write");
        let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), changes.len());
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for change in changes {
            key.clear();
            codec::append_key(change.key(), &mut key);
            match change {
                Change::Put(record) => {
                    value.clear();
                    codec::append(record, &mut value);
                    batch.insert(&self.records, key.as_slice(), value.as_slice());
                }
                Change::Delete(_) => batch.remove(&self.records, key.as_slice()),
            }
        }
        let written = self.write(batch);
        crash_point("after-write");
        written
    }

    /// Writes all or nothing, synced.
    fn write(&mut self, batch: OwnedWriteBatch) -> Result<(), StoreError> {
        let failed =
            |source| StoreError::Write { directory: self.lock.directory().to_owned(), source };
        if self.failed {
            return Err(failed(io::Error::other("an earlier write failed")));
        }
        let synced = batch.durability(Some(PersistMode::SyncData));
        let written = synced.commit().map_err(|error| failed(io_error(error)));
        self.failed = written.is_err();
        written
    }

    fn read(&self) -> Result<Vec<Record>, StoreError> {
        let directory = self.lock.directory();
        let mut records = Vec::new();
        for stored in self.records.iter() {
            let (key, value) = stored.into_inner().map_err(|error| open_error(directory, error))?;
            if key.as_ref() == EPOCH_KEY {
                continue;
            }
            let record = codec::decode(&key, &value).map_err(|source| StoreError::Damaged {
                directory: directory.to_owned(),
                source,
            })?;
            records.push(record);
        }
        Ok(records)
    }
}

fn open_error(directory: &Path, error: fjall::Error) -> StoreError {
    StoreError::Open { directory: directory.to_owned(), source: io_error(error) }
}

fn io_error(error: fjall::Error) -> io::Error {
    if let fjall::Error::Io(error) = error { error } else { io::Error::other(error) }
}
