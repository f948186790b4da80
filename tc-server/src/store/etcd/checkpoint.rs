//! Carries the journal over into the records, some megabytes at a time, while batches go on.
//!
//! A checkpoint writes the last change of each key in several requests, and then moves the mark and
//! deletes the batches in one. Broken off in between it does no harm: the journal still has a later
//! change of everything that was written (`content.rs`).
//!
//! Each request holds only while the mark is as this checkpoint found it. The mark names the
//! leader's epoch too, and each leader replaces it. So neither a deposed leader nor a request that
//! was under way for long overwrites a later value with an earlier one.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use handfast_core::Epoch;
use handfast_etcd::{
    Compare, EtcdClient, EtcdError, KeyRange, RequestOp, delete_range, is_value, put, read_all,
};
use tokio_util::task::AbortOnDropHandle;

use super::batch::{JournalBatch, VALUE_MAX, newest};
use super::held_lease::LeaseState;
use super::keys::{Keys, Position};
use super::members::Members;
use super::record_parts;
use crate::store::StoreError;

/// The bytes of unapplied batches, as a multiple of a checkpoint's, at which the next batch waits
/// for the checkpoint (BOUNDED).
const UNAPPLIED_MAX: usize = 4;
/// The steps of a request. etcd takes 128 by default.
const STEPS_MAX: usize = 100;

/// The checkpoints of one leader, one after the other.
#[derive(Debug)]
pub(super) struct Checkpoints {
    place: RecordsPlace,
    /// The bytes of batches that are carried over together.
    enough: usize,
    marked: Marked,
    unapplied: Vec<JournalBatch>,
    bytes: usize,
    running: Option<AbortOnDropHandle<Result<Marked, StoreError>>>,
}

/// Where a leader writes records.
#[derive(Clone, Debug)]
pub(super) struct RecordsPlace {
    pub(super) members: Arc<Members>,
    pub(super) keys: Keys,
    pub(super) epoch: Epoch,
    pub(super) lease: Arc<LeaseState>,
}

/// The mark, as a leader has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) mark: Position,
    /// The revision at which it was written.
    pub(super) revision: i64,
}

/// A checkpoint.
#[derive(Debug)]
struct Checkpoint {
    place: RecordsPlace,
    before: Marked,
}

impl Checkpoints {
    /// Begins with the batches that the leader has read, its mark among them.
    pub(super) fn new(
        place: RecordsPlace,
        enough: usize,
        marked: Marked,
        unapplied: Vec<JournalBatch>,
    ) -> Self {
        let bytes = unapplied.iter().map(JournalBatch::len).sum();
        let mut checkpoints = Self { place, enough, marked, unapplied, bytes, running: None };
        checkpoints.begin_if_due();
        checkpoints
    }

    /// Waits for the running checkpoint if too many batches have come meanwhile, and reports the
    /// failure of one that has ended.
    pub(super) async fn make_room(&mut self) -> Result<(), StoreError> {
        // The bytes are divided, because the product of two large settings could overflow.
        let is_full = self.bytes / UNAPPLIED_MAX >= self.enough;
        let Some(running) = self.running.take_if(|running| is_full || running.is_finished()) else {
            return Ok(());
        };
        match running.await {
            Ok(marked) => self.marked = marked?,
            Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
            // The runtime is shutting down.
            Err(_) => return Err(StoreError::LostLeadership),
        }
        self.begin_if_due();
        Ok(())
    }

    /// Takes a batch that is durable.
    pub(super) fn push(&mut self, batch: JournalBatch) {
        self.bytes += batch.len();
        self.unapplied.push(batch);
        self.begin_if_due();
    }

    fn begin_if_due(&mut self) {
        if self.running.is_some() || self.bytes < self.enough {
            return;
        }
        let batches = std::mem::take(&mut self.unapplied);
        self.bytes = 0;
        let checkpoint = Checkpoint { place: self.place.clone(), before: self.marked };
        self.running = Some(AbortOnDropHandle::new(tokio::spawn(checkpoint.run(batches))));
    }
}

impl Checkpoint {
    async fn run(self, batches: Vec<JournalBatch>) -> Result<Marked, StoreError> {
        let Some(last) = batches.last().map(|batch| batch.position) else { return Ok(self.before) };
        let keys = self.place.keys.clone();
        // Megabytes are sorted and copied, which would hold up the other tasks of a thread.
        let requests = tokio::task::spawn_blocking(move || requests(&keys, &batches)).await;
        let requests = match requests {
            Ok(requests) => requests,
            Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
            Err(_) => return Err(StoreError::LostLeadership),
        };
        let (started, count) = (Instant::now(), requests.len());
        for steps in requests {
            self.write(steps).await?;
        }
        let marked = self.move_mark(last.number).await?;
        tracing::debug!(requests = count, took = ?started.elapsed(), "the journal is carried over");
        self.forget_history().await;
        Ok(marked)
    }

    /// Returns the condition of every request of this checkpoint.
    fn guard(&self) -> Vec<Compare> {
        vec![is_value(self.place.keys.mark(), self.before.mark.to_string())]
    }

    async fn write(&self, steps: Vec<RequestOp>) -> Result<(), StoreError> {
        let write = |etcd: EtcdClient| {
            let (guard, steps) = (self.guard(), steps.clone());
            async move { etcd.transaction(guard, steps, Vec::new()).await }
        };
        let written = self.until_answered(write).await?;
        if written.succeeded { Ok(()) } else { Err(self.lose()) }
    }

    /// Moves the mark to a batch, and deletes all batches up to it. The fence is another key, so
    /// none has to stay.
    ///
    /// Parts of earlier epochs are of batches before this leader's first one, which its first
    /// checkpoint covers, or of batches that were never stored.
    async fn move_mark(&self, number: u64) -> Result<Marked, StoreError> {
        let RecordsPlace { keys, epoch, .. } = &self.place;
        let mark = Position { epoch: *epoch, number };
        let steps = vec![
            put(keys.mark(), mark.to_string(), 0),
            delete_range(keys.journal_between(0, number)),
            delete_range(keys.parts_until(mark)),
        ];
        let read = read_all(&KeyRange::one(keys.mark()));
        let write = |etcd: EtcdClient| {
            let (guard, steps, read) = (self.guard(), steps.clone(), read.clone());
            async move { etcd.transaction(guard, steps, vec![read]).await }
        };
        let mut written = self.until_answered(write).await?;
        if written.succeeded {
            return Ok(Marked { mark, revision: written.revision });
        }
        // Moved already: the answer to an earlier attempt was lost.
        let found = written.found(0).into_iter().next();
        let moved = found.filter(|found| Position::read(&found.value) == Some(mark));
        let marked = moved.map(|found| Marked { mark, revision: found.mod_revision });
        marked.ok_or_else(|| self.lose())
    }

    /// Lets etcd forget what the keys held before the previous checkpoint. Otherwise its database
    /// would grow forever, unless it compacts automatically.
    async fn forget_history(&self) {
        let revision = self.before.revision;
        let compact = |etcd: EtcdClient| async move { etcd.compact(revision).await };
        match self.place.members.attempt(compact).await {
            Ok(()) | Err(EtcdError::Compacted { .. }) => {}
            Err(error) => {
                let store = self.place.members.store();
                tracing::warn!(store, %error, "the history of etcd is not compacted");
            }
        }
    }

    async fn until_answered<T, F>(&self, request: impl Fn(EtcdClient) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let RecordsPlace { members, lease, .. } = &self.place;
        members.until_answered(request, || !lease.is_lost()).await
    }

    fn lose(&self) -> StoreError {
        self.place.lease.lose();
        StoreError::LostLeadership
    }
}

/// Returns the steps that write the last change of each key, as requests that etcd takes.
fn requests(keys: &Keys, batches: &[JournalBatch]) -> Vec<Vec<RequestOp>> {
    let mut newest: Vec<_> = newest(batches).into_iter().collect();
    // In the order of the keys, in which etcd keeps them.
    newest.sort_unstable_by_key(|(key, _)| *key);
    let steps = newest.iter().flat_map(|(key, value)| record_parts::steps(keys, key, *value));
    let (mut requests, mut request, mut bytes) = (Vec::new(), Vec::new(), 0);
    for step in steps {
        // The parts of one record may be divided too, since its first part is written last.
        if request.len() == STEPS_MAX || (bytes > 0 && bytes + step.bytes > VALUE_MAX) {
            requests.push(std::mem::take(&mut request));
            bytes = 0;
        }
        bytes += step.bytes;
        request.push(step.operation);
    }
    requests.push(request);
    requests
}
