//! The nodes of a lock: one for each candidate in the queue, and what is written in it.

use std::fmt::Write;

use crate::backend::LockMode;
use crate::name::{AcquisitionId, LockName};
use crate::queue;

/// The folder of all locks.
pub(super) const LOCKS: &str = "/handfast/locks";

/// A holder or a waiter in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: AcquisitionId,
    /// The mode that it wants, or wanted: a writer that became a reader says so in its node.
    pub(super) mode: LockMode,
    /// Smaller for an earlier arrival.
    number: i64,
    pub(super) path: String,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeValue {
    /// The fencing token that shared holders have in common, once its owner holds one.
    pub(super) fencing_token: Option<i64>,
    pub(super) label: String,
}

impl Candidate {
    /// Returns the candidates in the order of arrival. Foreign nodes are left out.
    pub(super) fn in_order(name: &LockName, children: &[String]) -> Vec<Self> {
        let folder = folder(name);
        let mut candidates: Vec<Self> =
            children.iter().filter_map(|child| Self::read(&folder, child)).collect();
        candidates.sort_by_key(|candidate| candidate.number);
        candidates
    }

    fn read(folder: &str, child: &str) -> Option<Self> {
        let mut words = child.splitn(3, '-');
        let id = AcquisitionId::parse(words.next()?)?;
        let mode = queue::mode_from_number(words.next()?.parse().ok()?);
        let number = words.next()?.parse().ok()?;
        Some(Self { id, mode, number, path: format!("{folder}/{child}") })
    }
}

impl NodeValue {
    /// Formats the value. No label has a control character, so the line break separates.
    pub(super) fn write(&self) -> String {
        let fencing_token =
            self.fencing_token.map(|fencing_token| fencing_token.to_string()).unwrap_or_default();
        format!("{fencing_token}\n{}", self.label)
    }

    pub(super) fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (fencing_token, label) = text.split_once('\n').unwrap_or(("", &text));
        Self { fencing_token: fencing_token.parse().ok(), label: label.to_owned() }
    }
}

/// Returns the folder of a lock's nodes. What a path cannot carry is written as `%2F` is.
pub(super) fn folder(name: &LockName) -> String {
    let mut path = format!("{LOCKS}/");
    for byte in name.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// Returns the path of a node without its number, which ZooKeeper adds. With the id in it, a node
/// whose creation was not answered is found again.
pub(super) fn prefix(name: &LockName, id: AcquisitionId, mode: LockMode) -> String {
    format!("{}/{id}-{}-", folder(name), queue::mode_to_number(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_distinct_folders() {
        let name = |name: &str| folder(&LockName::new(name).unwrap());
        assert_eq!(name("orders/42"), "/handfast/locks/orders%2F42");
        assert_eq!(name("ö%.-_"), "/handfast/locks/%C3%B6%25%2E-_");
    }

    #[test]
    fn candidates_are_ordered_by_number() {
        let name = LockName::new("a").unwrap();
        let [first, second] = [7, 8].map(|number| AcquisitionId { client: 0xab, number });
        let children = [
            prefix(&name, second, LockMode::READ) + "0000000010",
            prefix(&name, first, LockMode::Exclusive) + "0000000009",
            "foreign-node".to_owned(),
        ];
        let names = children.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        let candidates = Candidate::in_order(&name, &names);
        let seen: Vec<_> =
            candidates.iter().map(|candidate| (candidate.id, candidate.mode)).collect();
        assert_eq!(seen, [(first, LockMode::Exclusive), (second, LockMode::READ)]);
        assert_eq!(candidates[0].path, prefix(&name, first, LockMode::Exclusive) + "0000000009");
    }

    #[test]
    fn value_round_trips_through_text() {
        for fencing_token in [None, Some(12)] {
            let text = NodeValue { fencing_token, label: "a label of words".to_owned() };
            assert_eq!(NodeValue::read(text.write().as_bytes()), text);
        }
    }
}
