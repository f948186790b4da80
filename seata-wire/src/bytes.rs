//! The primitives of the `seata` serializer: big-endian numbers and texts with a length.
//!
//! Source: `serializer/seata-serializer-seata/.../protocol/*Codec.java`.

use crate::error::WireError;

/// The longest text with a 16-bit length. Java reads the length as a signed number, and a longer
/// text as an empty one.
pub(crate) const SHORT_TEXT_BYTES_MAX: usize = 32_767;

const ORDINARY_BODY_BYTES: usize = 256;

/// Takes fields off the front of a body.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `length` bytes.
    pub(crate) fn take(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<&'a [u8], WireError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array(field).map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// Reads a text whose length has 8 bits, as seata-go writes failure messages.
    pub(crate) fn tiny_text(&mut self, field: &'static str) -> Result<String, WireError> {
        let length = usize::from(self.u8(field)?);
        self.text(length, field)
    }

    /// Reads a text whose length has 16 bits. A length of 0 or less is null or empty, which are not
    /// distinguished.
    pub(crate) fn short_text(&mut self, field: &'static str) -> Result<String, WireError> {
        let length = usize::try_from(self.i16(field)?).unwrap_or(0);
        self.text(length, field)
    }

    /// Reads a text whose length has 32 bits.
    pub(crate) fn long_text(&mut self, field: &'static str) -> Result<String, WireError> {
        let length = usize::try_from(self.i32(field)?).unwrap_or(0);
        self.text(length, field)
    }

    pub(crate) fn text(&mut self, length: usize, field: &'static str) -> Result<String, WireError> {
        let bytes = self.take(length, field)?;
        let text = str::from_utf8(bytes).map_err(|_| WireError::NotText { field })?;
        Ok(text.to_owned())
    }
}

/// Appends fields to a body.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates a writer with room for a body of ordinary size, so that most bodies need no growth.
    pub(crate) fn with_room() -> Self {
        Self { bytes: Vec::with_capacity(ORDINARY_BODY_BYTES) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// Writes a count as 16 bits.
    pub(crate) fn count16(&mut self, count: usize, what: &'static str) -> Result<(), WireError> {
        let number = i16::try_from(count).map_err(|_| too_large(what, count, i16::MAX as usize))?;
        self.i16(number);
        Ok(())
    }

    /// Writes a count as 32 bits.
    pub(crate) fn count32(&mut self, count: usize, what: &'static str) -> Result<(), WireError> {
        let number = i32::try_from(count).map_err(|_| too_large(what, count, i32::MAX as usize))?;
        self.i32(number);
        Ok(())
    }

    pub(crate) fn short_text(&mut self, text: &str, field: &'static str) -> Result<(), WireError> {
        self.count16(text.len(), field)?;
        self.put(text.as_bytes());
        Ok(())
    }

    pub(crate) fn long_text(&mut self, text: &str, field: &'static str) -> Result<(), WireError> {
        self.count32(text.len(), field)?;
        self.put(text.as_bytes());
        Ok(())
    }

    /// Writes a message for display, cut by bytes. Java cuts by characters and overflows.
    pub(crate) fn cut_text(&mut self, text: &str) {
        let cut = cut(text, SHORT_TEXT_BYTES_MAX);
        self.short_text(cut, "msg")
            .expect("BOUNDED: the text is cut to what the length can express");
    }

    /// Overwrites the bytes at `at`.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Returns the longest prefix of the text that has at most `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

pub(crate) fn too_large(what: &'static str, actual: usize, max: usize) -> WireError {
    WireError::TooLarge { what, actual, max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_texts_are_not_distinguished() {
        for bytes in [[0, 0], [0xFF, 0xFF]] {
            assert_eq!(Reader::new(&bytes).short_text("xid"), Ok(String::new()));
        }
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let mut writer = Writer::default();
        writer.cut_text(&"ä".repeat(20_000));
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len(), 2 + 32_766);
        assert_eq!(Reader::new(&bytes).short_text("msg").unwrap().chars().count(), 16_383);
    }

    #[test]
    fn a_text_too_long_for_its_length_is_refused() {
        let long = "x".repeat(SHORT_TEXT_BYTES_MAX + 1);
        let refused = Writer::default().short_text(&long, "xid");
        assert_eq!(refused, Err(too_large("xid", 32_768, 32_767)));
    }
}
