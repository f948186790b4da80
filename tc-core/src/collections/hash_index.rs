//! A hash index that cannot be iterated.
//!
//! Order that depends on hashes must never reach an outcome (PURE), so this type offers look-up,
//! insertion and removal, and nothing that walks its entries except a sweep whose result does not
//! depend on the order. The hash is fixed: the same inputs also take the same time.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Entries found by a hash and an equality that the caller supplies.
#[derive(Clone)]
pub(crate) struct HashIndex<T> {
    table: HashTable<T>,
}

impl<T> HashIndex<T> {
    pub(crate) fn new() -> Self {
        Self { table: HashTable::new() }
    }

    /// Makes room for entries to come, so that those that are in are not hashed again meanwhile.
    pub(crate) fn reserve(&mut self, entries: usize, rehash: impl Fn(&T) -> u64) {
        self.table.reserve(entries, rehash);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.table.find(hash, is)
    }

    /// Adds an entry that is not there; `rehash` gives the hash of entries already in.
    pub(crate) fn insert(&mut self, hash: u64, entry: T, rehash: impl Fn(&T) -> u64) {
        self.table.insert_unique(hash, entry, rehash);
    }

    pub(crate) fn remove(&mut self, hash: u64, is: impl FnMut(&T) -> bool) {
        if let Ok(entry) = self.table.find_entry(hash, is) {
            entry.remove();
        }
    }

    /// Keeps the entries that `keep` is true for. `keep` must not depend on the order.
    pub(crate) fn sweep(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.table.retain(|entry| keep(entry));
    }
}

impl<T> fmt::Debug for HashIndex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashIndex").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Any number does; that it is always the same one is what matters.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The fixed hash of a value.
pub(crate) fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    FixedState::with_seed(SEED).hash_one(value)
}
