//! Names of locks, ids of acquisitions and fencing tokens.

use std::fmt;
use std::sync::Arc;

use crate::error::LockError;

/// The longest name, in bytes: the length that a primary key can have on every database.
const NAME_BYTES_MAX: usize = 200;
/// The longest label, in characters.
const LABEL_CHARACTERS_MAX: usize = 100;

/// The name of a lock, which names what two holders must not do at once, as in `orders/42`.
///
/// Names are compared byte by byte on every backend: no case folding, no trimming.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`LockError::Name`] for an empty name, a name above 200 bytes, or a name with a control
    /// character.
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

    /// Returns the text of the name.
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

/// The id of an acquisition. Each acquisition has a different one.
///
/// The id makes requests idempotent: a request that is sent twice finds its own acquisition and is
/// answered as before. Reentrancy is counted in this process and never by the backend, so that a
/// request that is sent twice cannot count twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AcquisitionId {
    /// The client: a random number, so that two processes never share one.
    pub client: u128,
    /// The number of the acquisition within the client.
    pub number: u64,
}

impl fmt::Display for AcquisitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", self.client, self.number)
    }
}

impl AcquisitionId {
    /// Parses the form that [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (client, number) = text.split_once('.')?;
        let client = u128::from_str_radix(client, 16).ok()?;
        Some(Self { client, number: number.parse().ok()? })
    }
}

/// The fencing token of an acquisition: larger than that of every earlier holder of the same lock.
///
/// The resource that the lock protects keeps the largest token that it has seen and refuses smaller
/// ones. See [`Guard::claim`](crate::Guard::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(i64);

impl FencingToken {
    /// Makes a token from the number that a backend counted.
    #[must_use]
    pub fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number, in a type that databases have.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The holder of a lock, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The acquisition.
    pub id: AcquisitionId,
    /// The label of the holder's client.
    pub label: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.label, self.id)
    }
}

/// Cuts a label to the length that every backend keeps, and drops control characters, which do not
/// belong in messages.
pub(crate) fn label(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LABEL_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_backend_cannot_store_are_refused() {
        for name in ["", "a\nb", &"x".repeat(201)] {
            assert!(LockName::new(name).is_err(), "{name:?}");
        }
        for name in ["a", "A", "a ", "orders/42", "Größe", &"x".repeat(200)] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn id_round_trips_through_text() {
        let id = AcquisitionId { client: 0xab, number: 7 };
        assert_eq!(id.to_string(), "000000000000000000000000000000ab.7");
        assert_eq!(AcquisitionId::parse(&id.to_string()), Some(id));
        for wrong in ["", "ab", "x.1", "1.x"] {
            assert_eq!(AcquisitionId::parse(wrong), None);
        }
    }
}
