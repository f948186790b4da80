//! The stored form of a closure, version 1. Field numbers are never used for anything else again.

use handfast_core::{ClosureReason, ClosureRecord, Timestamp};

use super::fields::Fields;
use super::{CodecError, unknown};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredClosure {
    #[prost(uint32, tag = "1")]
    reason: u32,
    #[prost(string, tag = "2")]
    place: String,
    #[prost(uint64, tag = "3")]
    at: u64,
}

/// Writes what [`StoredClosure`] reads.
pub(super) fn write(closure: &ClosureRecord, fields: &mut Fields<'_>) {
    let reason: u32 = match closure.reason {
        ClosureReason::Moved => 1,
        ClosureReason::Incomplete => 2,
    };
    fields.number(1, reason);
    fields.text(2, &closure.place);
    fields.number(3, closure.at.0);
}

impl StoredClosure {
    pub(super) fn read(self) -> Result<ClosureRecord, CodecError> {
        let reason = match self.reason {
            1 => ClosureReason::Moved,
            2 => ClosureReason::Incomplete,
            other => return Err(unknown("reason of a closure", other)),
        };
        Ok(ClosureRecord { reason, place: self.place.into(), at: Timestamp(self.at) })
    }
}
