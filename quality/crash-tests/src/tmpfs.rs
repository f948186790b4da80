//! A small file system that a test fills. Making one takes the right to mount.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// A mounted file system of a few megabytes. Dropping it unmounts it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts it; `None` where this process may not.
    ///
    /// # Errors
    /// When mounting fails for another reason.
    pub fn mount(bytes: u64) -> Result<Option<Self>> {
        let folder = tempfile::Builder::new().prefix("handfast-disk-").tempdir()?;
        let (size, kind) = (format!("size={bytes}"), Some("tmpfs"));
        let target = folder.path();
        match mount(kind, target, kind, MsFlags::empty(), Some(size.as_str())) {
            Ok(()) => Ok(Some(Self { folder })),
            Err(Errno::EPERM | Errno::EACCES) => Ok(None),
            Err(error) => Err(error).context("mounting a tmpfs"),
        }
    }

    /// Returns the folder it is mounted on.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all the room that is left.
    ///
    /// # Errors
    /// When writing fails for another reason than that.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler())?;
        // In smaller and smaller pieces, so that not a byte is left.
        for piece in [1 << 16, 1 << 12, 1] {
            loop {
                match file.write(&vec![0; piece]) {
                    Ok(0) => bail!("a file takes nothing and does not say why"),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("filling the disk"),
                }
            }
        }
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When it was not filled.
    pub fn free(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("freeing the disk")
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was killed just now may not have closed its files yet. What fails
        // here leaves an empty folder behind, no more.
        let _ = umount2(self.folder.path(), MntFlags::MNT_DETACH);
    }
}
