//! What the store has the file system do: every call that a power cut can undo.
//!
//! They are in one place so that a test can keep account of them and have the power cut behind any
//! of them (`power_cut`). In the program they are the system's calls and nothing else.

#[cfg(test)]
pub(super) mod account;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
use account::Call;

/// A file that is written in place.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    path: PathBuf,
}

impl DiskFile {
    /// A file that is there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// An empty file, in place of one that is there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(path)?;
        #[cfg(test)]
        account::note(path, || Call::Create);
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
        account::note(&self.path, || Call::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        #[cfg(test)]
        account::note(&self.path, || Call::SetLen(bytes));
        Ok(())
    }

    /// What has been written is on the disk when this returns.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        #[cfg(test)]
        account::note(&self.path, || Call::Sync);
        Ok(())
    }
}

/// Puts a file in the place of another, as a whole or not at all.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    #[cfg(test)]
    account::note(from, || Call::Rename(to.to_owned()));
    Ok(())
}

/// Removes a file, or a directory with all that is in it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)?
    } else {
        fs::remove_file(path)?
    }
    #[cfg(test)]
    account::note(path, || Call::Remove);
    Ok(())
}

/// Has the names in a directory on the disk.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()?;
    #[cfg(test)]
    account::note(directory, || Call::SyncNames);
    Ok(())
}
