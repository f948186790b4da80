//! A span that has begun and not ended.

use std::borrow::Cow;
use std::time::SystemTime;

use handfast_core::SpanPlace;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::Spans;

/// A span to be: it is made when it ends.
#[derive(Debug)]
pub(super) struct SpanDraft {
    pub(super) place: SpanPlace,
    /// The span above it in its trace.
    pub(super) parent: Option<[u8; 8]>,
    pub(super) kind: SpanKind,
    pub(super) name: Cow<'static, str>,
    pub(super) started_at: SystemTime,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) links: Vec<SpanPlace>,
}

impl SpanDraft {
    /// Ends the span; an error says what went wrong.
    pub(super) fn end(self, spans: &Spans, error: Option<&'static str>) {
        let mut links = SpanLinks::default();
        links.links = self.links.into_iter().map(context).map(Link::with_context).collect();
        spans.put(SpanData {
            span_context: context(self.place),
            parent_span_id: self.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: true,
            span_kind: self.kind,
            name: self.name,
            start_time: self.started_at,
            end_time: SystemTime::now(),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder("handfast")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        });
    }
}

/// An attribute. Attributes have the names that the log uses.
pub(crate) fn text(name: &'static str, value: impl Into<String>) -> KeyValue {
    KeyValue::new(name, value.into())
}

fn context(place: SpanPlace) -> SpanContext {
    let (trace, span) = (TraceId::from_bytes(place.trace_id), SpanId::from_bytes(place.span_id));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::NONE)
}
