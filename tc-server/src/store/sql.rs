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
//! at the start. There is one row per batch, and not per record, since that is a tenth of the work
//! for the database.

mod compaction;
mod compressed;
mod connection;
mod dialect;
mod journal;
mod last_batches;
mod lease;
mod nodes;
mod pages;
mod record_pages;
mod retries;
mod schema;
mod settings;
mod snapshot;
mod tail;
mod term;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, ready};
use handfast_core::{Change, Epoch, Record};
use tokio::sync::watch;

use super::{Leader, RecordSnapshot, RecordSource, SeenNode, Store, StoreError};
use compaction::Compactor;
use connection::{ConnectionSlot, SqlDatabase};
use dialect::CallError;
use journal::Witness;
use lease::Candidate;
use retries::Retries;
use schema::{Ground, KnownLayout};
use snapshot::{Content, StoredRecords};
use term::{Beginning, Term};

pub use settings::SqlSettings;

/// A store in a SQL database. Dropping it gives up the lead.
pub struct SqlStore {
    settings: SqlSettings,
    database: SqlDatabase,
    candidate: Candidate,
    witness: Arc<Witness>,
    leader: watch::Sender<Leader>,
    term: Mutex<Option<Arc<Term>>>,
    known_layout: Arc<KnownLayout>,
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
        let known_layout = Arc::default();
        match schema::prepare(&mut slot, settings.allow_unsafe, &known_layout).await {
            Ok(_) => {}
            // A URL that names a replica is a mistake. Later, a replica is waited for.
            Err(CallError::Lasting(reason) | CallError::Replica(reason)) => {
                return Err(database.unusable(reason));
            }
            Err(error) => {
                let store = &*database.name;
                tracing::warn!(store, %error, "the database cannot be reached");
            }
        }
        let node = nodes::describe(&settings.node);
        let node = node.map_err(|error| database.unusable(error.to_string()))?;
        let candidate = Candidate {
            database: database.clone(),
            holder: format!("{:032x}", rand::random::<u128>()).into(),
            node: node.into(),
            lease: settings.lease,
        };
        Ok(Self {
            settings,
            database,
            candidate,
            witness: Arc::default(),
            leader: watch::Sender::default(),
            term: Mutex::new(None),
            known_layout,
        })
    }

    /// Returns a batch as it was before it was compressed, for a comparison of sizes.
    #[must_use]
    pub fn decompressed(batch: &[u8]) -> Cow<'_, [u8]> {
        compressed::decompress(batch)
    }

    async fn gain(&self, at_least: Epoch) -> Result<(Epoch, Vec<Record>), StoreError> {
        if let Some(earlier) = self.end_term() {
            earlier.resign().await;
        }
        let ground = self.prepare().await?;
        let mut at_least = at_least;
        loop {
            let tenure = self.candidate.gain(at_least, &self.witness, &self.leader).await?;
            let epoch = tenure.epoch;
            // When the lease ends meanwhile, another process can take it, and this one begins
            // again.
            let taken = tokio::select! {
                biased;
                () = tenure.lost() => None,
                taken = self.take_over(epoch, ground) => taken?,
            };
            if let Some((beginning, records)) = taken {
                let records = snapshot::decode(records, &self.database).await?;
                let (witness, layout) = (Arc::clone(&self.witness), Arc::clone(&self.known_layout));
                let term = Term::begin(witness, layout, tenure, ground, beginning);
                *self.lock() = Some(Arc::new(term));
                return Ok((epoch, records));
            }
            // The epoch is used up: its mark may be there, although the answer was lost.
            at_least = epoch.next();
        }
    }

    /// Checks the server and the tables. Waits for a database that is away, or whose standby has
    /// not become the primary yet.
    async fn prepare(&self) -> Result<Ground, StoreError> {
        let mut retries = Retries::of("checking the database");
        loop {
            // A connection of its own for each attempt: after a fail-over the address may lead to
            // another server, and what was the primary may be a replica.
            let mut slot = ConnectionSlot::new(self.database.clone());
            let allow_unsafe = self.settings.allow_unsafe;
            match schema::prepare(&mut slot, allow_unsafe, &self.known_layout).await {
                Ok(ground) => return Ok(ground),
                Err(error) => retries.pause(&self.database, error).await?,
            }
        }
    }

    /// Lays the mark, and reads what was stored before it. The order matters: after the mark no
    /// earlier leader can store a batch that is not read. Returns `None` if the epoch cannot lead.
    async fn take_over(
        &self,
        epoch: Epoch,
        ground: Ground,
    ) -> Result<Option<(Beginning, StoredRecords)>, StoreError> {
        let mut slot = ConnectionSlot::new(self.database.clone());
        let Some(mark) = journal::lay_mark(&mut slot, &self.witness, epoch).await? else {
            return Ok(None);
        };
        self.witness.note(mark);
        let mut retries = Retries::of("reading the records");
        loop {
            let (seed, tail_bytes) = (ground.seed, self.settings.tail_bytes);
            match snapshot::read(&mut slot, mark.number, seed, tail_bytes).await {
                // A later leader has compacted batches behind this mark, so this epoch cannot lead.
                Ok(content) if content.applied > mark.number => return Ok(None),
                Ok(Content { records, tail, stored, .. }) => {
                    let database = self.database.clone();
                    let compact_bytes = self.settings.compact_bytes;
                    let compactor = Compactor::start(database, compact_bytes, tail, stored);
                    return Ok(Some((Beginning { slot, mark, compactor }, records)));
                }
                Err(error) => retries.pause(&self.database, error).await?,
            }
        }
    }

    /// Takes the term of this process, if there is one.
    fn end_term(&self) -> Option<Arc<Term>> {
        self.leader.send_replace(Leader::Unknown);
        self.lock().take()
    }

    /// Returns the term of an epoch.
    fn term(&self, epoch: Epoch) -> Option<Arc<Term>> {
        self.lock().clone().filter(|term| term.epoch() == epoch)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Term>>> {
        self.term.lock().expect("no holder of the store's lock panics")
    }
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
        async move {
            let term = self.term(epoch).ok_or(StoreError::LostLeadership)?;
            term.commit(&batch).await
        }
        .boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let term = self.term(epoch).ok_or(StoreError::LostLeadership)?;
            term.confirm().await
        }
        .boxed()
    }

    fn lost(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        self.term(epoch).map_or_else(|| ready(()).boxed(), |term| term.lost().boxed())
    }

    fn certain_until(&self, epoch: Epoch) -> Option<Instant> {
        Some(self.term(epoch).map_or_else(Instant::now, |term| term.certain_until()))
    }

    fn resign(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        async move {
            if self.term(epoch).is_none() {
                return;
            }
            if let Some(term) = self.end_term() {
                term.resign().await;
            }
        }
        .boxed()
    }

    fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.subscribe()
    }

    fn announce(&self, seen: watch::Sender<Vec<SeenNode>>) -> BoxFuture<'static, ()> {
        let (id, node) = (self.settings.node.id.clone(), Arc::clone(&self.candidate.node));
        let known_layout = Arc::clone(&self.known_layout);
        nodes::announce(self.database.clone(), id, node, known_layout, seen).boxed()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl RecordSource for SqlStore {
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>> {
        record_pages::open(&self.database).boxed()
    }
}
