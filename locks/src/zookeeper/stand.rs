//! The nodes of a lock: one for each who stands in line, and what is written in it.

use std::fmt::Write;

use crate::backend::Share;
use crate::line;
use crate::name::{LockName, Token};

/// Where all locks are.
pub(super) const LOCKS: &str = "/handfast/locks";

/// One who stands in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) token: Token,
    /// How much he wants, or wanted: a writer who became a reader says so in his node.
    pub(super) share: Share,
    /// Smaller for whoever came earlier.
    number: i64,
    pub(super) path: String,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// The fence of those who hold parts together, once its owner holds one.
    pub(super) fence: Option<i64>,
    pub(super) label: String,
}

impl Stand {
    /// Those in line, in order. Nodes of others are none of theirs.
    pub(super) fn in_order(name: &LockName, children: &[String]) -> Vec<Self> {
        let folder = folder(name);
        let mut line: Vec<Self> =
            children.iter().filter_map(|child| Self::read(&folder, child)).collect();
        line.sort_by_key(|stand| stand.number);
        line
    }

    fn read(folder: &str, child: &str) -> Option<Self> {
        let mut words = child.splitn(3, '-');
        let token = Token::parse(words.next()?)?;
        let share = line::share(words.next()?.parse().ok()?);
        let number = words.next()?.parse().ok()?;
        Some(Self { token, share, number, path: format!("{folder}/{child}") })
    }
}

impl Text {
    /// No label has a control character.
    pub(super) fn write(&self) -> String {
        let fence = self.fence.map(|fence| fence.to_string()).unwrap_or_default();
        format!("{fence}\n{}", self.label)
    }

    pub(super) fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (fence, label) = text.split_once('\n').unwrap_or(("", &text));
        Self { fence: fence.parse().ok(), label: label.to_owned() }
    }
}

/// Where those are who stand in line for a lock. What a path cannot carry is written as `%2F` is.
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

/// The path of a node without its number, which ZooKeeper adds. With the token in it, a node whose
/// creation was not answered is found again.
pub(super) fn prefix(name: &LockName, token: Token, share: Share) -> String {
    format!("{}/{token}-{}-", folder(name), line::parts(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let name = |name: &str| folder(&LockName::new(name).unwrap());
        assert_eq!(name("orders/42"), "/handfast/locks/orders%2F42");
        assert_eq!(name("ö%.-_"), "/handfast/locks/%C3%B6%25%2E-_");
    }

    #[test]
    fn those_in_line_are_in_order() {
        let name = LockName::new("a").unwrap();
        let [first, second] = [7, 8].map(|number| Token { client: 0xab, number });
        let children = [
            prefix(&name, second, Share::READ) + "0000000010",
            prefix(&name, first, Share::All) + "0000000009",
            "somebody-elses-node".to_owned(),
        ];
        let names = children.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        let line = Stand::in_order(&name, &names);
        let seen: Vec<_> = line.iter().map(|stand| (stand.token, stand.share)).collect();
        assert_eq!(seen, [(first, Share::All), (second, Share::READ)]);
        assert_eq!(line[0].path, prefix(&name, first, Share::All) + "0000000009");
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for fence in [None, Some(12)] {
            let text = Text { fence, label: "a label of words".to_owned() };
            assert_eq!(Text::read(text.write().as_bytes()), text);
        }
    }
}
