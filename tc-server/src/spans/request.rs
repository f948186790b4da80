//! The span of a request, from its arrival to its reply.

use std::time::SystemTime;

use handfast_core::{Command, Reply, RequestTrace, SpanPlace, TracedCommand, XidText};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use xxhash_rust::xxh3::xxh3_64;

use super::draft::{SpanDraft, text};
use super::{Spans, read_traceparent};
use crate::engine::EngineResult;

/// How the coordinator's span of a request is identified.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnSpan<'a> {
    /// At random.
    Random,
    /// By the name of the span and this text: the same request, sent again to the next leader, has
    /// the same span, to which phase two is linked.
    Of(&'a str),
}

impl OwnSpan<'_> {
    fn id(self, name: &str) -> [u8; 8] {
        let number = match self {
            Self::Random => rand::random(),
            Self::Of(text) => xxh3_64(format!("{name} {text}").as_bytes()),
        };
        // Zero is no span.
        u64::max(number, 1).to_be_bytes()
    }
}

/// A request that stands in a sampled trace.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    trace: RequestTrace,
    /// None if the coordinator exports none.
    draft: Option<(Spans, SpanDraft)>,
}

impl RequestSpan {
    /// Begins the span of a request that a client has sent within a sampled span.
    pub(crate) fn begin(
        spans: &Spans,
        traceparent: &str,
        name: &'static str,
        own: OwnSpan<'_>,
        attributes: impl FnOnce() -> Vec<KeyValue>,
    ) -> Option<Self> {
        let client = read_traceparent(traceparent)?;
        if !spans.adds_to(client) {
            return Some(Self { trace: RequestTrace { client, own: client.span_id }, draft: None });
        }
        let trace = RequestTrace { client, own: own.id(name) };
        let draft = SpanDraft {
            place: trace.own_place(),
            parent: Some(client.span_id),
            kind: SpanKind::Server,
            name: name.into(),
            started_at: SystemTime::now(),
            attributes: attributes(),
            links: Vec::new(),
        };
        Some(Self { trace, draft: Some((spans.clone(), draft)) })
    }

    /// Returns the place of the coordinator's span, or of the client's if it has none.
    pub(crate) fn place(&self) -> SpanPlace {
        self.trace.own_place()
    }

    /// Returns the request with its place in the trace.
    pub(crate) fn traced(&self, command: Command) -> Command {
        Command::Traced(Box::new(TracedCommand { trace: self.trace, command }))
    }

    /// Ends the span with the engine's answer.
    pub(crate) fn end_with(self, answered: &EngineResult) {
        let of = |address: &str, xid| Some(text("xid", XidText { address, xid }.to_string()));
        match answered {
            Ok(Reply::Begun { xid, address, .. }) => self.end(of(address, *xid), None),
            Ok(Reply::Saga(saga)) => self.end(of(&saga.address, saga.xid), None),
            Ok(Reply::Ended(status)) => self.end(Some(text("status", status.to_string())), None),
            // Without the message, which may name a row.
            Ok(Reply::Rejected(rejection)) => self.end_with_code(rejection.code()),
            Ok(_) => self.end(None, None),
            Err(error) => self.end_with_code(error.code()),
        }
    }

    fn end_with_code(self, code: &'static str) {
        self.end(Some(text("code", code)), Some(code));
    }

    /// Ends the span with what the reply tells, and with the error if it tells of one.
    pub(crate) fn end(self, told: Option<KeyValue>, error: Option<&'static str>) {
        if let Some((spans, mut draft)) = self.draft {
            draft.attributes.extend(told);
            draft.end(&spans, error);
        }
    }
}
