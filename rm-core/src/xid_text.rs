//! The id of a global transaction, as clients see it.
//!
//! The text is opaque and passed on unchanged: only the coordinator reads meaning into it. The
//! check here is that it can travel in a header and ends in a number.

use std::fmt;
use std::sync::Arc;

/// The longest XID that is accepted, in bytes.
const XID_BYTES_MAX: usize = 256;

/// An XID in its text form, `{address}:{number}`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XidText(Arc<str>);

/// A text is not the text form of an XID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed xid: {text:?} ({})", Self::CODE)]
pub struct MalformedXid {
    /// The text, cut at 256 characters.
    pub text: String,
}

impl MalformedXid {
    /// The stable code, listed in `docs/errors.md`.
    pub const CODE: &str = "HF-TM-XID";
}

impl XidText {
    /// Checks and takes an XID in text.
    ///
    /// # Errors
    /// [`MalformedXid`] unless it is `{address}:{number}` in printable ASCII without spaces, at
    /// most 256 bytes long, with a number of at most 64 bits.
    pub fn new(text: &str) -> Result<Self, MalformedXid> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        let number = text.rsplit_once(':').map(|(_, number)| number);
        let numbered = number.is_some_and(is_u64);
        if text.len() > XID_BYTES_MAX || !printable || !numbered {
            let shown: String = text.chars().take(XID_BYTES_MAX).collect();
            return Err(MalformedXid { text: shown });
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether the text is a number in digits only: `u64::from_str` alone would take a sign.
fn is_u64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

impl fmt::Display for XidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for XidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_before_a_number_is_taken() {
        for text in ["127.0.0.1:7091:42", "[::1]:7091:0", ":7", "tc.example:18446744073709551615"] {
            assert_eq!(XidText::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("{}:1", "a".repeat(XID_BYTES_MAX));
        let texts =
            ["", "42", "a:", "a:b", "a:+1", "a b:1", "a:1\n", "ä:1", "a:18446744073709551616"];
        for text in texts.into_iter().chain([long.as_str()]) {
            let refused = XidText::new(text).unwrap_err();
            assert_eq!(refused.text, text.chars().take(XID_BYTES_MAX).collect::<String>());
        }
    }
}
