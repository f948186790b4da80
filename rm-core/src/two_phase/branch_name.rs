//! The name of a branch in its database: a text that says which node made it and which global it is
//! part of.
//!
//! ```text
//! hf1/{node}/{branch, 16 hexadecimal digits}/{xid}
//! ```
//!
//! Recovery reads the names of prepared transactions back. A name that is not of its own node, or
//! not of this form, belongs to another program and is not touched.

use std::fmt;
use std::sync::Arc;

use crate::xid_text::XidText;

/// The beginning of every name; the digit is the version of the form.
const FORM: &str = "hf1/";
/// The longest node id. It leaves MySQL, which takes 128 bytes in all, 74 bytes for the XID.
const NODE_BYTES_MAX: usize = 32;

/// A node id: the processes that share one recover each other's branches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node(Arc<str>);

/// A text is not a node id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no node id: set one with `.node(...)`, of 1 to {bytes_max} letters, digits, `-`, \
     `_` and `.` ({})",
    Self::CODE
)]
pub struct InvalidNode {
    /// The text, cut at the limit.
    pub text: String,
    /// The limit.
    pub bytes_max: usize,
}

impl InvalidNode {
    /// The stable code, listed in `docs/errors.md`.
    pub const CODE: &str = "HF-XA-NODE";
}

/// The name of a branch is longer than the database takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the branch name {name} takes {bytes} bytes, more than {bytes_max}: give the coordinator a \
     shorter advertised address, or this node a shorter id ({})",
    Self::CODE
)]
pub struct NameTooLong {
    /// The name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// The limit.
    pub bytes_max: usize,
}

impl NameTooLong {
    /// The stable code, listed in `docs/errors.md`.
    pub const CODE: &str = "HF-XA-NAME-TOO-LONG";
}

impl Node {
    /// Checks and takes a node id.
    ///
    /// # Errors
    /// [`InvalidNode`] unless it is 1 to 32 letters, digits, `-`, `_` and `.`.
    pub fn new(text: &str) -> Result<Self, InvalidNode> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if text.is_empty() || text.len() > NODE_BYTES_MAX || !text.bytes().all(plain) {
            let shown = text.chars().take(NODE_BYTES_MAX).collect();
            return Err(InvalidNode { text: shown, bytes_max: NODE_BYTES_MAX });
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns how the names of this node's branches begin.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{FORM}{}/", self.0)
    }
}

/// The name of one branch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BranchName {
    /// The node that made it.
    pub node: Node,
    /// Its id.
    pub branch: u64,
    /// The global that it is part of.
    pub xid: XidText,
}

impl BranchName {
    /// Reads a name back; `None` if it is not one of this node's.
    #[must_use]
    pub fn parse(text: &str, node: &Node) -> Option<Self> {
        let rest = text.strip_prefix(&node.prefix())?;
        let (branch, xid) = rest.split_once('/')?;
        let digits = branch.len() == 16 && !branch.starts_with('+');
        let branch = u64::from_str_radix(branch, 16).ok().filter(|_| digits)?;
        let name = Self { node: node.clone(), branch, xid: XidText::new(xid).ok()? };
        // Only the exact form counts: the branch is finished under the name that is written again.
        (name.to_string() == text).then_some(name)
    }

    /// Refuses a name that is longer than the database takes.
    ///
    /// # Errors
    /// [`NameTooLong`].
    pub fn check_length(&self, bytes_max: usize) -> Result<(), NameTooLong> {
        let bytes = self.to_string().len();
        if bytes > bytes_max {
            let name = self.to_string();
            return Err(NameTooLong { name, bytes, bytes_max });
        }
        Ok(())
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:016x}/{}", self.node.prefix(), self.branch, self.xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        Node::new(text).unwrap()
    }

    #[test]
    fn a_name_is_read_back_by_its_own_node_alone() {
        let xid = XidText::new("127.0.0.1:7091:42").unwrap();
        let name = BranchName { node: node("ledger-1"), branch: 0xa0_0000_0001, xid };
        let text = name.to_string();
        assert_eq!(text, "hf1/ledger-1/000000a000000001/127.0.0.1:7091:42");
        assert_eq!(BranchName::parse(&text, &node("ledger-1")), Some(name));
        for other in ["ledger", "ledger-10", "edger-1", "LEDGER-1"] {
            assert_eq!(BranchName::parse(&text, &node(other)), None, "{other}");
        }
    }

    #[test]
    fn other_texts_are_no_branch_names() {
        for text in [
            "",
            "hf1/n",
            "hf1/n/",
            "hf1/n/1/a:1",
            "hf1/n/00000000000000001/a:1",
            "hf1/n/+00000000000001a/a:1",
            "hf1/n/000000000000001A/a:1",
            "hf1/n/000000000000001a/a",
            "hf1/n/000000000000001a/a:1 ",
            "hf2/n/000000000000001a/a:1",
            "HF1/n/000000000000001a/a:1",
        ] {
            assert_eq!(BranchName::parse(text, &node("n")), None, "{text}");
        }
        assert!(BranchName::parse("hf1/n/000000000000001a/a:1", &node("n")).is_some());
    }

    #[test]
    fn a_node_id_is_short_and_plain() {
        let long = "n".repeat(NODE_BYTES_MAX + 1);
        for text in ["", "a b", "a/b", "ä", "a'b", long.as_str()] {
            assert_eq!(Node::new(text).unwrap_err().bytes_max, NODE_BYTES_MAX, "{text}");
        }
        assert!(Node::new(&long[1..]).is_ok());
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let xid = XidText::new(&format!("{}:1", "a".repeat(200))).unwrap();
        let name = BranchName { node: node("n"), branch: 1, xid };
        assert_eq!(name.check_length(199).unwrap_err().bytes_max, 199);
        assert!(name.check_length(300).is_ok());
    }
}
