//! Protobuf fields, written directly from borrowed parts of a record, without a copy.
//!
//! Writes what `prost` writes for the messages that its neighbours read: fields in
//! the order of their numbers, without those that hold the default.

use prost::encoding::{WireType, encode_varint, encoded_len_varint};

/// The fields of one message, at the end of a buffer.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Fields<'a> {
    pub(super) fn behind(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(super) fn number(&mut self, tag: u32, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.key(tag, WireType::Varint);
            self.varint(value);
        }
    }

    /// Writes a number if there is one, even if it is 0.
    pub(super) fn optional_number(&mut self, tag: u32, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.key(tag, WireType::Varint);
            self.varint(value.into());
        }
    }

    pub(super) fn bytes(&mut self, tag: u32, value: &[u8]) {
        if !value.is_empty() {
            self.item(tag, value);
        }
    }

    pub(super) fn text(&mut self, tag: u32, value: &str) {
        self.bytes(tag, value.as_bytes());
    }

    /// Writes a text if there is one, even if it is empty.
    pub(super) fn optional(&mut self, tag: u32, value: Option<&str>) {
        if let Some(value) = value {
            self.item(tag, value.as_bytes());
        }
    }

    /// Writes one value of a repeated field.
    pub(super) fn item(&mut self, tag: u32, value: &[u8]) {
        self.key(tag, WireType::LengthDelimited);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// Writes a nested message.
    pub(super) fn message(&mut self, tag: u32, write: impl FnOnce(&mut Fields<'_>)) {
        self.key(tag, WireType::LengthDelimited);
        // Most messages are short: one byte is reserved for the length, and widened if needed.
        let place = self.bytes.len();
        self.bytes.push(0);
        write(&mut Fields { bytes: self.bytes });
        let length = (self.bytes.len() - place - 1) as u64;
        let mut varint = [0; 10];
        let width = encoded_len_varint(length);
        encode_varint(length, &mut &mut varint[..]);
        self.bytes[place] = varint[0];
        if width > 1 {
            self.bytes.splice(place + 1..place + 1, varint[1..width].iter().copied());
        }
    }

    fn key(&mut self, tag: u32, wire_type: WireType) {
        self.varint(u64::from(tag << 3) | wire_type as u64);
    }

    /// Writes a varint. Most are one byte.
    fn varint(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(byte) if byte < 0x80 => self.bytes.push(byte),
            Ok(_) | Err(_) => {
                let mut varint = [0; 10];
                encode_varint(value, &mut &mut varint[..]);
                self.bytes.extend_from_slice(&varint[..encoded_len_varint(value)]);
            }
        }
    }
}
