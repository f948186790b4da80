//! The head map of a frame: keys and values. Clients send an empty one in normal operation.
//!
//! Source: `core/.../rpc/netty/v1/HeadMapSerializer.java`.

use crate::bytes::{Reader, SHORT_TEXT_BYTES_MAX, too_large};
use crate::error::WireError;

/// A key and a value. Either can be null on the wire.
pub type HeadEntry = (Option<String>, Option<String>);

/// Reads a head map.
///
/// # Errors
///
/// A length that goes past the end, or bytes that are not UTF-8.
pub fn read(bytes: &[u8]) -> Result<Vec<HeadEntry>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push((text(&mut reader, "head map key")?, text(&mut reader, "head map value")?));
    }
    Ok(entries)
}

fn text(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<String>, WireError> {
    match usize::try_from(reader.i16(field)?) {
        Ok(length) => reader.text(length, field).map(Some),
        Err(_) => Ok(None),
    }
}

/// Writes a head map.
///
/// # Errors
///
/// A text is too long for a 16-bit length.
pub fn write(entries: &[HeadEntry]) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    for text in entries.iter().flat_map(|(key, value)| [key, value]) {
        let length = match text {
            Some(text) => i16::try_from(text.len())
                .map_err(|_| too_large("head map text", text.len(), SHORT_TEXT_BYTES_MAX))?,
            None => -1,
        };
        bytes.extend(length.to_be_bytes());
        bytes.extend(text.iter().flat_map(|text| text.bytes()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_texts_differ() {
        let some = |text: &str| Some(text.to_owned());
        let entries = [
            (some("1"), some("2")),
            (some(""), some("x")),
            (some("a"), some("")),
            (some("b"), None),
        ];
        let bytes = write(&entries).unwrap();
        assert_eq!(bytes, b"\x00\x011\x00\x012\x00\x00\x00\x01x\x00\x01a\x00\x00\x00\x01b\xFF\xFF");
        assert_eq!(read(&bytes).unwrap(), entries);
    }

    #[test]
    fn a_head_map_that_ends_early_is_refused() {
        assert!(read(b"\x00\x01").is_err());
        assert!(read(b"\x00\x01a").is_err());
        assert!(read(b"\x00").is_err());
    }
}
