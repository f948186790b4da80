//! Records in a SQL database that several processes share, of which one leads.
//!
//! ```text
//! candidates ─▶ tc_lease      which process may try to lead, by the database's clock
//! leader ─────▶ tc_journal    a row a batch: what makes it durable, and what decides who leads
//!                 └─ compaction ─▶ tc_record, tc_mark
//! ```
//!
//! A batch is one statement and one round trip. It is stored only behind the leader's own last row
//! ([`journal`]), so that a leader that was stopped or cut off can store nothing once another one
//! has begun. The database must not lose what it has acknowledged: settings that would are refused
//! at the start. Why a row a batch and no row a record: it is a tenth of the work for the database.

mod compaction;
mod connection;
mod dialect;
mod journal;
mod lease;
mod moment;
mod retries;
mod schema;
mod settings;
mod snapshot;

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use futures::future::{BoxFuture, FutureExt, ready};
use handfast_core::{Change, Epoch, Record};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::journal::frame;
use super::{Leader, Store, StoreError};
use connection::{ConnectionSlot, Database};
use dialect::CallError;
use journal::{Appended, Position, Witness};
use lease::{Candidate, Tenure};
use retries::Retries;
use schema::Ground;
use snapshot::Content;

pub use settings::SqlSettings;

/// A store in a SQL database. Dropping it gives up the lead.
pub struct SqlStore {
    settings: SqlSettings,
    database: Database,
    candidate: Candidate,
    witness: Witness,
    leader: watch::Sender<Leader>,
    term: Mutex<Option<Term>>,
}

/// The time from a mark on, in which this process leads.
#[derive(Debug)]
struct Term {
    tenure: Tenure,
    ground: Ground,
    /// The last row that this process has stored. Absent while a batch is being stored, and ever
    /// after if its caller went away: whether it is there is not known then.
    last: Option<Position>,
    /// Absent while it is in use.
    slot: Option<ConnectionSlot>,
    /// Bytes of the journal since the last compaction was started.
    bytes: u64,
    /// Ends with the term: it would be in the next leader's way.
    compaction: Option<AbortOnDropHandle<()>>,
}

/// A batch that is being stored.
struct Writing {
    slot: ConnectionSlot,
    last: Position,
    ground: Ground,
}

impl SqlStore {
    /// Connects, checks the server's settings, and makes the tables if they are missing. A database
    /// that cannot be reached is no error: [`Store::lead`] waits for it and checks it then.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if the settings, those of the server or the tables are at fault.
    pub async fn open(settings: SqlSettings) -> Result<Self, StoreError> {
        let database = settings.database()?;
        let mut slot = ConnectionSlot::new(database.clone());
        match schema::prepare(&mut slot, settings.allow_unsafe).await {
            Ok(_) => {}
            Err(CallError::Lasting(reason)) => return Err(database.unusable(reason)),
            Err(error) => {
                let store = &*database.name;
                tracing::warn!(store, %error, "the database cannot be reached");
            }
        }
        let node = serde_json::to_string(&settings.node);
        let node = node.map_err(|error| database.unusable(error.to_string()))?;
        let candidate = Candidate {
            database: database.clone(),
            holder: format!("{:032x}", rand::random::<u128>()).into(),
            node: node.into(),
            lease: settings.lease,
        };
        let (witness, leader) = (Witness::default(), watch::Sender::default());
        Ok(Self { settings, database, candidate, witness, leader, term: Mutex::new(None) })
    }

    async fn gain(&self, at_least: Epoch) -> Result<(Epoch, Vec<Record>), StoreError> {
        if let Some(Term { tenure, .. }) = self.end_term() {
            tenure.resign().await;
        }
        let ground = self.prepare().await?;
        let mut at_least = at_least;
        loop {
            let tenure = self.candidate.gain(at_least, &self.witness, &self.leader).await?;
            let epoch = tenure.epoch;
            let taken = tokio::select! {
                biased;
                () = tenure.lost() => None,
                taken = self.take_over(epoch, ground) => taken?,
            };
            if let Some((slot, last, content)) = taken {
                let bytes = content.journal_bytes;
                let records = content.into_records(&self.database).await?;
                self.begin_term(tenure, ground, slot, last, bytes);
                return Ok((epoch, records));
            }
            at_least = epoch.next();
        }
    }

    /// Checks the server and the tables. Waits for a database that is away.
    async fn prepare(&self) -> Result<Ground, StoreError> {
        let mut slot = ConnectionSlot::new(self.database.clone());
        let mut retries = Retries::of("checking the database");
        loop {
            match schema::prepare(&mut slot, self.settings.allow_unsafe).await {
                Ok(ground) => return Ok(ground),
                Err(error) => retries.pause(&self.database, error).await?,
            }
        }
    }

    /// Lays the mark, and reads what was stored before it. The order matters: after the mark no
    /// earlier leader can store a batch that is not read.
    async fn take_over(
        &self,
        epoch: Epoch,
        ground: Ground,
    ) -> Result<Option<(ConnectionSlot, Position, Content)>, StoreError> {
        let mut slot = ConnectionSlot::new(self.database.clone());
        let Some(mark) = journal::lay_mark(&mut slot, &self.witness, epoch).await? else {
            return Ok(None);
        };
        self.witness.note(mark);
        let mut retries = Retries::of("reading the records");
        loop {
            match snapshot::read(&mut slot, mark.number, ground.seed).await {
                Ok(content) => return Ok(Some((slot, mark, content))),
                Err(error) => retries.pause(&self.database, error).await?,
            }
        }
    }

    fn begin_term(
        &self,
        tenure: Tenure,
        ground: Ground,
        slot: ConnectionSlot,
        last: Position,
        bytes: u64,
    ) {
        let (last, slot) = (Some(last), Some(slot));
        let mut term = Term { tenure, ground, last, slot, bytes, compaction: None };
        self.compact_if_due(&mut term);
        *self.lock() = Some(term);
    }

    /// Takes the term, which ends for this process at once.
    fn end_term(&self) -> Option<Term> {
        self.leader.send_replace(Leader::Unknown);
        let term = self.lock().take();
        term.iter().for_each(|term| term.tenure.end());
        term
    }

    async fn write(&self, epoch: Epoch, batch: &[Change]) -> Result<(), StoreError> {
        let mut writing = self.begin_write(epoch)?;
        let mut frame = Vec::new();
        let (number, seed) = (writing.last.number + 1, writing.ground.seed);
        let encoded = frame::encode(batch, number, seed, &mut frame);
        if encoded.is_none() || frame.len() > writing.ground.batch_bytes_max {
            return Err(self.database.unusable(too_large(&frame, writing.ground)));
        }
        let stored = tokio::select! {
            biased;
            () = self.lost(epoch) => Err(StoreError::LostLeadership),
            stored = self.store_batch(&mut writing, &frame) => stored,
        };
        match &stored {
            Ok(()) => self.end_write(epoch, writing, frame.len()),
            Err(_) => self.depose(epoch),
        }
        stored
    }

    fn begin_write(&self, epoch: Epoch) -> Result<Writing, StoreError> {
        let mut term = self.lock();
        let term = term.as_mut().filter(|term| term.tenure.epoch == epoch);
        let term = term.ok_or(StoreError::LostLeadership)?;
        let last = term.last.take().ok_or(StoreError::LostLeadership)?;
        let slot = term.slot.take().unwrap_or_else(|| ConnectionSlot::new(self.database.clone()));
        Ok(Writing { slot, last, ground: term.ground })
    }

    fn end_write(&self, epoch: Epoch, writing: Writing, bytes: usize) {
        let mut term = self.lock();
        let Some(term) = term.as_mut().filter(|term| term.tenure.epoch == epoch) else { return };
        term.last = Some(writing.last);
        term.slot = Some(writing.slot);
        term.bytes += bytes as u64;
        self.compact_if_due(term);
    }

    /// Attempts to store a batch until it is known what has become of it.
    async fn store_batch(&self, writing: &mut Writing, frame: &[u8]) -> Result<(), StoreError> {
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

    async fn confirm_lead(&self, epoch: Epoch) -> Result<(), StoreError> {
        let mut slot = self.slot_of(epoch)?;
        let newest = tokio::select! {
            biased;
            () = self.lost(epoch) => return Err(StoreError::LostLeadership),
            newest = self.read_newest(&mut slot) => newest?,
        };
        if newest.is_none_or(|newest| newest.epoch != epoch) {
            self.depose(epoch);
            return Err(StoreError::LostLeadership);
        }
        let mut term = self.lock();
        if let Some(term) = term.as_mut().filter(|term| term.tenure.epoch == epoch) {
            term.slot.get_or_insert(slot);
        }
        Ok(())
    }

    /// Takes the connection of a term, or makes one.
    fn slot_of(&self, epoch: Epoch) -> Result<ConnectionSlot, StoreError> {
        let mut term = self.lock();
        let term = term.as_mut().filter(|term| term.tenure.epoch == epoch);
        let slot = term.ok_or(StoreError::LostLeadership)?.slot.take();
        Ok(slot.unwrap_or_else(|| ConnectionSlot::new(self.database.clone())))
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

    /// Ends the lead of an epoch, so that [`Store::lost`] completes.
    fn depose(&self, epoch: Epoch) {
        let term = self.lock();
        term.iter().filter(|term| term.tenure.epoch == epoch).for_each(|term| term.tenure.end());
    }

    fn compact_if_due(&self, term: &mut Term) {
        let is_running = term.compaction.as_ref().is_some_and(|task| !task.is_finished());
        let Some(last) = term.last.filter(|_| !is_running) else { return };
        if term.bytes >= self.settings.compact_bytes {
            term.bytes = 0;
            let database = self.database.clone();
            let compact = compaction::compact(database, last.number, term.ground.seed);
            term.compaction = Some(AbortOnDropHandle::new(tokio::spawn(compact)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Term>> {
        self.term.lock().expect("no holder of the term's lock panics")
    }
}

fn too_large(frame: &[u8], ground: Ground) -> String {
    let (bytes, most) = (frame.len(), ground.batch_bytes_max);
    format!("a batch has {bytes} bytes, and the server takes {most}: raise `max_allowed_packet`")
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("name", &self.database.name).finish_non_exhaustive()
    }
}

impl Store for SqlStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.gain(at_least).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        async move { self.write(epoch, &batch).await }.boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        self.confirm_lead(epoch).boxed()
    }

    fn lost(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        let term = self.lock();
        let term = term.as_ref().filter(|term| term.tenure.epoch == epoch);
        term.map_or_else(|| ready(()).boxed(), |term| term.tenure.lost().boxed())
    }

    fn certain_until(&self, epoch: Epoch) -> Option<Instant> {
        let term = self.lock();
        let term = term.as_ref().filter(|term| term.tenure.epoch == epoch);
        let until = term.and_then(|term| term.tenure.until());
        Some(until.map_or_else(Instant::now, moment::Moment::as_instant))
    }

    fn resign(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        async move {
            let is_over = self.lock().as_ref().is_none_or(|term| term.tenure.epoch != epoch);
            if is_over {
                return;
            }
            if let Some(Term { tenure, .. }) = self.end_term() {
                tenure.resign().await;
            }
        }
        .boxed()
    }

    fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.subscribe()
    }
}
