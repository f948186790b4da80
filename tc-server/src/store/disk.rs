//! The store's calls to the file system that a power cut can undo.
//!
//! They are in one place so that a test can log them and cut the power after any of them
//! (`power_cut`). Outside tests they are the operating system's calls and nothing else.

#[cfg(test)]
pub(super) mod call_log;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
use call_log::Call;

/// A file that is written in place.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    path: PathBuf,
}

impl DiskFile {
    /// Opens an existing file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Creates an empty file, replacing an existing one.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(path)?;
        #[cfg(test)]
        call_log::record(path, || Call::Create);
        Ok(Self { file, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        #[cfg(test)]
        call_log::record(&self.path, || Call::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        #[cfg(test)]
        call_log::record(&self.path, || Call::SetLen(bytes));
        Ok(())
    }

    /// Waits until the written bytes are on the disk.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        #[cfg(test)]
        call_log::record(&self.path, || Call::Sync);
        Ok(())
    }
}

/// Replaces a file by another, atomically.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    #[cfg(test)]
    call_log::record(from, || Call::Rename(to.to_owned()));
    Ok(())
}

/// Removes a file, or a directory with everything in it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)?
    } else {
        fs::remove_file(path)?
    }
    #[cfg(test)]
    call_log::record(path, || Call::Remove);
    Ok(())
}

/// Waits until the names in a directory are on the disk.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()?;
    #[cfg(test)]
    call_log::record(directory, || Call::SyncNames);
    Ok(())
}
