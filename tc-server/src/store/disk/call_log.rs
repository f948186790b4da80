//! A log of the file system calls on a directory, for tests.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// A call and its file, by the name within the directory.
#[derive(Clone, Debug)]
pub(in crate::store) struct LoggedCall {
    pub(in crate::store) path: PathBuf,
    pub(in crate::store) call: Call,
}

#[derive(Clone, Debug)]
pub(in crate::store) enum Call {
    Create,
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    SetLen(u64),
    Sync,
    Rename(PathBuf),
    Remove,
    SyncNames,
    /// Not a call: this many batches were acknowledged.
    Acknowledged(u64),
}

/// The directories whose calls are logged.
static LOGS: Mutex<Vec<(PathBuf, Vec<LoggedCall>)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(PathBuf, Vec<LoggedCall>)>> {
    LOGS.lock().expect("no test panics while it holds the logs")
}

/// Starts logging the calls on everything under a directory.
pub(in crate::store) fn start(directory: &Path) {
    lock().push((directory.to_owned(), Vec::new()));
}

/// Stops logging, and returns the log of the directory.
pub(in crate::store) fn finish(directory: &Path) -> Vec<LoggedCall> {
    let mut logs = lock();
    let place = logs.iter().position(|(of, _)| of == directory);
    place.map(|place| logs.swap_remove(place).1).unwrap_or_default()
}

pub(in crate::store) fn record(path: &Path, call: impl FnOnce() -> Call) {
    let mut logs = lock();
    let log = logs.iter_mut().find(|(directory, _)| path.starts_with(directory));
    let Some((directory, entries)) = log else { return };
    let within = |path: &Path| path.strip_prefix(&*directory).map(Path::to_owned);
    let mut call = call();
    if let Call::Rename(to) = &mut call {
        *to = within(to).expect("nothing leaves the directory");
    }
    entries.push(LoggedCall { path: within(path).expect("it is in there"), call });
}
