//! What locks are called, and who asks for them.

use std::fmt;
use std::sync::Arc;

use crate::error::LockError;

/// The longest name, in bytes: what a primary key carries on every database.
const NAME_BYTES_MAX: usize = 200;
/// The longest label, in characters.
const LABEL_CHARACTERS_MAX: usize = 100;

/// The name of a lock: what two holders must not do at once, as in `orders/42`.
///
/// Names are compared byte by byte on every backend: no case folding, no trimming.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`LockError::Name`] for an empty name, one above 200 bytes, or one with a control character.
    pub fn new(name: impl Into<String>) -> Result<Self, LockError> {
        let name = name.into();
        let reason = if name.is_empty() {
            "it is empty"
        } else if name.len() > NAME_BYTES_MAX {
            "it has more than 200 bytes"
        } else if name.chars().any(char::is_control) {
            "it has a control character"
        } else {
            return Ok(Self(name.into()));
        };
        Err(LockError::Name { name, reason })
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One acquisition: drawn anew for each, never used again.
///
/// It is what makes requests idempotent: a request that is sent twice finds its own token and is
/// answered as before. Reentry is counted in this process and never on the server, so that a
/// request sent twice cannot count twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Which client: random, so that two processes never share one.
    pub client: u128,
    /// Which acquisition of the client.
    pub number: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", self.client, self.number)
    }
}

impl Token {
    /// Reads what [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (client, number) = text.split_once('.')?;
        let client = u128::from_str_radix(client, 16).ok()?;
        Some(Self { client, number: number.parse().ok()? })
    }
}

/// The fencing token of an acquisition: larger than that of every earlier holder of the same lock.
///
/// What the lock protects keeps the largest one that it has seen and refuses smaller ones. See
/// [`Guard::claim`](crate::Guard::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(i64);

impl Fence {
    /// The token as a backend counts it.
    #[must_use]
    pub fn new(number: i64) -> Self {
        Self(number)
    }

    /// Its number, in the type that databases have.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who holds a lock, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which acquisition.
    pub token: Token,
    /// What the holder's client calls itself.
    pub label: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.label, self.token)
    }
}

/// Cuts a label to what every backend keeps; control characters do not belong in messages.
pub(crate) fn label(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LABEL_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_backend_could_not_keep_are_refused() {
        for name in ["", "a\nb", &"x".repeat(201)] {
            assert!(LockName::new(name).is_err(), "{name:?}");
        }
        for name in ["a", "A", "a ", "orders/42", "Größe", &"x".repeat(200)] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = Token { client: 0xab, number: 7 };
        assert_eq!(token.to_string(), "000000000000000000000000000000ab.7");
        assert_eq!(Token::parse(&token.to_string()), Some(token));
        for wrong in ["", "ab", "x.1", "1.x"] {
            assert_eq!(Token::parse(wrong), None);
        }
    }
}
