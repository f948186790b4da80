//! The keys of a lock: one for each who holds or waits, and what is written in it.

use super::api::KeyValue;
use super::cluster::Range;
use crate::backend::Share;
use crate::error::BackendError;
use crate::line;
use crate::name::{Fence, Holder, LockName, Token};

/// Before the keys of a lock, and of tokens that are refused.
const LOCKS: &str = "handfast/lock/";
const BARRED: &str = "handfast/lock-barred/";

/// One who stands in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) token: Token,
    /// The revision at which it was made: smaller for whoever came earlier.
    pub(super) created: i64,
    /// The revision at which it was last written.
    pub(super) changed: i64,
    pub(super) lease: i64,
    pub(super) text: Text,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// Whether its owner knows that it is his turn.
    pub(super) holds: bool,
    pub(super) share: Share,
    /// The fence of those who hold parts together; none if it is the revision at which the entry
    /// was made.
    pub(super) fence: Option<i64>,
    pub(super) label: String,
}

impl Entry {
    pub(super) fn read(entry: &KeyValue) -> Result<Self, BackendError> {
        let foreign = || {
            let key = String::from_utf8_lossy(&entry.key).into_owned();
            BackendError::lasting(format!("a key that is not ours among those of locks: {key:?}"))
        };
        let key = str::from_utf8(&entry.key).ok().and_then(|key| key.rsplit('\0').next());
        let token = key.and_then(Token::parse).ok_or_else(foreign)?;
        let text = str::from_utf8(&entry.value).ok().and_then(Text::read).ok_or_else(foreign)?;
        let (created, changed) = (entry.create_revision, entry.mod_revision);
        Ok(Self { token, created, changed, lease: entry.lease, text })
    }

    pub(super) fn read_all(entries: &[KeyValue]) -> Result<Vec<Self>, BackendError> {
        entries.iter().map(Self::read).collect()
    }

    pub(super) fn fence(&self) -> Fence {
        Fence::new(self.text.fence.unwrap_or(self.created))
    }

    pub(super) fn holder(&self) -> Option<Holder> {
        let label = self.text.label.clone();
        self.text.holds.then_some(Holder { token: self.token, label })
    }
}

impl Text {
    pub(super) fn write(&self) -> String {
        let mark = if self.holds { "holds" } else { "waits" };
        let (parts, fence) = (line::parts(self.share), self.fence.unwrap_or_default());
        format!("{mark} {parts} {fence} {}", self.label)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let holds = match words.next()? {
            "holds" => true,
            "waits" => false,
            _ => return None,
        };
        let share = line::share(words.next()?.parse().ok()?);
        let fence = Some(words.next()?.parse().ok()?).filter(|fence| *fence != 0);
        Some(Self { holds, share, fence, label: words.next()?.to_owned() })
    }
}

/// All entries of a lock. No name has a control character, so none is the beginning of another
/// one's keys.
pub(super) fn entries(name: &LockName) -> Range {
    let [from, to] = ['\0', '\x01'].map(|end| format!("{LOCKS}{name}{end}").into_bytes());
    Range { from, to }
}

/// All entries of all locks.
pub(super) fn all_entries() -> Range {
    let to = LOCKS.trim_end_matches('/').to_owned() + "0";
    Range { from: LOCKS.as_bytes().to_vec(), to: to.into_bytes() }
}

pub(super) fn key(name: &LockName, token: Token) -> Vec<u8> {
    format!("{LOCKS}{name}\0{token}").into_bytes()
}

/// Is there if a token is refused.
pub(super) fn barred(token: Token) -> Range {
    Range::one(format!("{BARRED}{token}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let name = LockName::new("orders/42").unwrap();
        let token = Token { client: 0xab, number: 7 };
        let share = Share::One { of: 3 };
        for (holds, fence) in [(true, Some(12)), (false, None)] {
            let text = Text { holds, share, fence, label: "a label of words".to_owned() };
            let (key, value) = (key(&name, token), text.write().into_bytes());
            let found = KeyValue { key, create_revision: 5, mod_revision: 6, value, lease: 8 };
            let entry = Entry { token, created: 5, changed: 6, lease: 8, text };
            assert_eq!(Entry::read(&found).unwrap(), entry);
            assert_eq!(entry.fence().number(), fence.unwrap_or(5));
            assert_eq!(entry.holder().is_some(), holds);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let key = b"handfast/lock/a\0nonsense".to_vec();
        let found = KeyValue { key, ..KeyValue::default() };
        assert!(Entry::read(&found).unwrap_err().is_final());
    }
}
