//! The keys of transactions that this process has under way, so that two attempts of one request do
//! not work in one global.
//!
//! The coordinator tells apart the attempts of different processes, and those that are over. It
//! cannot tell a second attempt of this process from a begin that was sent again after its answer
//! was lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The keys that are under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BeginKeys {
    claimed: Arc<Mutex<BTreeSet<String>>>,
}

/// A key that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimedKey {
    keys: BeginKeys,
    key: String,
}

impl BeginKeys {
    /// Claims a key. Returns `None` if it is under way.
    pub(crate) fn claim(&self, key: &str) -> Option<ClaimedKey> {
        let is_free = self.change(|keys| keys.insert(key.to_owned()));
        is_free.then(|| ClaimedKey { keys: self.clone(), key: key.to_owned() })
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        // No step between lock and unlock leaves the set half changed.
        change(&mut self.claimed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        self.keys.change(|keys| keys.remove(&self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_once_at_a_time() {
        let keys = BeginKeys::default();
        let claimed = keys.claim("request-17").unwrap();
        assert!(keys.claim("request-17").is_none());
        assert!(keys.claim("request-18").is_some());
        drop(claimed);
        assert!(keys.claim("request-17").is_some());
    }
}
