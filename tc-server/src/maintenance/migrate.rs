//! Moves the records of a store into another one.
//!
//! Both stores are led meanwhile. The order matters: the source is closed before the target is
//! opened, so that at no moment two coordinators can continue from the same records. A move that
//! was broken off is run again from its source, whose records are unchanged, closed or not.

use handfast_core::{ClosureReason, ClosureRecord, Epoch, Record};

use super::check::{RecordCounts, fit_together};
use super::copy::{close, closure_of, fill, open};
use super::source::{LedStore, lead, place_of, read_records};
use super::{MaintenanceError, epoch_of_clock};
use crate::config::Config;
use crate::crash_point::crash_point;

/// A store that has moved.
#[derive(Clone, Debug)]
pub struct MovedStore {
    /// Where the records were.
    pub from: String,
    /// Where they are.
    pub to: String,
    /// How many.
    pub records: RecordCounts,
    /// The epoch that the target has reached, above every epoch of the source.
    pub epoch: Epoch,
}

/// Moves the records of one configured store into the empty store of another configuration, and
/// leaves the source closed.
///
/// # Errors
///
/// The move was not made. The target is as it was, or closed until the move is run again.
pub async fn migrate(from: &Config, to: &Config) -> Result<MovedStore, MaintenanceError> {
    let (place, target_place) = (place_of(from), place_of(to));
    if place == target_place {
        return Err(MaintenanceError::SamePlace { place });
    }
    // Finds what is wrong with the source before anything is written, and does not create a missing
    // store.
    read_records(from).await?;
    let source = lead(from, epoch_of_clock()).await?;
    let moved = move_from(&source, from, to).await;
    // Also after a failure: another attempt need not wait for the lead to run out.
    source.release().await;
    moved
}

async fn move_from(
    source: &LedStore,
    from: &Config,
    to: &Config,
) -> Result<MovedStore, MaintenanceError> {
    let (place, target_place) = (place_of(from), place_of(to));
    let is_again = is_begun(source, &target_place)?;
    let records = without_closure(&source.records);
    fit_together(&place, source.epoch, &from.limits, records.clone())?;
    // Every number that the source has given out begins with an epoch before this one.
    let target = lead(to, source.epoch.next()).await?;
    // If the source is closed and the target is not, that move was completed, and the target may
    // have gone on since.
    if is_again && !is_incomplete(&target) {
        return Err(closed(source));
    }
    let target = fill(target, &records, &place).await?;
    crash_point("after-copy");
    // From here to the opening no coordinator can continue from either of the two.
    source.commit(vec![close(ClosureReason::Moved, &target_place)]).await?;
    crash_point("after-close");
    let epoch = target.epoch;
    open(target).await?;
    Ok(MovedStore { from: place, to: target_place, records: RecordCounts::of(&records), epoch })
}

/// Returns whether an earlier move to this target was broken off after the closing of the source.
fn is_begun(source: &LedStore, target: &str) -> Result<bool, MaintenanceError> {
    match closure_of(&source.records) {
        None => Ok(false),
        Some(ClosureRecord { reason: ClosureReason::Moved, place, .. }) if **place == *target => {
            Ok(true)
        }
        Some(_) => Err(closed(source)),
    }
}

fn is_incomplete(target: &LedStore) -> bool {
    closure_of(&target.records).is_some_and(|it| it.reason == ClosureReason::Incomplete)
}

fn closed(source: &LedStore) -> MaintenanceError {
    let closure = closure_of(&source.records).expect("the caller has found it").clone();
    MaintenanceError::Closed { place: source.place.clone(), closure }
}

fn without_closure(records: &[Record]) -> Vec<Record> {
    let is_closure = |record: &&Record| matches!(record, Record::Closure(_));
    records.iter().filter(|record| !is_closure(record)).cloned().collect()
}
