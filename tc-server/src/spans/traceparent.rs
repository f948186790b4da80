//! The place of a sampled span as text, and back.

use handfast_core::SpanPlace;
use handfast_proto::traceparent::Traceparent;

/// Reads the place of a span. Returns `None` for a text that names none, and for a span that is not
/// sampled: there is nothing to add to its trace.
pub(crate) fn read_traceparent(text: &str) -> Option<SpanPlace> {
    // Most requests stand in no trace.
    if text.is_empty() {
        return None;
    }
    let Traceparent { trace_id, span_id, is_sampled } = Traceparent::read(text)?;
    is_sampled.then_some(SpanPlace { trace_id, span_id })
}

/// Writes the place of a sampled span.
pub(crate) fn format_traceparent(place: SpanPlace) -> String {
    let SpanPlace { trace_id, span_id } = place;
    Traceparent { trace_id, span_id, is_sampled: true }.to_text()
}
