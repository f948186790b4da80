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
    /// Holds the operating system's lock, which ends when the file is closed.
    _file: File,
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
        Ok(Self { directory: directory.to_owned(), _file: file })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
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
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !directory.is_dir() => {
            Err(error)
        }
        _ => File::open(above)?.sync_all(),
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}
