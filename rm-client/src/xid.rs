//! The id of a global transaction, as clients see it.
//!
//! An XID is opaque text that is passed on unchanged. Only the coordinator interprets it. This
//! module checks no more than that the text can travel in a header and names a number.

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use crate::context::{self, Context};
use crate::error::Error;

/// The longest XID that is accepted, in bytes.
const XID_BYTES_MAX: usize = 256;

/// The id of a global transaction, `{address}:{number}` in text. Cheap to clone.
///
/// ```
/// use handfast::Xid;
///
/// let xid: Xid = "127.0.0.1:7091:42".parse()?;
/// assert_eq!(xid.as_str(), "127.0.0.1:7091:42");
/// assert!("not an xid".parse::<Xid>().is_err());
/// # Ok::<(), handfast::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(Arc<str>);

impl Xid {
    /// Parses an XID.
    ///
    /// # Errors
    /// [`Error::MalformedXid`] unless it is `{address}:{number}` in printable ASCII without spaces,
    /// at most 256 bytes long, with a number of at most 64 bits.
    pub fn new(text: &str) -> Result<Self, Error> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        let number = text.rsplit_once(':').map(|(_, number)| number);
        let numbered = number.is_some_and(is_u64);
        if text.len() > XID_BYTES_MAX || !printable || !numbered {
            let shown: String = text.chars().take(XID_BYTES_MAX).collect();
            return Err(Error::MalformedXid { text: shown });
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Runs a future within this global: local transactions that the future begins become branches
    /// of the global, and its calls through the propagation layers carry the XID.
    ///
    /// It is meant for servers whose framework the [propagation layers](crate::propagation) do not
    /// support. The scope belongs to the future, not to the thread: a task spawned inside it is
    /// outside, unless the task gets a scope of its own.
    ///
    /// ```
    /// # async fn example(xid: handfast::Xid) {
    /// let inside = xid.scope(async { handfast::current_xid() }).await;
    /// assert_eq!(inside, Some(xid));
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        context::scope(Some(Context::new(self.clone())), future)
    }
}

/// Accepts digits only: `u64::from_str` alone would accept a sign.
fn is_u64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

impl FromStr for Xid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_before_a_number_is_accepted() {
        for text in ["127.0.0.1:7091:42", "[::1]:7091:0", ":7", "tc.example:18446744073709551615"] {
            assert_eq!(Xid::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn malformed_xids_are_refused() {
        let long = format!("{}:1", "a".repeat(XID_BYTES_MAX));
        let texts =
            ["", "42", "a:", "a:b", "a:+1", "a b:1", "a:1\n", "ä:1", "a:18446744073709551616"];
        for text in texts.into_iter().chain([long.as_str()]) {
            assert_eq!(Xid::new(text).unwrap_err().code(), "HF-TM-XID", "{text}");
        }
    }
}
