//! The id of a global transaction, and the scope in which code is part of one.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use handfast_rm_core::XidText;

use crate::context::{self, Context};
use crate::error::Error;

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
pub struct Xid(XidText);

impl Xid {
    /// Parses an XID.
    ///
    /// # Errors
    /// [`Error::MalformedXid`] unless it is `{address}:{number}` in printable ASCII without spaces,
    /// at most 256 bytes long, with a number of at most 64 bits.
    pub fn new(text: &str) -> Result<Self, Error> {
        Ok(Self(XidText::new(text)?))
    }

    /// Returns the text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text form, as the client's decisions take it.
    pub(crate) fn text(&self) -> &XidText {
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

impl FromStr for Xid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl From<XidText> for Xid {
    fn from(text: XidText) -> Self {
        Self(text)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_text_has_the_code_of_the_client() {
        assert_eq!(Xid::new("42").unwrap_err().code(), "HF-TM-XID");
    }
}
