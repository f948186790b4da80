//! Initializes the data directory by creating the file of the records, atomically.
//!
//! That file is the first part of a directory, before the journal. If it is missing while another
//! part exists, it was lost, and the start fails rather than begin an empty store.

use std::fs;
use std::io;
use std::path::Path;

use handfast_core::Epoch;

use super::directory::RECORDS;
use super::journal::frame::Seed;
use super::journal::{Mark, SEGMENTS};
use super::preallocated::is_blank;
use super::records::{self, create_file, open_error};
use super::write_failure_marker::{SOUND, SUSPECT};
use super::{StoreError, disk, migration};

/// A directory that an interrupted first start of an earlier version may have left.
const FORMERLY_MAKING: &str = "records.making";

/// Makes sure that the file of the records exists: keeps it, migrates it from an earlier version,
/// or creates it empty.
pub(super) fn create_or_migrate(directory: &Path, segment_bytes: u64) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    let records = directory.join(RECORDS);
    if records::file(directory).try_exists().map_err(failed)? {
        return migration::remove_rest(&records).map_err(failed);
    }
    if migration::is_needed(&records).map_err(failed)? {
        return migration::migrate(directory, segment_bytes);
    }
    check_no_other_parts(directory)?;
    let begin = || {
        // The check above has found nothing in them that was ever in use.
        for left in [&records, &directory.join(FORMERLY_MAKING)] {
            if left.try_exists()? {
                disk::remove(left)?;
            }
        }
        let seed = Seed::new(rand::random());
        let mark = Mark { applied: 0, seed, segment_bytes, in_use: false };
        create_file(directory, Epoch(0), mark, Vec::new())
    };
    begin().map_err(failed)
}

/// Checks that a directory without records has no other part of a store.
fn check_no_other_parts(directory: &Path) -> Result<(), StoreError> {
    let failed = |error| open_error(directory, error);
    for name in [SEGMENTS[0], SEGMENTS[1], SOUND, SUSPECT] {
        if directory.join(name).try_exists().map_err(failed)? {
            let reason = format!("{name} is there, and {RECORDS} is missing");
            return Err(StoreError::Journal { directory: directory.to_owned(), reason });
        }
    }
    let records = directory.join(RECORDS);
    if !is_unfinished_first_start(&records).map_err(failed)? {
        let reason = format!("{RECORDS} holds files of no store");
        return Err(StoreError::Journal { directory: directory.to_owned(), reason });
    }
    Ok(())
}

/// Returns whether the directory holds only zeroes and unfinished files.
fn is_unfinished_first_start(records: &Path) -> io::Result<bool> {
    if !records.try_exists()? {
        return Ok(true);
    }
    for entry in fs::read_dir(records)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_unfinished = name == "records.making" || name == migration::VERSION;
        // A file without a complete version, or not yet renamed, was never in use.
        if !is_unfinished && !is_blank(&entry.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}
