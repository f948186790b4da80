//! Commands that are a program of their own: the relay knows databases and brokers, which the
//! coordinator does not.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::{CliFailure, Exit};

const RELAY: &str = "handfast-relay";

/// Becomes the relay's program, so that signals and exit codes are its own. Returns only if it
/// cannot.
pub(super) fn relay(command: Option<&str>, arguments: Vec<OsString>) -> CliFailure {
    let program = beside().unwrap_or_else(|| PathBuf::from(RELAY));
    let error = Command::new(&program).args(command).args(arguments).exec();
    let message = format!("{}: {error}", program.display());
    CliFailure::new(Exit::Failed, "HF-CLI-RELAY", message)
        .advise("install handfast-relay beside handfast, or where PATH finds it")
}

/// The relay in the directory of this program, if it is there.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(RELAY)).filter(|path| path.is_file())
}
