//! Commands that run another program. The relay is a program of its own because it needs databases
//! and brokers, which the coordinator does not know.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::{CliFailure, Exit};

const RELAY: &str = "handfast-relay";

/// Replaces this process by the relay, so that signals and exit codes are the relay's own. Returns
/// only if that fails.
pub(super) fn relay(command: Option<&str>, arguments: Vec<OsString>) -> CliFailure {
    let program = beside().unwrap_or_else(|| PathBuf::from(RELAY));
    let error = Command::new(&program).args(command).args(arguments).exec();
    let message = format!("{}: {error}", program.display());
    CliFailure::new(Exit::Failed, "HF-CLI-RELAY", message)
        .advise("install handfast-relay beside handfast, or where PATH finds it")
}

/// Returns the relay in the directory of this program, if it exists.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(RELAY)).filter(|path| path.is_file())
}
