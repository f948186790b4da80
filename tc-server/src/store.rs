//! Where the coordinator's records live, and who may write them.
//!
//! A store knows leadership and batches; it does not know what a record means. The engine is its
//! only caller: one batch at a time, each after the one before it is durable or has failed.

mod checkpoint;
pub mod codec;
mod directory;
mod disk;
mod embedded;
mod journal;
mod making;
mod memory;
mod migration;
#[cfg(test)]
mod power_cut;
mod records;
mod suspect;
mod witness;
mod zeroes;

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
    /// Becomes the one writer: fences every earlier one, makes an epoch durable that is later than
    /// every earlier one and no earlier than `at_least`, then returns the records. A replicated
    /// store waits here until leadership is gained.
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>>;

    /// Makes the batch durable, atomically, or reports why it may not be. After an error the caller
    /// must drop what it has decided since `lead`.
    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Makes sure that nobody else leads: only then is an answer true that needs no write, such as
    /// that a row is not locked. The default is for a store that has one leader for as long as its
    /// process lives.
    fn confirm(&self, _epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    /// Ends when somebody else leads, so that a leader without writes notices too. The default is
    /// as for [`Store::confirm`].
    fn lost(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        pending().boxed()
    }
}

/// Why a store cannot be led or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Someone else leads by now: lead again, or stop.
    #[error("leadership was lost")]
    LostLeadership,
    /// The data directory belongs to another process.
    #[error("the data directory {} is in use by {holder}", .directory.display())]
    DirectoryLocked {
        /// The directory.
        directory: PathBuf,
        /// `process 4711`, or `another process` when its lock file does not tell.
        holder: String,
    },
    /// A write or sync failed, also because the disk is full: what it was to store may be there or
    /// not, so the process must stop and start again from the records.
    #[error("writing to {} failed", .directory.display())]
    Write {
        /// The directory.
        directory: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A stored value cannot be read: a later version wrote it, or it is damaged.
    #[error("a record in {} cannot be read", .directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        source: codec::CodecError,
    },
    /// The parts of the directory are damaged, or not of one moment: a batch is missing of which
    /// the others know. Going on would forget what was acknowledged.
    #[error(
        "{} lacks what was acknowledged: {reason}; keep a copy of it and put all of it back from \
         one backup",
        .directory.display()
    )]
    Journal {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The data directory cannot be opened or read.
    #[error("opening {} failed", .directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

impl StoreError {
    /// The stable code.
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
