//! Work on the records of a store beside its coordinator, or while there is none: checking them,
//! putting a backup into an empty store, moving them to another store.
//!
//! A tool that writes to a store leads it meanwhile, so that no coordinator continues from it: the
//! store's rules of leadership apply to these tools too. Reasons:
//! `docs/decisions/0023-backups-and-moves.md`.

mod check;
mod copy;
mod migrate;
mod restore;
mod source;

use std::path::PathBuf;

use handfast_core::{ClosureRecord, Epoch, LoadError};

use crate::backup::BackupError;
use crate::serve::StartError;
use crate::store::StoreError;

pub use check::{CheckedStore, RecordCounts, check};
pub use migrate::{MovedStore, migrate};
pub use restore::{RestoredStore, restore};
pub use source::{StoredRecords, place_of, read_records};

/// Why work on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The store cannot be opened as configured.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store failed.
    #[error("{place}: {source}")]
    Store {
        /// The store.
        place: String,
        /// The cause.
        source: StoreError,
    },
    /// A coordinator runs on the store.
    #[error("a coordinator runs on {place}{by}: stop all of its coordinators first")]
    InUse {
        /// The store.
        place: String,
        /// Which, as far as it is known.
        by: String,
    },
    /// The lead of the store could not be gained in time.
    #[error("{place} does not answer")]
    Unanswered {
        /// The store.
        place: String,
    },
    /// There is no store.
    #[error("there are no records in {place}: {reason}")]
    NoStore {
        /// The place.
        place: String,
        /// How that was found out.
        reason: String,
    },
    /// The store keeps nothing.
    #[error("a store in memory ends with its process: there is nothing to work on")]
    InMemory,
    /// No coordinator may continue from the records.
    #[error("{place} is closed: {closure}")]
    Closed {
        /// The store.
        place: String,
        /// Why.
        closure: ClosureRecord,
    },
    /// The store that is to be filled holds records.
    #[error("{place} holds {records} records, and only an empty store is filled")]
    NotEmpty {
        /// The store.
        place: String,
        /// How many.
        records: usize,
    },
    /// Source and target are the same store.
    #[error("{place} is both ends of the move")]
    SamePlace {
        /// The store.
        place: String,
    },
    /// The records contradict one another.
    #[error("the records in {place} do not fit together: {source}")]
    Contradiction {
        /// The store or file.
        place: String,
        /// How.
        source: LoadError,
    },
    /// The records break an invariant.
    #[error("the records in {place} break an invariant: {what}")]
    Invariant {
        /// The store or file.
        place: String,
        /// Which, and how.
        what: String,
    },
    /// The target did not give back what was written to it.
    #[error("{place} gives back other records than were written: {what}")]
    Differs {
        /// The store.
        place: String,
        /// The first difference.
        what: String,
    },
    /// The backup cannot be used.
    #[error("backup {}: {source}", .file.display())]
    Backup {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: BackupError,
    },
}

impl MaintenanceError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start(error) => error.code(),
            Self::Store { source, .. } => source.code(),
            Self::InUse { .. } => "HF-TC-STORE-IN-USE",
            Self::Unanswered { .. } | Self::InMemory => "HF-TC-STORE-UNUSABLE",
            Self::NoStore { .. } => "HF-TC-STORE-MISSING",
            Self::Closed { closure, .. } => LoadError::Closed(closure.clone()).code(),
            Self::NotEmpty { .. } | Self::SamePlace { .. } => "HF-TC-STORE-NOT-EMPTY",
            Self::Contradiction { source, .. } => source.code(),
            Self::Invariant { .. } => "HF-TC-RECORDS-CONTRADICT",
            Self::Differs { .. } => "HF-TC-STORE-DIFFERS",
            Self::Backup { source, .. } => source.code(),
        }
    }
}

/// Returns the error of a store at a place.
fn failed(place: &str) -> impl Fn(StoreError) -> MaintenanceError + '_ {
    |source| MaintenanceError::Store { place: place.to_owned(), source }
}

/// Returns the epoch of the clock, which a store that is led has at least.
fn epoch_of_clock() -> Epoch {
    Epoch::of_clock(crate::clock::of_machine())
}
