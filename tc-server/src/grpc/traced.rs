//! Which requests have a span, and what their spans tell.

use handfast_core::Reply;
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use opentelemetry::KeyValue;
use tonic::metadata::MetadataMap;

use crate::engine::EngineResult;
use crate::spans::{OwnSpan, RequestSpan, Spans, text};

use super::to_wire::xid_text;

/// The header in which a unary call may carry its trace instead.
const HEADER: &str = "traceparent";

/// Begins the span of a message of a stream, if it stands in a trace.
pub(super) fn of_message(spans: &Spans, body: &Body) -> Option<RequestSpan> {
    match body {
        Body::Begin(request) => of_begin(spans, request),
        Body::RegisterBranch(request) => of_registration(spans, request),
        Body::End(request) => of_end(spans, request),
        Body::TryBranch(request) => of_try(spans, request),
        Body::Hello(_)
        | Body::RegisterResources(_)
        | Body::ReportBranch(_)
        | Body::CheckLocks(_)
        | Body::ReportDatabaseWait(_)
        | Body::GetStatus(_)
        | Body::Finished(_)
        | Body::StartSaga(_)
        | Body::GetSaga(_)
        | Body::SignalSaga(_)
        | Body::CancelSaga(_)
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

/// Ends the span of a request with the engine's answer.
pub(super) fn end(span: RequestSpan, answered: &EngineResult) {
    match answered {
        Ok(Reply::Begun { xid, address, .. }) => {
            span.end(Some(text("xid", xid_text(address, *xid))), None);
        }
        Ok(Reply::Ended(status)) => span.end(Some(text("status", status.to_string())), None),
        // Without the message, which may name a row.
        Ok(Reply::Rejected(rejection)) => end_with_code(span, rejection.code()),
        Ok(_) => span.end(None, None),
        Err(error) => end_with_code(span, error.code()),
    }
}

fn end_with_code(span: RequestSpan, code: &'static str) {
    span.end(Some(text("code", code)), Some(code));
}

fn of_branch(xid: &str, branch: u64, resource: &str) -> Vec<KeyValue> {
    vec![text("xid", xid), text("branch", branch.to_string()), text("resource", resource)]
}
