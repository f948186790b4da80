//! The decoder of wire messages into requests. Its methods stand with the messages they decode.

use super::bounds::{BadRequest, Bounds, at_most_bytes, cut};

/// Decodes messages, and refuses those beyond its bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    pub(super) bounds: Bounds,
}

impl Decoder {
    /// Refuses a name that is too long.
    pub(super) fn name(&self, field: &'static str, text: &str) -> Result<(), BadRequest> {
        at_most_bytes(field, text.len(), self.bounds.name_bytes_max)
    }

    /// Returns the beginning of a reason or error.
    pub(super) fn reason<'a>(&self, text: &'a str) -> &'a str {
        cut(text, self.bounds.reason_bytes_max)
    }
}
