//! Without the feature `otel` no span has a place in a trace of other processes.

use http::HeaderMap;
use tracing::Span;

pub(crate) fn traceparent() -> String {
    String::new()
}

pub(crate) fn put_under(_span: &Span, _traceparent: &str) {}

pub(crate) fn link(_span: &Span, _traceparent: &str) {}

pub(crate) fn rename(_span: &Span, _name: impl FnOnce() -> String) {}

pub(crate) fn write_headers(_headers: &mut HeaderMap) {}

pub(crate) fn read_header(_span: &Span, _headers: &HeaderMap) {}
