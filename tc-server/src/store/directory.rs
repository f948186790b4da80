//! The data directory: one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::StoreError;

/// Holds a data directory for this process until dropped; a killed process lets go of it too.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    /// The operating system's lock goes with the open file.
    _file: File,
}

impl DirectoryLock {
    /// Makes the directory if it is missing, and takes it.
    ///
    /// # Errors
    ///
    /// When another process has it, or it cannot be made or written.
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
        // For whoever is refused: it names the holder, the lock itself is the file's.
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

/// Makes the directory and those above it, so that they are still there after a power cut.
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
