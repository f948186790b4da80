//! The bounds of a message (BOUNDED), and the errors of one that exceeds them or cannot be read.

/// Bounds of what clients send and of what is queued for them.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The largest message read, in bytes. Too small: branches with many rows are refused. Too
    /// large: a few bad clients fill the memory.
    pub message_bytes_max: usize,
    /// Replies and phase-two calls queued for one connection. Too small: a client that is slow for
    /// a moment is cut off. Too large: one that stopped reading fills the memory.
    pub queue_messages_max: usize,
    /// Requests in one frame.
    pub frame_messages_max: usize,
    /// Rows in one request.
    pub rows_max: usize,
    /// Bytes of a name: application, transaction, resource, table, client.
    pub name_bytes_max: usize,
    /// Labels of one global.
    pub labels_max: usize,
    /// Bytes of a label's name.
    pub label_name_bytes_max: usize,
    /// Bytes of a label's value.
    pub label_value_bytes_max: usize,
    /// Bytes of the key of a begin.
    pub begin_key_bytes_max: usize,
    /// Bytes of a canonical row key.
    pub key_bytes_max: usize,
    /// Bytes of a branch's application data.
    pub application_data_bytes_max: usize,
    /// Resources that one connection registers in all.
    pub resources_max: usize,
    /// Bytes that are kept of a reason or an error; the rest is cut off.
    pub reason_bytes_max: usize,
    /// Rows that are kept of a refusal; the rest is cut off.
    pub dirty_rows_max: usize,
    /// Bytes that are kept of a dirty column's value; the rest is cut off.
    pub dirty_value_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            message_bytes_max: 4 << 20,
            queue_messages_max: 65_536,
            frame_messages_max: 1_024,
            rows_max: 10_000,
            name_bytes_max: 1_024,
            labels_max: 16,
            label_name_bytes_max: 64,
            label_value_bytes_max: 256,
            begin_key_bytes_max: 256,
            key_bytes_max: 8_192,
            application_data_bytes_max: 64 << 10,
            resources_max: 1_024,
            reason_bytes_max: 1_024,
            dirty_rows_max: 100,
            dirty_value_bytes_max: 4_096,
        }
    }
}

/// A message that cannot be turned into a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// A field holds too many bytes.
    #[error("{field} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// A field holds too many items.
    #[error("{count} {field}: at most {max} are allowed")]
    TooMany {
        /// The items that are too many.
        field: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A field that must be set is not, or holds a value of a later version.
    #[error("{field} is missing or unknown")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A label's name is empty, or has the sign behind which its value begins in a search.
    #[error("`{0}` is no name of a label: a name has at least one character and no `=`")]
    LabelName(String),
    /// The text is no XID.
    #[error("{0}")]
    Xid(#[from] handfast_core::XidTextError),
    /// The text is no id of an event.
    #[error("`{0}` is no event id: at most 64 letters, digits and hyphens")]
    EventId(String),
    /// Branch ids are positive and have 63 bits.
    #[error("branch id {0} is not between 1 and 2^63 - 1")]
    BranchId(u64),
    /// A saga whose definition says two things that exclude each other.
    #[error("{0}")]
    Saga(handfast_core::SagaFault),
    /// A second hello, or another message before the first.
    #[error("the first message of a stream, and no other, is a hello")]
    Hello,
    /// A try of a resource that the coordinator is not configured to call.
    #[error("{resource} is under no prefix that this coordinator may call")]
    NotAllowed {
        /// The resource id.
        resource: String,
    },
}

impl BadRequest {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } | Self::TooMany { .. } => "HF-TC-TOO-LARGE",
            Self::Missing { .. }
            | Self::LabelName(_)
            | Self::EventId(_)
            | Self::Xid(_)
            | Self::BranchId(_)
            | Self::Hello => "HF-TC-BAD-REQUEST",
            Self::Saga(_) => "HF-TC-SAGA-INVALID",
            Self::NotAllowed { .. } => "HF-TC-URL-NOT-ALLOWED",
        }
    }
}

pub(super) fn at_most_bytes(
    field: &'static str,
    bytes: usize,
    max: usize,
) -> Result<(), BadRequest> {
    if bytes > max { Err(BadRequest::TooLong { field, bytes, max }) } else { Ok(()) }
}

pub(super) fn at_most(field: &'static str, count: usize, max: usize) -> Result<(), BadRequest> {
    if count > max { Err(BadRequest::TooMany { field, count, max }) } else { Ok(()) }
}

/// At most `max` bytes of the text, whole characters.
pub(super) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
