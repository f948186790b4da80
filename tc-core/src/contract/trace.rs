//! Where requests stand in traces: what lets spans of phase two link to what they follow from.
//!
//! They are for display. No decision depends on one, and only sampled ones come here.

use super::id::Timestamp;
use super::request::Command;

/// A span's place in a trace, as W3C Trace Context has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPlace {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span within it.
    pub span_id: [u8; 8],
}

/// The two spans of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTrace {
    /// The span of the client, within which it asks.
    pub client: SpanPlace,
    /// The coordinator's span of the request, in the same trace; the client's if the coordinator
    /// exports none.
    pub own: [u8; 8],
}

impl RequestTrace {
    /// Returns the place of the coordinator's span.
    #[must_use]
    pub fn own_place(&self) -> SpanPlace {
        SpanPlace { trace_id: self.client.trace_id, span_id: self.own }
    }
}

/// The places of a global in traces. Most globals have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalTrace {
    /// The client's span around the whole transaction.
    pub transaction: Option<SpanPlace>,
    /// The request that decided it.
    pub decision: Option<RequestTrace>,
}

/// The spans that the span of a call follows from: of a call in phase two, of a question before a
/// commit, or of a step of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// The span that the call belongs under, for as long as the decision is recent.
    pub parent: SpanPlace,
    /// When the decision was taken, the question was first asked, or the saga began.
    pub decided_at: Timestamp,
    /// The coordinator's span of the decision, of the request for a commit, or of the saga's start.
    pub decision: Option<SpanPlace>,
    /// The registration of the branch.
    pub registration: Option<RequestTrace>,
}

/// A request and where it stands in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedCommand {
    /// The spans of the request.
    pub trace: RequestTrace,
    /// The request: no traced one again.
    pub command: Command,
}

impl Command {
    /// Returns the request itself, without its place in a trace.
    #[must_use]
    pub fn untraced(&self) -> &Self {
        if let Self::Traced(traced) = self { &traced.command } else { self }
    }
}
