//! What can be wrong with bytes, or with a message that is to become bytes.

use thiserror::Error;

/// Why bytes are no message, or a message cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The lengths in a frame contradict each other: where the next frame begins is not known.
    #[error("damaged frame: {what}")]
    DamagedFrame {
        /// What contradicts what.
        what: &'static str,
    },
    /// A length or count above its limit.
    #[error("{what} of {actual}, and {max} is allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is, as far as it was read.
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
    /// A field holds a value that means nothing.
    #[error("{field} cannot be {value}")]
    BadValue {
        /// The field.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// A field is no UTF-8 text.
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
    /// A type of message that there is not, or not at that place.
    #[error("message type {code} cannot stand there")]
    UnknownMessage {
        /// Its number.
        code: i64,
    },
    /// A protobuf message whose name is in no table.
    #[error("protobuf message `{name}` is not known")]
    UnknownName {
        /// Its full name, cut short.
        name: String,
    },
    /// A protobuf body that is none.
    #[error("protobuf: {what}")]
    Protobuf {
        /// What is wrong.
        what: String,
    },
    /// A serializer that is not served.
    #[error("serializer {id} ({name}) is not supported")]
    Serializer {
        /// Its number.
        id: u8,
        /// Its name.
        name: &'static str,
    },
    /// A compressor that is not served.
    #[error("compressor {id} ({name}) is not supported")]
    Compressor {
        /// Its number.
        id: u8,
        /// Its name.
        name: &'static str,
    },
    /// A body that its compressor did not write.
    #[error("{name} body cannot be read: {what}")]
    Compressed {
        /// The compressor.
        name: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A message or value that the chosen serializer has no form for.
    #[error("{what} cannot be written with {serializer}")]
    NoForm {
        /// The message or value.
        what: &'static str,
        /// The serializer.
        serializer: &'static str,
    },
}

impl WireError {
    /// The code that does not change.
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
