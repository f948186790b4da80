//! Marks the data directory after a failed write or sync, so that the next start repairs it.
//!
//! The operating system counts bytes that a failed sync did not write as written, and returns them
//! to readers until the machine is switched off. A start could therefore find a mark in the records
//! that is not on the disk, and overwrite the journal. To prevent that, the start rewrites the file
//! of the records before the storage engine reads it.
//!
//! The marker is set by renaming a file. That needs no disk space. It need not be durable either,
//! since after a power cut only bytes on the disk are read.

use std::io;
use std::path::Path;

use super::directory::RECORDS;
use super::disk::{self, DiskFile};
use super::preallocated;
use super::records;

pub(super) const SOUND: &str = "records.sound";
pub(super) const SUSPECT: &str = "records.suspect";

/// Marks the directory: the disk may lack bytes that can be read from it.
pub(super) fn set(directory: &Path) {
    let marked = disk::rename(&directory.join(SOUND), &directory.join(SUSPECT));
    // `NotFound` means that the marker is already set, or that the directory is still empty.
    if let Err(error) = marked
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, directory = %directory.display(), "a failed write is not marked");
    }
}

/// Rewrites the records if the directory is marked, and clears the marker.
pub(super) fn repair(directory: &Path) -> io::Result<()> {
    let (sound, suspect) = (directory.join(SOUND), directory.join(SUSPECT));
    if suspect.try_exists()? {
        tracing::warn!("an earlier write failed: rewriting the records");
        rewrite_records(directory)?;
        // The marker is cleared last: a start that is killed before this is followed by one that
        // rewrites again.
        return disk::rename(&suspect, &sound);
    }
    if !sound.try_exists()? {
        DiskFile::create(&sound)?;
    }
    Ok(())
}

fn rewrite_records(directory: &Path) -> io::Result<()> {
    let file = records::file(directory);
    let copy = file.with_extension("copy");
    preallocated::copy(&file, &copy)?;
    disk::rename(&copy, &file)?;
    disk::sync_directory(&directory.join(RECORDS))
}
