//! Puts a backup into an empty store.
//!
//! All decisions after the backup are lost, and with them the knowledge of which numbers were given
//! out since. So the store continues at an epoch that no coordinator can have reached meanwhile.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use handfast_core::{Epoch, Record};

use super::check::{RecordCounts, fit_together};
use super::copy::{fill, open};
use super::source::{lead, place_of};
use super::{MaintenanceError, epoch_of_clock};
use crate::backup::{BackupError, BackupHead, read_backup};
use crate::config::Config;
use crate::store::codec;

/// By how much the epoch is raised beyond every one that is known of. Each start and each change of
/// leader raises it by one, or to the epoch of the clock if that is higher. Fewer: numbers of a
/// coordinator that was restarted again and again since the backup could be given out a second
/// time. More: the last epoch comes nearer, of which there are sixteen million.
const EPOCHS_AHEAD: u64 = 1 << 16;

/// A store that was filled from a backup.
#[derive(Clone, Debug)]
pub struct RestoredStore {
    /// The store.
    pub place: String,
    /// The backup's description.
    pub head: BackupHead,
    /// How many records it has.
    pub records: RecordCounts,
    /// The epoch that the store has reached.
    pub epoch: Epoch,
}

/// Puts a backup into the configured store, which must be empty. The next coordinator leads in an
/// epoch above that of the backup, that of the clock and `epoch_above`, far enough that nothing
/// given out since is given out again.
///
/// # Errors
///
/// The backup was not put in. The store is as it was, or closed until this is done again.
pub async fn restore(
    file: &Path,
    config: &Config,
    epoch_above: Epoch,
) -> Result<RestoredStore, MaintenanceError> {
    let damaged = |source| MaintenanceError::Backup { file: file.to_owned(), source };
    // The whole file is read before the store is opened: a backup that was cut shows it only at its
    // end.
    let (head, records) = read(file).map_err(damaged)?;
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let backup = format!("the backup {}", path.display());
    let floor = epoch_floor(Epoch(head.epoch), epoch_above, epoch_of_clock());
    fit_together(&backup, Epoch(head.epoch).next(), &config.limits, records.clone())?;
    // Whether the epoch leaves room for numbers.
    fit_together(&backup, floor.next(), &config.limits, Vec::new())?;
    let target = fill(lead(config, floor).await?, &records, &backup).await?;
    let (epoch, place) = (target.epoch, place_of(config));
    open(target).await?;
    Ok(RestoredStore { place, head, records: RecordCounts::of(&records), epoch })
}

fn epoch_floor(of_backup: Epoch, known: Epoch, of_clock: Epoch) -> Epoch {
    let highest = of_backup.max(known).max(of_clock);
    Epoch(highest.0.saturating_add(EPOCHS_AHEAD))
}

fn read(file: &Path) -> Result<(BackupHead, Vec<Record>), BackupError> {
    let mut stored = Vec::new();
    let input = BufReader::new(File::open(file)?);
    let (head, _count) = read_backup(input, |record| stored.push(record))?;
    let decoded = stored.iter().map(|(key, value)| codec::decode(key, value));
    let records = decoded.collect::<Result<Vec<Record>, _>>();
    Ok((head, records.map_err(|error| BackupError::Damaged(error.to_string()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_store_is_ahead_of_all_that_is_known() {
        let floors = [
            epoch_floor(Epoch(9), Epoch(0), Epoch(5)),
            epoch_floor(Epoch(5), Epoch(9), Epoch(0)),
            epoch_floor(Epoch(0), Epoch(5), Epoch(9)),
        ];
        assert_eq!(floors, [Epoch(9 + EPOCHS_AHEAD); 3]);
    }
}
