//! The time in which this process leads: from its mark in the journal to that of another one.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use handfast_core::{Change, Epoch};

use super::compaction::Compactor;
use super::compressed;
use super::connection::{ConnectionSlot, SqlDatabase};
use super::dialect::CallError;
use super::journal::{self, Appended, Position, Witness};
use super::lease::Tenure;
use super::pages::StoredBatch;
use super::retries::Retries;
use super::schema::{Ground, KnownLayout};
use crate::store::StoreError;
use crate::store::boot_instant::BootInstant;
use crate::store::journal::frame;

/// A term. It ends when a call finds another leader, or with the lease.
#[derive(Debug)]
pub(super) struct Term {
    database: SqlDatabase,
    witness: Arc<Witness>,
    known_layout: Arc<KnownLayout>,
    tenure: Tenure,
    ground: Ground,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last row that this process has stored. Absent while a batch is being stored, and from
    /// then on if its caller was dropped: the batch may be stored or not.
    last: Option<Position>,
    /// Absent while it is in use.
    slot: Option<ConnectionSlot>,
    /// Ends with the term: it would disturb the next leader.
    compactor: Option<Arc<Compactor>>,
}

/// A batch that is being stored.
struct Writing {
    slot: ConnectionSlot,
    last: Position,
    compactor: Option<Arc<Compactor>>,
}

/// The journal as it stands when a term begins.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) slot: ConnectionSlot,
    pub(super) mark: Position,
    pub(super) compactor: Compactor,
}

impl Term {
    pub(super) fn begin(
        witness: Arc<Witness>,
        known_layout: Arc<KnownLayout>,
        tenure: Tenure,
        ground: Ground,
        Beginning { slot, mark, compactor }: Beginning,
    ) -> Self {
        let database = slot.database().clone();
        let (last, slot, compactor) = (Some(mark), Some(slot), Some(Arc::new(compactor)));
        let state = Mutex::new(State { last, slot, compactor });
        Self { database, witness, known_layout, tenure, ground, state }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.tenure.epoch
    }

    /// Completes when the term has ended.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.tenure.lost()
    }

    /// Returns until when no other process can lead.
    pub(super) fn certain_until(&self) -> Instant {
        self.tenure.until().map_or_else(Instant::now, BootInstant::as_instant)
    }

    /// Ends the term, and gives up the lease.
    pub(super) async fn resign(&self) {
        self.lock().compactor = None;
        self.tenure.resign().await;
    }

    /// Makes a batch durable.
    pub(super) async fn commit(&self, batch: &[Change]) -> Result<(), StoreError> {
        let mut writing = self.begin_write()?;
        let frame = self.encode(batch, writing.last.number + 1)?;
        // A database that does not answer delays the engine no longer than the lease lasts.
        let stored = tokio::select! {
            biased;
            () = self.lost() => Err(StoreError::LostLeadership),
            stored = self.store(&mut writing, &frame) => stored,
        };
        if let Err(error) = stored {
            self.tenure.end();
            return Err(error);
        }
        if let Some(compactor) = &writing.compactor {
            let stored = StoredBatch { number: writing.last.number, bytes: frame };
            compactor.add(stored, batch.iter().map(Change::key).collect()).await;
        }
        self.end_write(writing);
        Ok(())
    }

    fn begin_write(&self) -> Result<Writing, StoreError> {
        let mut state = self.lock();
        let last = state.last.take().ok_or(StoreError::LostLeadership)?;
        let slot = state.slot.take().unwrap_or_else(|| ConnectionSlot::new(self.database.clone()));
        Ok(Writing { slot, last, compactor: state.compactor.clone() })
    }

    fn encode(&self, batch: &[Change], number: u64) -> Result<Vec<u8>, StoreError> {
        let mut frame = Vec::new();
        let encoded = frame::encode(batch, number, self.ground.seed, &mut frame);
        if self.known_layout.may_compress() {
            frame = compressed::compress(frame);
        }
        let (bytes, bytes_max) = (frame.len(), self.ground.batch_bytes_max);
        if encoded.is_none() || bytes > bytes_max {
            return Err(self.database.unusable(format!(
                "a batch has {bytes} bytes, and the server takes {bytes_max}: raise its \
                 `max_allowed_packet`"
            )));
        }
        Ok(frame)
    }

    /// Attempts to store a batch until it is known what has become of it.
    async fn store(&self, writing: &mut Writing, frame: &[u8]) -> Result<(), StoreError> {
        let mut retries = Retries::of("storing a batch");
        loop {
            let error = match journal::append(&mut writing.slot, writing.last, frame).await {
                Ok(Appended::Durable) => break,
                Ok(Appended::Deposed) => return Err(StoreError::LostLeadership),
                Ok(Appended::WentBack(reason)) => return Err(self.database.went_back(reason)),
                Ok(Appended::Unexplained) => CallError::Again("the batch was not stored".into()),
                Err(error) => error,
            };
            retries.pause(&self.database, error).await?;
        }
        writing.last.number += 1;
        self.witness.note(writing.last);
        Ok(())
    }

    fn end_write(&self, writing: Writing) {
        let mut state = self.lock();
        state.last = Some(writing.last);
        state.slot = Some(writing.slot);
    }

    /// Confirms that the newest row is of this term.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        let slot = self.lock().slot.take();
        let mut slot = slot.unwrap_or_else(|| ConnectionSlot::new(self.database.clone()));
        let newest = tokio::select! {
            biased;
            () = self.lost() => return Err(StoreError::LostLeadership),
            newest = self.read_newest(&mut slot) => newest?,
        };
        if newest.is_none_or(|newest| newest.epoch != self.epoch()) {
            self.tenure.end();
            return Err(StoreError::LostLeadership);
        }
        // The slot is put back only after an answer: a connection on which one is still due is not
        // used again.
        self.lock().slot.get_or_insert(slot);
        Ok(())
    }

    async fn read_newest(&self, slot: &mut ConnectionSlot) -> Result<Option<Position>, StoreError> {
        let mut retries = Retries::of("confirming the lead");
        loop {
            match journal::newest(slot).await {
                Ok(newest) => return Ok(newest),
                Err(error) => retries.pause(&self.database, error).await?,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the term's lock panics")
    }
}
