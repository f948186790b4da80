//! Makes the directory of the records: as a whole, or not at all.
//!
//! The engine makes its file `version` last, and goes on with no directory of its own that lacks
//! it. A kill, a power cut or a full disk before that would be the end of the data directory. So
//! the engine makes one of another name, and that is renamed.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::records::{RECORDS, Records};
use super::zeroes::is_blank;

const MAKING: &str = "records.making";
const VERSION: &str = "version";
const VERSION_BYTES: u64 = 4;

/// Whether there are records. What a first start that was cut off has left under their name, as
/// that of an earlier program has, is none; an error if it holds anything.
pub(super) fn is_made(directory: &Path) -> io::Result<bool> {
    let records = directory.join(RECORDS);
    if !records.try_exists()? {
        return Ok(false);
    }
    let version = records.join(VERSION);
    if version.try_exists()? && version.metadata()?.len() >= VERSION_BYTES {
        return Ok(true);
    }
    for entry in fs::read_dir(records)? {
        let entry = entry?;
        if entry.file_name() != VERSION && !is_blank(&entry.path())? {
            let lacking = format!("{RECORDS} lacks its file `{VERSION}` and is not empty");
            return Err(io::Error::other(lacking));
        }
    }
    Ok(false)
}

/// Makes the records where there are none.
pub(super) fn make(directory: &Path) -> Result<(), fjall::Error> {
    let (making, records) = (directory.join(MAKING), directory.join(RECORDS));
    for left in [&making, &records] {
        if left.try_exists()? {
            fs::remove_dir_all(left)?;
        }
    }
    drop(Records::open(&making)?);
    fs::rename(making, records)?;
    File::open(directory)?.sync_all()?;
    Ok(())
}
