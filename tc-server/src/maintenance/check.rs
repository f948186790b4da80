//! Checks that records are whole and fit together, as a coordinator that loads them would find
//! them.

use handfast_core::{Coordinator, Counts, Epoch, Limits, LoadError, Record};

use serde::Serialize;

use super::MaintenanceError;
use super::source::{StoredRecords, place_of, read_records};
use crate::config::Config;
use crate::store::SnapshotOrigin;

/// A store whose records are whole.
#[derive(Clone, Debug)]
pub struct CheckedStore {
    /// The store that was read.
    pub origin: SnapshotOrigin,
    /// How many records of each kind there are.
    pub records: RecordCounts,
    /// The sizes of the state that a coordinator makes of them.
    pub state: Counts,
}

/// How many records there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordCounts {
    /// Globals, unfinished or remembered.
    pub globals: usize,
    /// Branches.
    pub branches: usize,
    /// Sagas, unfinished or remembered.
    pub sagas: usize,
    /// Leases of named locks.
    pub leases: usize,
}

/// Reads all records of the configured store, which a coordinator may be using if it is a shared
/// one, and checks that they fit together.
///
/// # Errors
///
/// The first problem that was found.
pub async fn check(config: &Config) -> Result<CheckedStore, MaintenanceError> {
    let StoredRecords { origin, records } = read_records(config).await?;
    let counts = RecordCounts::of(&records);
    let state = fit_together(&place_of(config), origin.epoch.next(), &config.limits, records)?;
    Ok(CheckedStore { origin, records: counts, state })
}

/// Checks that the records fit together and are of epochs before this one.
pub(super) fn fit_together(
    place: &str,
    epoch: Epoch,
    limits: &Limits,
    records: Vec<Record>,
) -> Result<Counts, MaintenanceError> {
    let place = || place.to_owned();
    let coordinator = Coordinator::load(epoch, "check".into(), limits.clone(), records);
    let coordinator = coordinator.map_err(|error| {
        if let LoadError::Closed(closure) = error {
            MaintenanceError::Closed { place: place(), closure }
        } else {
            MaintenanceError::Contradiction { place: place(), source: error }
        }
    })?;
    let broken = |what| MaintenanceError::Invariant { place: place(), what };
    coordinator.check_invariants().map_err(broken)?;
    Ok(coordinator.counts())
}

impl RecordCounts {
    /// Counts records.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let mut counts = Self::default();
        for record in records {
            match record {
                Record::Global(_) => counts.globals += 1,
                Record::Branch(_) => counts.branches += 1,
                Record::Saga(_) => counts.sagas += 1,
                Record::Lease(_) => counts.leases += 1,
                Record::Closure(_) => {}
            }
        }
        counts
    }
}
