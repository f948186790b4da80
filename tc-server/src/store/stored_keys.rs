//! Keys that may have a record behind the journal, known without a look at each.
//!
//! Most records live for milliseconds: they are put and deleted within the part of the journal that
//! is carried over at once, and are never among the records. Ids grow, and keys are in their order.
//! So a key has no record if it is greater than every key of its kind that ever had one, or was on
//! its way there. A lesser one may have one, and is deleted in any case.

use hashbrown::HashMap;

/// The greatest key of each kind that may have a record.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct StoredKeys {
    greatest: HashMap<u8, Vec<u8>>,
}

impl StoredKeys {
    /// Notes a key that has a record, or that anything may give one to.
    pub(in crate::store) fn note(&mut self, key: &[u8]) {
        let Some(kind) = key.first() else { return };
        let greatest = self.greatest.entry(*kind).or_default();
        if key > greatest.as_slice() {
            *greatest = key.to_vec();
        }
    }

    /// Returns whether the key may have a record.
    pub(in crate::store) fn may_have(&self, key: &[u8]) -> bool {
        let kind = key.first().and_then(|kind| self.greatest.get(kind));
        kind.is_some_and(|greatest| key <= greatest.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_above_all_of_its_kind_is_not_there() {
        let mut keys = StoredKeys::default();
        assert!(!keys.may_have(b"g1"));
        keys.note(b"g5");
        keys.note(b"g3");
        keys.note(b"s9");
        for key in [&b"g1"[..], b"g3", b"g4", b"g5", b"s1"] {
            assert!(keys.may_have(key), "{key:?}");
        }
        for key in [&b"g6"[..], b"g50", b"h1", b"t0", b""] {
            assert!(!keys.may_have(key), "{key:?}");
        }
    }
}
