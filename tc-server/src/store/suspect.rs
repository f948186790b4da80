//! Has a start know that a write or a sync before it has failed.
//!
//! What a failed sync could not write counts as written from then on, and is read back until the
//! machine is off. A start would so find a mark in the engine's log that is not on the disk, and
//! have the journal written over. It writes the log anew instead, before the engine reads it.
//!
//! The failure is noted by renaming a file: that takes no room, and need not be durable, since
//! after a power cut only what is on the disk is read.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::records::RECORDS;
use super::zeroes;

const SOUND: &str = "records.sound";
const SUSPECT: &str = "records.suspect";
/// How the names of the engine's logs end.
const LOG: &str = "jnl";

/// Notes that the disk may lack what is read from it.
pub(super) fn note(directory: &Path) {
    let noted = fs::rename(directory.join(SOUND), directory.join(SUSPECT));
    // Without the one there is the other, or nothing yet.
    if let Err(error) = noted
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, directory = %directory.display(), "a failed write is not noted");
    }
}

/// Has on the disk what is read, if it may not be.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    let (sound, suspect) = (directory.join(SOUND), directory.join(SUSPECT));
    if suspect.try_exists()? {
        tracing::warn!("a write failed before: writing the log of the records anew");
        write_logs_anew(&directory.join(RECORDS))?;
        return fs::rename(suspect, sound);
    }
    if !sound.try_exists()? {
        File::create(sound)?;
    }
    Ok(())
}

fn write_logs_anew(records: &Path) -> io::Result<()> {
    for entry in fs::read_dir(records)? {
        let log = entry?.path();
        if log.extension().is_some_and(|extension| extension == LOG) {
            let copy = log.with_extension("copy");
            zeroes::copy(&log, &copy)?;
            fs::rename(copy, log)?;
        }
    }
    File::open(records)?.sync_all()
}
