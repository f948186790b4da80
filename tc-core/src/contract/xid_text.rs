//! The text form of an XID: `{address}:{number}`.
//!
//! The address is the one that the coordinator advertised when the global began; clients treat the
//! whole as opaque. It may hold colons of its own (a port, an IPv6 address).

use std::fmt;

use super::id::Xid;

/// An XID and the address part of its text form.
///
/// ```
/// use handfast_core::{Xid, XidText};
///
/// let text = XidText::parse("127.0.0.1:7091:42")?;
/// assert_eq!((text.address, text.xid), ("127.0.0.1:7091", Xid(42)));
/// assert_eq!(text.to_string(), "127.0.0.1:7091:42");
/// # Ok::<(), handfast_core::XidTextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidText<'a> {
    /// Everything before the last colon.
    pub address: &'a str,
    /// The number after it.
    pub xid: Xid,
}

/// The text is not the text form of an XID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an XID: expected {{address}}:{{number}}")]
pub struct XidTextError {
    text: String,
}

impl<'a> XidText<'a> {
    /// Takes the number after the last colon; any address is accepted.
    ///
    /// # Errors
    /// There is no colon, or no plain decimal number after it.
    pub fn parse(text: &'a str) -> Result<Self, XidTextError> {
        let parts = text.rsplit_once(':').and_then(|(address, number)| {
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            let xid = number.parse().ok().filter(|_| plain)?;
            Some(Self { address, xid: Xid(xid) })
        });
        parts.ok_or_else(|| XidTextError { text: text.chars().take(100).collect() })
    }
}

impl fmt::Display for XidText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_accepted_and_only_a_number_after_it() {
        let parsed = |text| XidText::parse(text).ok().map(|xid| (xid.address, xid.xid.0));
        assert_eq!(parsed("[::1]:7091:5"), Some(("[::1]:7091", 5)));
        assert_eq!(parsed(":5"), Some(("", 5)));
        for wrong in ["5", "a:", "a:+5", "a:-1", "a: 5", "a:18446744073709551616"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
