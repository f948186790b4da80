//! Storage of the coordinator's records, with one writer at a time.
//!
//! A store knows leadership and batches. It does not know what a record means. The engine is its
//! only caller and commits one batch at a time, each after the one before is durable or has failed.

mod boot_instant;
mod checkpoint;
pub mod codec;
mod directory;
mod disk;
mod embedded;
mod etcd;
mod feed;
mod initialize;
mod journal;
mod memory;
mod migration;
#[cfg(test)]
mod power_cut;
mod preallocated;
mod records;
mod snapshot;
mod sql;
mod stored_keys;
#[cfg(test)]
mod test_records;
mod witness;
mod write_failure_marker;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, pending, ready};
use handfast_core::{Change, Epoch, Record};
use serde::{Deserialize, Serialize};

pub use directory::DirectoryLock;
pub(crate) use directory::{holds_records, make as make_directory};
pub use embedded::{EmbeddedStore, SEGMENT_BYTES};
pub use etcd::{EtcdStore, EtcdStoreSettings};
pub use feed::RecordFeed;
pub use handfast_etcd::EtcdOptions;
pub use memory::MemoryStore;
pub use snapshot::{RecordSnapshot, RecordSource, SnapshotOrigin, StoredRecord};
pub use sql::{SqlSettings, SqlStore};
/// The channel of [`Store::leader`], for stores outside of this crate.
pub use tokio::sync::watch;

/// Durable records with one writer.
///
/// Two rules make every shared store safe, whatever its engine believes about leadership:
///
/// - A batch takes effect only behind the mark of its epoch in the same log. That is decided where
///   the batch is stored, never by its sender.
/// - `lead` stores its mark first and reads the records after it.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Becomes the only writer: shuts out every earlier one, makes an epoch durable that is later
    /// than every earlier one and no earlier than `at_least`, then returns the records. A shared
    /// store waits here until leadership is gained. A future that is dropped gives up, at any point
    /// and without harm.
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>>;

    /// Leads as [`Store::lead`] does, but returns the records while they are read. The default is
    /// for a store that has read them all by then.
    fn lead_and_feed(
        &self,
        at_least: Epoch,
    ) -> BoxFuture<'_, Result<(Epoch, RecordFeed), StoreError>> {
        let led = self.lead(at_least);
        async move { led.await.map(|(epoch, records)| (epoch, records.into())) }.boxed()
    }

    /// Makes the batch durable, atomically, if `epoch` is still the newest. After
    /// [`StoreError::LostLeadership`] the batch is stored nowhere, or the next leader reads it.
    /// After any error the caller must drop everything it has decided since `lead`.
    ///
    /// A shared store looks up an answer that was lost on the way, and tries again while its engine
    /// is away; [`Store::lost`] completes meanwhile if that takes too long.
    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Confirms that no other process leads. An answer that needs no write, such as that a row is
    /// not locked, is true only if none does. The default is for a store that has one leader for as
    /// long as its process lives.
    fn confirm(&self, _epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    /// Completes when another process leads or this one cannot write for too long, so that a leader
    /// without writes notices it too. The default is for the same store as that of
    /// [`Store::confirm`].
    fn lost(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// Returns until when no other process can lead; `None` if there is no end, as with the store
    /// of [`Store::confirm`]'s default. Only decisions that do no harm if it is wrong rely on it:
    /// until then the replies to a begin and to a release leave at once, and afterwards with the
    /// batch.
    fn certain_until(&self, _epoch: Epoch) -> Option<Instant> {
        None
    }

    /// Gives up the lead, so that another process need not wait for it to run out. Completes when
    /// that is done, or after a limit.
    fn resign(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    /// Follows which process leads, as far as this one knows. The default is for a store that no
    /// other process can lead.
    fn leader(&self) -> watch::Receiver<Leader> {
        watch::Sender::new(Leader::Here).subscribe()
    }

    /// Periodically notes that this process is there, and publishes which others have done so.
    /// Never completes. The default is for a store that no other process can lead.
    fn announce(&self, _seen: watch::Sender<Vec<SeenNode>>) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// A coordinator that has said that it is there. This is for operators; of what is decided, only
/// when a SQL database gets a later layout depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNode {
    /// The coordinator.
    pub node: CoordinatorNode,
    /// When it last said so. In etcd, which has no clock, the clocks of two machines are compared.
    pub seen_at: Instant,
}

impl SeenNode {
    fn seen_before(node: CoordinatorNode, ago: Duration) -> Self {
        let now = Instant::now();
        Self { node, seen_at: now.checked_sub(ago).unwrap_or(now) }
    }
}

/// How often a node says that it is there, and reads which others do. Too rarely: a node that has
/// gone is shown for long; too often: the store writes what is seldom read.
const SAY_EVERY: Duration = Duration::from_secs(2);
/// The time after which a node that says nothing is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The most nodes that are listed (BOUNDED).
const NODES_MAX: u32 = 100;

/// The process that leads, as far as another one knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leader {
    /// It is not known, or no process leads.
    #[default]
    Unknown,
    /// This process leads, or gains the lead.
    Here,
    /// Another process leads.
    Elsewhere {
        /// Its epoch.
        epoch: Epoch,
        /// Where it can be reached.
        node: CoordinatorNode,
    },
}

/// A coordinator of several on one store, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorNode {
    /// Its name, which no other node of the store has.
    pub id: String,
    /// The version of its program.
    pub version: String,
    /// Where clients reach the native API, as `host:port`.
    pub grpc: String,
    /// Where clients reach REST, health and metrics, as `host:port`.
    pub admin: String,
    /// Where clients of Seata reach it, as `host:port`, if that port is enabled.
    pub seata: Option<String>,
}

/// Why a store cannot be led or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process leads: lead again, or stop.
    #[error("leadership was lost")]
    LostLeadership,
    /// The data directory belongs to another process.
    #[error("the data directory {} is in use by {holder}", .directory.display())]
    DirectoryLocked {
        /// The directory.
        directory: PathBuf,
        /// `process 4711`, or `another process` if the lock file names none.
        holder: String,
    },
    /// A write or sync failed, for example because the disk is full. The data may be on the disk or
    /// not, so the process must stop and start again from the records.
    #[error("writing to {} failed", .directory.display())]
    Write {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A stored value cannot be read: a later version wrote it, or it is damaged.
    #[error("a record in {} cannot be read", .directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        source: codec::CodecError,
    },
    /// The parts of the directory are damaged or were not saved at the same moment: one lacks a
    /// batch that the others know of. Going on would forget acknowledged changes.
    #[error(
        "{} lacks what was acknowledged: {reason}; keep a copy of it and put all of it back from \
         one backup",
        .directory.display()
    )]
    Journal {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A shared store holds a value that cannot be read: a later version wrote it, or it is
    /// damaged.
    #[error("a record in {store} cannot be read")]
    Unreadable {
        /// Which store, without secrets.
        store: String,
        /// The problem.
        source: codec::CodecError,
    },
    /// A shared store lacks what this process has seen acknowledged, for example because its
    /// database failed over to a standby that was behind. Going on would forget decisions.
    #[error(
        "{store} went back: {reason}; restore it to a state that has this, or start this process \
         again to accept the loss"
    )]
    WentBack {
        /// Which store, without secrets.
        store: String,
        /// The number that is missing, and the newest that is there.
        reason: String,
    },
    /// A shared store cannot be used: its settings could lose acknowledged changes, or it refuses
    /// this process.
    #[error("{store} cannot be used: {reason}")]
    Unusable {
        /// Which store, without secrets.
        store: String,
        /// The problem, and how to mend it.
        reason: String,
    },
    /// The data directory cannot be opened or read.
    #[error("opening {} failed", .directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl StoreError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::LostLeadership => "HF-TC-LEADERSHIP-LOST",
            Self::DirectoryLocked { .. } => "HF-TC-DATA-DIR-LOCKED",
            Self::Damaged { .. } | Self::Unreadable { .. } => "HF-TC-RECORD-UNREADABLE",
            Self::WentBack { .. } => "HF-TC-STORE-WENT-BACK",
            Self::Unusable { .. } => "HF-TC-STORE-UNUSABLE",
            Self::Journal { .. } => "HF-TC-JOURNAL-DAMAGED",
            Self::Write { .. } => "HF-TC-STORE-WRITE",
            Self::Open { .. } => "HF-TC-STORE-OPEN",
        }
    }
}
