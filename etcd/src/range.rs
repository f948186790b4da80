//! Ranges of keys.

use crate::api::KeyValue;

/// The keys from the first up to, and without, the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: Vec<u8>,
    /// The key behind the last one.
    pub to: Vec<u8>,
}

/// The first keys of a range.
#[derive(Clone, Debug)]
pub struct RangePage {
    /// The keys, in their order.
    pub keys: Vec<KeyValue>,
    /// The newest revision of the store.
    pub revision: i64,
    /// Whether the limit has left out keys.
    pub has_more: bool,
}

impl KeyRange {
    /// Returns the range of one key.
    #[must_use]
    pub fn one(key: Vec<u8>) -> Self {
        let to = [&key[..], b"\0"].concat();
        Self { from: key, to }
    }

    /// Returns the range of all keys that begin with a text.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let from = prefix.into();
        let mut to = from.clone();
        while to.pop_if(|last| *last == u8::MAX).is_some() {}
        match to.last_mut() {
            Some(last) => *last += 1,
            // To etcd, this is the end of all keys.
            None => to = vec![0],
        }
        Self { from, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        let ends = |prefix: &[u8]| KeyRange::with_prefix(prefix).to;
        assert_eq!(ends(b"a/"), b"a0");
        assert_eq!(ends(b"a\xff"), b"b");
        assert_eq!(ends(b""), b"\0");
    }
}
