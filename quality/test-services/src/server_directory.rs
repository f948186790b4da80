//! The directory in which the servers of one run keep their data.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tempfile::TempDir;

use crate::guard::Guard;

/// A temporary directory, and a guard that removes it and ends the servers in it if this process is
/// killed. The directory is removed with the last server that keeps data in it.
#[derive(Debug)]
pub struct ServerDirectory {
    // Fields are dropped in order: the guard goes last.
    folder: TempDir,
    pub(crate) guard: Guard,
}

impl ServerDirectory {
    /// Makes a directory and starts its guard.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be made, or there is no `sh`.
    pub fn new() -> Result<Arc<Self>> {
        let folder = tempfile::Builder::new().prefix("handfast-services-").tempdir()?;
        // The servers run under other accounts and must be able to reach their data.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
        let guard = Guard::start(folder.path())?;
        Ok(Arc::new(Self { folder, guard }))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}
