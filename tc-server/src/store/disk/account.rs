//! What was done to a directory, call by call, while a test asks for it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// A call and what it was about, by its name within the directory.
#[derive(Clone, Debug)]
pub(in crate::store) struct Entry {
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
    /// No call: so many batches were acknowledged.
    Acknowledged(u64),
}

/// The directories of which account is kept.
static ACCOUNTS: Mutex<Vec<(PathBuf, Vec<Entry>)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(PathBuf, Vec<Entry>)>> {
    ACCOUNTS.lock().expect("no test panics while it has the accounts")
}

/// Keeps account of all that is under a directory.
pub(in crate::store) fn begin(directory: &Path) {
    lock().push((directory.to_owned(), Vec::new()));
}

/// The account of a directory.
pub(in crate::store) fn end(directory: &Path) -> Vec<Entry> {
    let mut accounts = lock();
    let place = accounts.iter().position(|(of, _)| of == directory);
    place.map(|place| accounts.swap_remove(place).1).unwrap_or_default()
}

pub(in crate::store) fn note(path: &Path, call: impl FnOnce() -> Call) {
    let mut accounts = lock();
    let account = accounts.iter_mut().find(|(directory, _)| path.starts_with(directory));
    let Some((directory, entries)) = account else { return };
    let within = |path: &Path| path.strip_prefix(&*directory).map(Path::to_owned);
    let mut call = call();
    if let Call::Rename(to) = &mut call {
        *to = within(to).expect("nothing leaves the directory");
    }
    entries.push(Entry { path: within(path).expect("it is in there"), call });
}
