//! The keys of a store in etcd.
//!
//! ```text
//! /handfast/{namespace}/head                           position of the newest batch
//!                      /mark                           position that the records stand at
//!                      /lease                          the node that leads
//!                      /node/{id}                      a node that is there
//!                      /journal/{number}               a batch
//!                      /part/{epoch}/{number}/{part}   a part of one too large for a request
//!                      /record/{key}                   a record
//!                      /record/{key}/{part}            the rest of one too large for a request
//! ```
//!
//! Numbers and keys are in hexadecimal, with all their digits, so that etcd's order is theirs.

use std::fmt;

use handfast_core::Epoch;
use handfast_etcd::KeyRange;

/// The longest name of a namespace.
const NAMESPACE_MAX: usize = 64;

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// A batch by the epoch of its leader and its number.
///
/// A later leader's positions are greater than those of an earlier one, since both parts grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) epoch: Epoch,
    pub(super) number: u64,
}

impl Keys {
    /// Returns `None` if the name has characters other than letters, digits, `-`, `_` and `.`, has
    /// none, or is too long.
    pub(super) fn of(namespace: &str) -> Option<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = (1..=NAMESPACE_MAX).contains(&namespace.len());
        let is_name = is_name && namespace.chars().all(is_allowed);
        is_name.then(|| Self { prefix: format!("/handfast/{namespace}") })
    }

    pub(super) fn head(&self) -> Vec<u8> {
        self.key("head")
    }

    pub(super) fn mark(&self) -> Vec<u8> {
        self.key("mark")
    }

    pub(super) fn lease(&self) -> Vec<u8> {
        self.key("lease")
    }

    pub(super) fn node(&self, id: &str) -> Vec<u8> {
        self.key(&format!("node/{id}"))
    }

    pub(super) fn nodes(&self) -> KeyRange {
        KeyRange::with_prefix(self.key("node/"))
    }

    pub(super) fn journal(&self, number: u64) -> Vec<u8> {
        self.key(&format!("journal/{number:016x}"))
    }

    /// Returns the batches behind the first number, up to the second.
    pub(super) fn journal_between(&self, behind: u64, last: u64) -> KeyRange {
        KeyRange { from: self.journal(behind + 1), to: self.journal(last + 1) }
    }

    /// Returns the number of a batch's key.
    pub(super) fn journal_number(&self, key: &[u8]) -> Option<u64> {
        number(self.behind("journal/", key)?)
    }

    pub(super) fn part(&self, batch: Position, part: usize) -> Vec<u8> {
        [self.parts_of(batch).from, format!("{part:08x}").into_bytes()].concat()
    }

    pub(super) fn parts_of(&self, batch: Position) -> KeyRange {
        let Position { epoch, number } = batch;
        KeyRange::with_prefix(self.key(&format!("part/{:016x}/{number:016x}/", epoch.0)))
    }

    /// Returns the parts of all batches up to this one.
    pub(super) fn parts_until(&self, batch: Position) -> KeyRange {
        KeyRange { from: self.key("part/"), to: self.parts_of(batch).to }
    }

    /// Returns the key of a record, or of its first part.
    pub(super) fn record(&self, key: &[u8]) -> Vec<u8> {
        let digits = key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.key(&format!("record/{digits}"))
    }

    pub(super) fn record_part(&self, key: &[u8], part: u16) -> Vec<u8> {
        [self.record(key), format!("/{part:04x}").into_bytes()].concat()
    }

    /// Returns a record with all its parts.
    pub(super) fn all_of_record(&self, key: &[u8]) -> KeyRange {
        let from = self.record(key);
        // The digit 0 follows the slash, and no key of a record is the beginning of another one.
        let to = [&from[..], b"0"].concat();
        KeyRange { from, to }
    }

    pub(super) fn records(&self) -> KeyRange {
        KeyRange::with_prefix(self.key("record/"))
    }

    /// Returns the record that a key in etcd belongs to, and the part: 0 for the first.
    pub(super) fn record_of(&self, key: &[u8]) -> Option<(Vec<u8>, u16)> {
        let text = self.behind("record/", key)?;
        let (digits, part) = text.split_once('/').unwrap_or((text, "0"));
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let record = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
        Some((record, u16::from_str_radix(part, 16).ok()?))
    }

    fn key(&self, rest: &str) -> Vec<u8> {
        format!("{}/{rest}", self.prefix).into_bytes()
    }

    fn behind<'k>(&self, folder: &str, key: &'k [u8]) -> Option<&'k str> {
        let text = str::from_utf8(key).ok()?;
        text.strip_prefix(&self.prefix)?.strip_prefix('/')?.strip_prefix(folder)
    }
}

impl Position {
    /// Reads what `Display` has written.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (epoch, batch) = str::from_utf8(value).ok()?.split_once('/')?;
        Some(Self { epoch: Epoch(number(epoch)?), number: number(batch)? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{:016x}", self.epoch.0, self.number)
    }
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::of("orders").unwrap()
    }

    #[test]
    fn keys_are_read_back() {
        let keys = keys();
        assert_eq!(keys.journal_number(&keys.journal(0xab)), Some(0xab));
        assert_eq!(keys.journal_number(b"/handfast/orders2/journal/01"), None);
        assert_eq!(keys.record_of(&keys.record(b"g1")), Some((b"g1".to_vec(), 0)));
        assert_eq!(keys.record_of(&keys.record_part(b"g1", 12)), Some((b"g1".to_vec(), 12)));
        let position = Position { epoch: Epoch(3), number: 77 };
        assert_eq!(Position::read(position.to_string().as_bytes()), Some(position));
        assert_eq!(Position::read(b"3"), None);
    }

    #[test]
    fn a_record_with_all_its_parts_is_not_its_neighbours() {
        let keys = keys();
        let range = keys.all_of_record(b"g1");
        let holds = |key: &Vec<u8>| *key >= range.from && *key < range.to;
        assert!(holds(&keys.record(b"g1")) && holds(&keys.record_part(b"g1", u16::MAX)));
        assert!(!holds(&keys.record(b"g2")) && !holds(&keys.record(b"g0")));
        assert!(!holds(&keys.record_part(b"g0", 1)));
    }

    #[test]
    fn parts_until_a_batch_are_those_of_earlier_epochs_and_numbers() {
        let keys = keys();
        let at = |epoch, number| Position { epoch: Epoch(epoch), number };
        let range = keys.parts_until(at(7, 5));
        let holds = |batch| {
            let key = keys.part(batch, 3);
            key >= range.from && key < range.to
        };
        assert!(holds(at(7, 5)) && holds(at(7, 4)) && holds(at(6, 9)));
        assert!(!holds(at(7, 6)) && !holds(at(8, 1)));
    }

    #[test]
    fn a_namespace_is_a_plain_name() {
        assert!(Keys::of("orders-2.eu_west").is_some());
        for wrong in ["", "a/b", "ä", &"a".repeat(65)] {
            assert!(Keys::of(wrong).is_none(), "{wrong}");
        }
    }
}
