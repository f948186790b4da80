//! The stored form of places in traces: bytes of a fixed length, absent where there is no trace.

use handfast_core::{GlobalTrace, RequestTrace, SpanPlace};

use super::fields::Fields;
use super::{CodecError, unknown};

/// A trace id and a span id.
const PLACE_BYTES: usize = 24;
/// The same, and another span id.
const REQUEST_BYTES: usize = 32;

pub(super) fn write_place(tag: u32, place: Option<SpanPlace>, fields: &mut Fields<'_>) {
    if let Some(place) = place {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..16].copy_from_slice(&place.trace_id);
        bytes[16..].copy_from_slice(&place.span_id);
        fields.item(tag, &bytes);
    }
}

pub(super) fn write_request(tag: u32, request: Option<RequestTrace>, fields: &mut Fields<'_>) {
    if let Some(request) = request {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..16].copy_from_slice(&request.client.trace_id);
        bytes[16..24].copy_from_slice(&request.client.span_id);
        bytes[24..].copy_from_slice(&request.own);
        fields.item(tag, &bytes);
    }
}

/// Reads the places of a global.
pub(super) fn read_global(
    transaction: Option<&[u8]>,
    decision: Option<&[u8]>,
) -> Result<Option<Box<GlobalTrace>>, CodecError> {
    let trace = GlobalTrace {
        transaction: transaction.map(read_place).transpose()?,
        decision: decision.map(read_request).transpose()?,
    };
    let is_known = trace.transaction.is_some() || trace.decision.is_some();
    Ok(is_known.then(|| Box::new(trace)))
}

fn read_place(bytes: &[u8]) -> Result<SpanPlace, CodecError> {
    match bytes.split_first_chunk() {
        Some((trace_id, rest)) if bytes.len() == PLACE_BYTES => {
            Ok(SpanPlace { trace_id: *trace_id, span_id: span_id(rest)? })
        }
        _ => Err(wrong_length(bytes)),
    }
}

pub(super) fn read_request(bytes: &[u8]) -> Result<RequestTrace, CodecError> {
    let Some((client, own)) = bytes.split_at_checked(PLACE_BYTES) else {
        return Err(wrong_length(bytes));
    };
    Ok(RequestTrace { client: read_place(client)?, own: span_id(own)? })
}

fn span_id(bytes: &[u8]) -> Result<[u8; 8], CodecError> {
    bytes.try_into().map_err(|_| wrong_length(bytes))
}

fn wrong_length(bytes: &[u8]) -> CodecError {
    unknown("length of a trace", i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}
