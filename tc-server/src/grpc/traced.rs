//! Which requests have a span, and what their spans tell of them.

use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use opentelemetry::KeyValue;
use tonic::metadata::MetadataMap;

use crate::spans::{OwnSpan, RequestSpan, Spans, text};

/// The header in which a unary call may carry its trace instead.
const HEADER: &str = "traceparent";

/// Begins the span of a message of a stream, if it stands in a trace.
pub(super) fn of_message(spans: &Spans, body: &Body) -> Option<RequestSpan> {
    match body {
        Body::Begin(request) => of_begin(spans, request),
        Body::RegisterBranch(request) => of_registration(spans, request),
        Body::End(request) => of_end(spans, request),
        Body::TryBranch(request) => of_try(spans, request),
        Body::StartSaga(request) => of_saga(spans, request),
        Body::SignalSaga(request) => of_signal(spans, request),
        Body::CancelSaga(request) => of_cancellation(spans, request),
        Body::Hello(_)
        | Body::RegisterResources(_)
        | Body::ReportBranch(_)
        | Body::CheckLocks(_)
        | Body::ReportDatabaseWait(_)
        | Body::GetStatus(_)
        | Body::Finished(_)
        | Body::GetSaga(_)
        | Body::AcquireLock(_)
        | Body::RenewLocks(_)
        | Body::ReleaseLock(_)
        | Body::FindLock(_)
        | Body::ReportOutbox(_) => None,
    }
}

/// Takes the message out of a unary call, with the trace of its header unless it has one itself.
macro_rules! message {
    ($request:expr) => {{
        let (metadata, _, mut message) = $request.into_parts();
        $crate::grpc::traced::take_header(&metadata, &mut message.traceparent);
        message
    }};
}
pub(super) use message;

pub(super) fn take_header(metadata: &MetadataMap, traceparent: &mut String) {
    let Some(header) = metadata.get(HEADER).filter(|_| traceparent.is_empty()) else { return };
    if let Ok(header) = header.to_str() {
        traceparent.push_str(header);
    }
}

pub(super) fn of_begin(spans: &Spans, request: &wire::BeginRequest) -> Option<RequestSpan> {
    RequestSpan::begin(spans, &request.traceparent, "begin", OwnSpan::Random, || {
        vec![text("name", request.name.as_str()), text("application", request.application.as_str())]
    })
}

pub(super) fn of_registration(
    spans: &Spans,
    request: &wire::RegisterBranchRequest,
) -> Option<RequestSpan> {
    RequestSpan::begin(spans, &request.traceparent, "register", OwnSpan::Random, || {
        let rows: usize = request.rows.iter().map(|rows| rows.keys.len()).sum();
        let mut attributes = of_branch(&request.xid, request.branch_id, &request.resource_id);
        attributes.push(KeyValue::new("rows", i64::try_from(rows).unwrap_or(i64::MAX)));
        attributes
    })
}

pub(super) fn of_end(spans: &Spans, request: &wire::EndRequest) -> Option<RequestSpan> {
    let name = match request.decision() {
        wire::Decision::Commit => "commit",
        wire::Decision::RollBack => "roll back",
        wire::Decision::Unspecified => return None,
    };
    RequestSpan::begin(spans, &request.traceparent, name, OwnSpan::Of(&request.xid), || {
        vec![text("xid", request.xid.as_str())]
    })
}

pub(super) fn of_try(spans: &Spans, request: &wire::TryBranchRequest) -> Option<RequestSpan> {
    RequestSpan::begin(spans, &request.traceparent, "try", OwnSpan::Random, || {
        of_branch(&request.xid, request.branch_id, &request.resource_id)
    })
}

fn of_saga(spans: &Spans, request: &wire::StartSagaRequest) -> Option<RequestSpan> {
    // A start that is sent again to the next leader finds the saga, whose steps are linked to this.
    let own = OwnSpan::Of(&request.key);
    RequestSpan::begin(spans, &request.traceparent, "start saga", own, || {
        let saga = request.definition.as_ref().map_or("", |definition| definition.name.as_str());
        vec![
            text("name", saga),
            text("key", request.key.as_str()),
            text("application", request.application.as_str()),
        ]
    })
}

fn of_signal(spans: &Spans, request: &wire::SignalSagaRequest) -> Option<RequestSpan> {
    RequestSpan::begin(spans, &request.traceparent, "signal saga", OwnSpan::Random, || {
        vec![text("xid", request.xid.as_str()), text("signal", request.signal.as_str())]
    })
}

fn of_cancellation(spans: &Spans, request: &wire::CancelSagaRequest) -> Option<RequestSpan> {
    RequestSpan::begin(spans, &request.traceparent, "cancel saga", OwnSpan::Random, || {
        vec![text("xid", request.xid.as_str())]
    })
}

fn of_branch(xid: &str, branch: u64, resource: &str) -> Vec<KeyValue> {
    vec![text("xid", xid), text("branch", branch.to_string()), text("resource", resource)]
}
