//! Has a start know that a write or a sync before it has failed.
//!
//! What a failed sync could not write counts as written from then on, and is read back until the
//! machine is off. A start would so find a mark in the records that is not on the disk, and have
//! the journal written over. It writes the file of the records anew instead, before the engine
//! reads it.
//!
//! The failure is noted by renaming a file: that takes no room, and need not be durable, since
//! after a power cut only what is on the disk is read.

use std::io;
use std::path::Path;

use super::disk::{self, DiskFile};
use super::records::{self, RECORDS};
use super::zeroes;

pub(super) const SOUND: &str = "records.sound";
pub(super) const SUSPECT: &str = "records.suspect";

/// Notes that the disk may lack what is read from it.
pub(super) fn note(directory: &Path) {
    let noted = disk::rename(&directory.join(SOUND), &directory.join(SUSPECT));
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
        tracing::warn!("a write failed before: writing the records anew");
        write_anew(directory)?;
        return disk::rename(&suspect, &sound);
    }
    if !sound.try_exists()? {
        DiskFile::create(&sound)?;
    }
    Ok(())
}

fn write_anew(directory: &Path) -> io::Result<()> {
    let file = records::file(directory);
    let copy = file.with_extension("copy");
    zeroes::copy(&file, &copy)?;
    disk::rename(&copy, &file)?;
    disk::sync_directory(&directory.join(RECORDS))
}
