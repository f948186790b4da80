//! The keys of a lock: one for each holder and waiter, and what is written in it.

use handfast_etcd::{KeyRange, KeyValue};

use crate::backend::LockMode;
use crate::error::BackendError;
use crate::name::{AcquisitionId, FencingToken, Holder, LockName};
use crate::queue;

/// The prefixes of the keys of locks, and of barred ids.
const LOCKS: &str = "handfast/lock/";
const BARRED: &str = "handfast/lock-barred/";

/// A holder or a waiter in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueEntry {
    pub(super) id: AcquisitionId,
    /// The revision at which the key was created: smaller for an earlier arrival.
    pub(super) created: i64,
    /// The revision at which the key was last written.
    pub(super) changed: i64,
    pub(super) lease: i64,
    pub(super) text: EntryValue,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryValue {
    /// Whether its owner knows that it holds the lock.
    pub(super) is_holder: bool,
    pub(super) mode: LockMode,
    /// The fencing token that shared holders have in common. None if it is the revision at which
    /// the key was created.
    pub(super) fencing_token: Option<i64>,
    pub(super) label: String,
}

impl QueueEntry {
    pub(super) fn read(entry: &KeyValue) -> Result<Self, BackendError> {
        let foreign = || {
            let key = String::from_utf8_lossy(&entry.key).into_owned();
            BackendError::lasting(format!("a foreign key among those of locks: {key:?}"))
        };
        let key = str::from_utf8(&entry.key).ok().and_then(|key| key.rsplit('\0').next());
        let id = key.and_then(AcquisitionId::parse).ok_or_else(foreign)?;
        let text =
            str::from_utf8(&entry.value).ok().and_then(EntryValue::read).ok_or_else(foreign)?;
        let (created, changed) = (entry.create_revision, entry.mod_revision);
        Ok(Self { id, created, changed, lease: entry.lease, text })
    }

    pub(super) fn read_all(entries: &[KeyValue]) -> Result<Vec<Self>, BackendError> {
        entries.iter().map(Self::read).collect()
    }

    pub(super) fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.text.fencing_token.unwrap_or(self.created))
    }

    pub(super) fn holder(&self) -> Option<Holder> {
        let label = self.text.label.clone();
        self.text.is_holder.then_some(Holder { id: self.id, label })
    }
}

impl EntryValue {
    pub(super) fn write(&self) -> String {
        let mark = if self.is_holder { "holds" } else { "waits" };
        let (permits, fencing_token) =
            (queue::mode_to_number(self.mode), self.fencing_token.unwrap_or_default());
        format!("{mark} {permits} {fencing_token} {}", self.label)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let is_holder = match words.next()? {
            "holds" => true,
            "waits" => false,
            _ => return None,
        };
        let mode = queue::mode_from_number(words.next()?.parse().ok()?);
        let fencing_token =
            Some(words.next()?.parse().ok()?).filter(|fencing_token| *fencing_token != 0);
        Some(Self { is_holder, mode, fencing_token, label: words.next()?.to_owned() })
    }
}

/// All keys of a lock. No name has a control character, so none is the beginning of another one's
/// keys.
pub(super) fn entries(name: &LockName) -> KeyRange {
    let [from, to] = ['\0', '\x01'].map(|end| format!("{LOCKS}{name}{end}").into_bytes());
    KeyRange { from, to }
}

/// All keys of all locks.
pub(super) fn all_entries() -> KeyRange {
    let to = LOCKS.trim_end_matches('/').to_owned() + "0";
    KeyRange { from: LOCKS.as_bytes().to_vec(), to: to.into_bytes() }
}

pub(super) fn key(name: &LockName, id: AcquisitionId) -> Vec<u8> {
    format!("{LOCKS}{name}\0{id}").into_bytes()
}

/// Returns the key that exists while an id is refused.
pub(super) fn barred(id: AcquisitionId) -> KeyRange {
    KeyRange::one(format!("{BARRED}{id}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_round_trips_through_its_key() {
        let name = LockName::new("orders/42").unwrap();
        let id = AcquisitionId { client: 0xab, number: 7 };
        let mode = LockMode::Shared { permits: 3 };
        for (is_holder, fencing_token) in [(true, Some(12)), (false, None)] {
            let text =
                EntryValue { is_holder, mode, fencing_token, label: "a label of words".to_owned() };
            let (key, value) = (key(&name, id), text.write().into_bytes());
            let found = KeyValue {
                key,
                create_revision: 5,
                mod_revision: 6,
                value: value.into(),
                lease: 8,
            };
            let entry = QueueEntry { id, created: 5, changed: 6, lease: 8, text };
            assert_eq!(QueueEntry::read(&found).unwrap(), entry);
            assert_eq!(entry.fencing_token().number(), fencing_token.unwrap_or(5));
            assert_eq!(entry.holder().is_some(), is_holder);
        }
    }

    #[test]
    fn foreign_key_is_refused() {
        let key = b"handfast/lock/a\0nonsense".to_vec();
        let found = KeyValue { key, ..KeyValue::default() };
        assert!(QueueEntry::read(&found).unwrap_err().is_final());
    }
}
