//! The data directory, which one process at a time may use.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::StoreError;

/// The directory of the records within the data directory.
pub(super) const RECORDS: &str = "records";

/// Holds a data directory for this process until dropped. A killed process releases it too.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    /// Holds the operating system's lock.
    file: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    ///
    /// When another process holds it, or it cannot be created or written.
    pub fn take(directory: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { directory: directory.to_owned(), source };
        make(directory).map_err(failed)?;
        let path = directory.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&mut file);
                return Err(StoreError::DirectoryLocked {
                    directory: directory.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The content only names the holder to a refused process. The lock is on the file itself.
        file.set_len(0).map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { directory: directory.to_owned(), file })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for DirectoryLock {
    /// Unlocks the file, because closing it need not: a child that this process starts meanwhile
    /// has the file open too until it runs its own program, and the lock ends with the last one.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(directory = %self.directory.display(), %error, "the lock stays for now");
        }
    }
}

/// Creates the directory and its missing ancestors, durably.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let above = match directory.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    make(above)?;
    // Another process may make it at the same moment. Its name is durable with the directory above.
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !directory.is_dir() => {
            Err(error)
        }
        _ => File::open(above)?.sync_all(),
    }
}

/// Returns whether a directory has records, whole or not.
pub(crate) fn holds_records(directory: &Path) -> bool {
    directory.join(RECORDS).exists()
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child has every open file of its parent until it runs its own program.
    #[test]
    fn a_directory_is_free_while_a_child_has_its_lock_open() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let _of_the_child = lock.file.try_clone().unwrap();
        assert!(DirectoryLock::take(directory.path()).is_err());
        drop(lock);
        DirectoryLock::take(directory.path()).unwrap();
    }
}
