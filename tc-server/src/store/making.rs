//! Makes the file of the records: as a whole, or not at all.
//!
//! It is the first thing that a directory gets, before the journal. So where it is missing beside
//! anything of a store, it was lost, and the store is not begun anew.

use std::fs;
use std::io;
use std::path::Path;

use handfast_core::Epoch;

use super::journal::frame::Seed;
use super::journal::{Mark, SEGMENTS};
use super::records::{self, RECORDS, Records, open_error};
use super::suspect::{SOUND, SUSPECT};
use super::zeroes::is_blank;
use super::{StoreError, disk, migration};

/// What a first start that was cut off may have left of an earlier program.
const FORMERLY_MAKING: &str = "records.making";

/// Has the records there: as they are, as an earlier program left them, or new.
pub(super) fn make_unless_made(directory: &Path, segment_bytes: u64) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    let records = directory.join(RECORDS);
    if records::file(directory).try_exists().map_err(failed)? {
        return migration::remove_rest(&records).map_err(failed);
    }
    if migration::is_needed(&records).map_err(failed)? {
        return migration::migrate(directory, segment_bytes);
    }
    expect_nothing(directory)?;
    let begin = || {
        for left in [&records, &directory.join(FORMERLY_MAKING)] {
            if left.try_exists()? {
                disk::remove(left)?;
            }
        }
        let seed = Seed::new(rand::random());
        let mark = Mark { applied: 0, seed, segment_bytes, in_use: false };
        make(directory, Epoch(0), mark, Vec::new())
    };
    begin().map_err(failed)
}

/// Makes the file of the records under another name, and has it there when it is whole.
pub(super) fn make(
    directory: &Path,
    epoch: Epoch,
    mark: Mark,
    content: Vec<(Vec<u8>, Vec<u8>)>,
) -> io::Result<()> {
    let records = directory.join(RECORDS);
    fs::create_dir_all(&records)?;
    disk::sync_directory(directory)?;
    let file = records::file(directory);
    let making = file.with_extension("making");
    Records::create(&making, epoch, mark, content)?;
    disk::rename(&making, &file)?;
    disk::sync_directory(&records)
}

/// A directory without records has no other part of a store.
fn expect_nothing(directory: &Path) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    for name in [SEGMENTS[0], SEGMENTS[1], SOUND, SUSPECT] {
        if directory.join(name).try_exists().map_err(failed)? {
            let reason = format!("{name} is there, and {RECORDS} is missing");
            return Err(StoreError::Journal { directory: directory.to_owned(), reason });
        }
    }
    let records = directory.join(RECORDS);
    if !is_left_of_a_first_start(&records).map_err(failed)? {
        let reason = format!("{RECORDS} holds files of no store");
        return Err(StoreError::Journal { directory: directory.to_owned(), reason });
    }
    Ok(())
}

/// Nothing but zeroes, or what was not made to the end.
fn is_left_of_a_first_start(records: &Path) -> io::Result<bool> {
    if !records.try_exists()? {
        return Ok(true);
    }
    for entry in fs::read_dir(records)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_unfinished = name == "records.making" || name == migration::VERSION;
        // What is short of a version, or of the rename, was not in use.
        if !is_unfinished && !is_blank(&entry.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}
