//! Places of spans in traces of OpenTelemetry, with the feature `otel`.
//!
//! A process that has no layer of `tracing-opentelemetry` has no such places, and nothing here has
//! an effect.

use std::str::FromStr;

use handfast_proto::traceparent::{HEADER, Traceparent};
use http::{HeaderMap, HeaderValue};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const STATE_HEADER: &str = "tracestate";
/// A longer one is not passed on: it is of no use here, and W3C asks for no more (BOUNDED).
const STATE_BYTES_MAX: usize = 512;

/// Returns the place of the running code for the coordinator; empty if it is not sampled.
pub(crate) fn traceparent() -> String {
    let place = current();
    if place.is_valid() && place.is_sampled() { to_text(&place) } else { String::new() }
}

/// Puts a span under that of another process; under none that is sampled if there is no text.
pub(crate) fn put_under(span: &Span, traceparent: &str) {
    if span.is_disabled() {
        return;
    }
    let parent = Traceparent::read(traceparent).unwrap_or_else(unsampled);
    set_parent(span, context(parent, TraceState::NONE));
}

/// Links a span to one of another process, if the text names one.
pub(crate) fn link(span: &Span, traceparent: &str) {
    if let Some(place) = Traceparent::read(traceparent) {
        span.add_link(context(place, TraceState::NONE));
    }
}

/// Gives a span its name in traces, which may vary where the name of a `tracing` span may not. To
/// be called last: from here on the span has its place.
pub(crate) fn rename(span: &Span, name: impl FnOnce() -> String) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    let named = context.span();
    if named.is_recording() {
        named.update_name(name());
    }
}

/// Writes the place of the running code into the headers of a request, unless they have one: the
/// application's own instrumentation knows better.
pub(crate) fn write_headers(headers: &mut HeaderMap) {
    let place = current();
    if !place.is_valid() || headers.contains_key(HEADER) {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(&to_text(&place)) {
        headers.insert(HEADER, value);
    }
    let state = place.trace_state().header();
    if !state.is_empty()
        && state.len() <= STATE_BYTES_MAX
        && let Ok(value) = HeaderValue::from_str(&state)
    {
        headers.insert(STATE_HEADER, value);
    }
}

/// Puts a span where the headers of the request say, unless the application's own instrumentation
/// has made a span around it.
pub(crate) fn read_header(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() || current().is_valid() {
        return;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(place) = text(HEADER).and_then(Traceparent::read) else { return };
    let state = text(STATE_HEADER).filter(|state| state.len() <= STATE_BYTES_MAX);
    let state = state.and_then(|state| TraceState::from_str(state).ok());
    set_parent(span, context(place, state.unwrap_or_default()));
}

fn current() -> SpanContext {
    let of_span = Span::current().context().span().span_context().clone();
    if of_span.is_valid() { of_span } else { Context::current().span().span_context().clone() }
}

/// Returns a span that is not sampled. Under it none is: without it, a span of phase two whose
/// global is not sampled would begin a trace of its own.
fn unsampled() -> Traceparent {
    let span_id = u64::max(rand::random(), 1).to_be_bytes();
    Traceparent { trace_id: u128::max(rand::random(), 1).to_be_bytes(), span_id, is_sampled: false }
}

fn set_parent(span: &Span, parent: SpanContext) {
    // The error says that no layer records the span, which then has no parent either.
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
}

fn context(place: Traceparent, state: TraceState) -> SpanContext {
    let Traceparent { trace_id, span_id, is_sampled } = place;
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let (trace, span) = (TraceId::from_bytes(trace_id), SpanId::from_bytes(span_id));
    SpanContext::new(trace, span, flags, true, state)
}

fn to_text(place: &SpanContext) -> String {
    Traceparent {
        trace_id: place.trace_id().to_bytes(),
        span_id: place.span_id().to_bytes(),
        is_sampled: place.is_sampled(),
    }
    .to_text()
}
