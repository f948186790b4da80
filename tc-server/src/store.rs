//! Storage of the coordinator's records, with one writer at a time.
//!
//! A store knows leadership and batches. It does not know what a record means. The engine is its
//! only caller and commits one batch at a time, each after the one before is durable or has failed.

mod checkpoint;
pub mod codec;
mod directory;
mod disk;
mod embedded;
mod initialize;
mod journal;
mod memory;
mod migration;
#[cfg(test)]
mod power_cut;
mod preallocated;
mod records;
mod witness;
mod write_failure_marker;

use std::fmt;
use std::io;
use std::path::PathBuf;

use futures::future::{BoxFuture, FutureExt, pending, ready};
use handfast_core::{Change, Epoch, Record};

pub use directory::DirectoryLock;
pub(crate) use directory::make as make_directory;
pub use embedded::{EmbeddedStore, SEGMENT_BYTES};
pub use memory::MemoryStore;

/// Durable records with one writer.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Becomes the only writer: shuts out every earlier one, makes an epoch durable that is later
    /// than every earlier one and no earlier than `at_least`, then returns the records. A
    /// replicated store waits here until leadership is gained.
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>>;

    /// Makes the batch durable, atomically, or reports why it may not be durable. After an error
    /// the caller must drop everything it has decided since `lead`.
    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Confirms that no other process leads. An answer that needs no write, such as that a row is
    /// not locked, is true only then. The default is for a store that has one leader for as long as
    /// its process lives.
    fn confirm(&self, _epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    /// Completes when another process leads, so that a leader without writes notices it too. The
    /// default is for the same store as that of [`Store::confirm`].
    fn lost(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        pending().boxed()
    }
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
            Self::Damaged { .. } => "HF-TC-RECORD-UNREADABLE",
            Self::Journal { .. } => "HF-TC-JOURNAL-DAMAGED",
            Self::Write { .. } => "HF-TC-STORE-WRITE",
            Self::Open { .. } => "HF-TC-STORE-OPEN",
        }
    }
}
