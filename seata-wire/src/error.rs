//! Errors of decoding bytes and of encoding messages.

use thiserror::Error;

/// Why bytes cannot be decoded, or a message cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The lengths in a frame contradict each other: where the next frame begins is not known.
    #[error("damaged frame: {what}")]
    DamagedFrame {
        /// The contradiction.
        what: &'static str,
    },
    /// A length or count above its limit.
    #[error("{what} of {actual}, and {max} is allowed")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size, as far as it was read.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// The body ends in the middle of a field.
    #[error("truncated: {field}")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// A field has a value without a meaning.
    #[error("{field} cannot be {value}")]
    BadValue {
        /// The field.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// A field is not UTF-8 text.
    #[error("{field} is not UTF-8")]
    NotText {
        /// The field.
        field: &'static str,
    },
    /// A field that the reader at the other end needs is empty.
    #[error("{field} must not be empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// The type of message is unknown, or not allowed at that place.
    #[error("message type {code} cannot stand there")]
    UnknownMessage {
        /// Its number.
        code: i64,
    },
    /// The name of the protobuf message is unknown.
    #[error("protobuf message `{name}` is not known")]
    UnknownName {
        /// Its full name, cut short.
        name: String,
    },
    /// The body is not a protobuf message.
    #[error("protobuf: {what}")]
    Protobuf {
        /// The problem.
        what: String,
    },
    /// The serializer is not supported.
    #[error("serializer {id} ({name}) is not supported")]
    Serializer {
        /// Its number.
        id: u8,
        /// Its name.
        name: &'static str,
    },
    /// The compressor is not supported.
    #[error("compressor {id} ({name}) is not supported")]
    Compressor {
        /// Its number.
        id: u8,
        /// Its name.
        name: &'static str,
    },
    /// The body cannot be decompressed.
    #[error("{name} body cannot be read: {what}")]
    Compressed {
        /// The compressor.
        name: &'static str,
        /// The problem.
        what: String,
    },
    /// The chosen serializer has no form for the message or value.
    #[error("{what} cannot be written with {serializer}")]
    NoForm {
        /// The message or value.
        what: &'static str,
        /// The serializer.
        serializer: &'static str,
    },
}

impl WireError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::DamagedFrame { .. } => "HF-SEATA-DAMAGED-FRAME",
            Self::TooLarge { .. } => "HF-SEATA-TOO-LARGE",
            Self::Truncated { .. } => "HF-SEATA-TRUNCATED",
            Self::BadValue { .. } => "HF-SEATA-BAD-VALUE",
            Self::NotText { .. } => "HF-SEATA-NOT-TEXT",
            Self::Empty { .. } => "HF-SEATA-EMPTY",
            Self::UnknownMessage { .. } | Self::UnknownName { .. } => "HF-SEATA-UNKNOWN-MESSAGE",
            Self::Protobuf { .. } => "HF-SEATA-PROTOBUF",
            Self::Serializer { .. } => "HF-SEATA-SERIALIZER",
            Self::Compressor { .. } => "HF-SEATA-COMPRESSOR",
            Self::Compressed { .. } => "HF-SEATA-COMPRESSED",
            Self::NoForm { .. } => "HF-SEATA-NO-FORM",
        }
    }
}
