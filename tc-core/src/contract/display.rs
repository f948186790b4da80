//! Texts for readers inside the core's messages.

use std::fmt::Write as _;
use std::sync::Arc;

use super::id::Xid;
use super::xid_text::XidText;

/// A canonical key as operators see it: `5:order1:7` is `order, 7`.
///
/// A key that is not canonical (a key of a Seata client, say) is shown as it is.
#[must_use]
pub fn display_row_key(key: &[u8]) -> String {
    let parts = key_parts(key).unwrap_or_else(|| vec![key]);
    let texts: Vec<_> = parts.into_iter().map(String::from_utf8_lossy).collect();
    texts.join(", ")
}

fn key_parts(mut key: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !key.is_empty() {
        let colon = key.iter().position(|&byte| byte == b':')?;
        let length: usize = std::str::from_utf8(&key[..colon]).ok()?.parse().ok()?;
        let (part, rest) = key[colon + 1..].split_at_checked(length)?;
        parts.push(part);
        key = rest;
    }
    Some(parts)
}

/// An XID as operators type it.
pub(crate) fn display_xid(address: &str, xid: Xid) -> String {
    XidText { address, xid }.to_string()
}

/// `a:1 waits for a:2 waits for a:1`.
pub(crate) fn display_cycle(cycle: &[(Xid, Arc<str>)]) -> String {
    let mut text = String::new();
    for (xid, address) in cycle.iter().chain(cycle.first()) {
        let link = if text.is_empty() { "" } else { " waits for " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{link}{}", XidText { address, xid: *xid });
    }
    text
}

/// Describes the parts of a named lock. A reader holds one of the largest possible number of parts.
pub(crate) fn display_parts(of: u32) -> String {
    if of == u32::MAX { "readers".to_owned() } else { format!("{of} permits") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_without_their_lengths() {
        let shown = |key: &str| display_row_key(key.as_bytes());
        assert_eq!(shown("1:7"), "7");
        assert_eq!(shown("3:a:b1:c"), "a:b, c");
        assert_eq!(shown("0:"), "");
        assert_eq!(shown("9:7"), "9:7");
        assert_eq!(shown("seven"), "seven");
    }

    #[test]
    fn a_cycle_is_closed_by_its_first_member() {
        let address: Arc<str> = Arc::from("tc");
        let cycle = [(Xid(1), address.clone()), (Xid(2), address)];
        assert_eq!(display_cycle(&cycle), "tc:1 waits for tc:2 waits for tc:1");
    }
}
