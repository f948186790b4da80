//! The spans of the library, and where they stand in the traces of other processes.
//!
//! The spans are those of `tracing`, on level `INFO` and with one target, [`TARGET`]; a span that
//! no subscriber wants costs a look at an atomic. With the feature `otel` they take part in traces
//! of OpenTelemetry: what is sent to other processes carries the place of the running code
//! (`traceparent`), and what comes from them is put in its place. Nothing is exported here: that
//! is what the application's own subscriber does.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

use tracing::field::{Empty, display};
use tracing::{Span, info_span};

use crate::xid::Xid;

#[cfg(not(feature = "otel"))]
pub(crate) use none::{link, put_under, read_header, rename, traceparent, write_headers};
#[cfg(feature = "otel")]
pub(crate) use otel::{link, put_under, read_header, rename, traceparent, write_headers};

/// The target of every span, for filters such as `handfast::trace=info`.
const TARGET: &str = "handfast::trace";

/// The header of an event that says within which span it was emitted.
pub(crate) const EVENT_HEADER: &str = handfast_proto::traceparent::HEADER;

/// The whole of a global, in the process that begins it.
pub(crate) fn transaction(name: &str) -> Span {
    let span = info_span!(target: TARGET, "transaction", name, xid = Empty, outcome = Empty);
    rename(&span, || format!("transaction {name}"));
    span
}

/// Phase one of a branch.
pub(crate) fn branch(xid: &Xid, branch: u64, resource: &str, mode: &'static str) -> Span {
    info_span!(target: TARGET, "branch", %xid, branch, resource, mode)
}

/// A request of another process, served within its global.
pub(crate) fn serve<B>(xid: &Xid, request: &http::Request<B>) -> Span {
    let (method, path) = (request.method(), request.uri().path());
    let span = info_span!(target: TARGET, "serve", %xid, %method, path, otel.kind = "server");
    read_header(&span, request.headers());
    rename(&span, || method.to_string());
    span
}

/// Phase two of a branch, under the coordinator's span and linked to phase one.
pub(crate) fn phase_two(
    resource: &str,
    decision: &'static str,
    branch: &handfast_proto::v1::PhaseTwoBranch,
) -> Span {
    let (xid, id) = (&branch.xid, branch.branch_id);
    let span = info_span!(
        target: TARGET, parent: None, "phase two",
        xid, branch = id, resource, decision, outcome = Empty, otel.kind = "consumer"
    );
    put_under(&span, &branch.traceparent);
    link(&span, &branch.branch_traceparent);
    rename(&span, || format!("phase two {decision}"));
    span
}

/// The effect of an event on its consumer, in a trace of its own, linked to where it was emitted.
pub(crate) fn process(consumer: &str, event: &crate::outbox::Event) -> Span {
    let (topic, id) = (event.topic(), display(event.id()));
    let span = info_span!(
        target: TARGET, "process",
        consumer, topic, event = id, key = event.key(), otel.kind = "consumer"
    );
    link(&span, event.header_value(EVENT_HEADER).unwrap_or_default());
    rename(&span, || format!("process {topic}"));
    span
}
