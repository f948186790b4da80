//! The spans of calls in phase two, one for each attempt.

use std::collections::BTreeMap;
use std::time::SystemTime;

use handfast_core::{
    BranchId, CallTrace, Decision, PhaseTwoOutcome, SpanPlace, Timestamp, Xid, XidText,
};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;

use super::Spans;
use super::draft::{SpanDraft, text};
use crate::dispatch::{Ask, Call, CallReply};

/// How long after the decision calls are still shown under it. A call that comes later begins a
/// trace of its own, with links: backends do not wait for days until a trace is whole.
const RECENT_MS: u64 = 60_000;

/// Calls with a span at a time. Beyond that calls have none (BOUNDED).
const OPEN_MAX: usize = 65_536;

/// The error of a call that was made again without an answer.
const UNANSWERED: &str = "not answered in time, or by a process that has gone";

/// The calls that are under way and have a span.
#[derive(Debug, Default)]
pub(crate) struct CallSpans {
    spans: Spans,
    open: BTreeMap<(Xid, BranchId), SpanDraft>,
}

impl CallSpans {
    /// Creates the spans of calls for this sink.
    pub(crate) fn new(spans: Spans) -> Self {
        Self { spans, open: BTreeMap::new() }
    }

    /// Returns where the spans go.
    pub(crate) fn sink(&self) -> &Spans {
        &self.spans
    }

    /// Begins the span of a call that is about to leave, and tells the call its place.
    pub(crate) fn begin(&mut self, now: Timestamp, process: &str, call: &mut Call) {
        let (Some(trace), Ask::Finish(decision)) = (call.trace.as_deref(), call.ask) else {
            return;
        };
        let has_room = self.open.len() < OPEN_MAX;
        if !self.spans.adds_to(trace.parent) || !has_room {
            call.span = Some(trace.parent);
            return;
        }
        let mut draft = draft(now, decision, trace);
        draft.attributes = attributes(call, process);
        call.span = Some(draft.place);
        let earlier = self.open.insert((call.xid, call.branch), draft);
        self.give_up(earlier);
    }

    /// Ends the span of a call that is answered.
    pub(crate) fn end(&mut self, answer: &CallReply) {
        if self.open.is_empty() {
            return;
        }
        let Some(mut draft) = self.open.remove(&(answer.xid, answer.branch)) else { return };
        // Without the text of the error, which may hold values of rows.
        let (outcome, error) = match &answer.outcome {
            PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. } => ("done", None),
            PhaseTwoOutcome::Retryable { .. } => ("retryable", Some("to be called again")),
            PhaseTwoOutcome::Refused { .. } => ("refused", Some("refused")),
        };
        draft.attributes.push(KeyValue::new("outcome", outcome));
        draft.end(&self.spans, error);
    }

    /// Ends the spans of a global's calls, or of one branch's, that are not waited for any more.
    pub(crate) fn hold(&mut self, xid: Xid, branch: Option<BranchId>) {
        if self.open.is_empty() {
            return;
        }
        let (first, last) = (branch.unwrap_or(BranchId(0)), branch.unwrap_or(BranchId(u64::MAX)));
        let held = self.open.range((xid, first)..=(xid, last)).map(|(key, _)| *key);
        for key in held.collect::<Vec<_>>() {
            let held = self.open.remove(&key);
            self.give_up(held);
        }
    }

    /// Forgets every call.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    fn give_up(&self, draft: Option<SpanDraft>) {
        if let Some(draft) = draft {
            draft.end(&self.spans, Some(UNANSWERED));
        }
    }
}

fn draft(now: Timestamp, decision: Decision, trace: &CallTrace) -> SpanDraft {
    let is_recent = now.0.saturating_sub(trace.decided_at.0) < RECENT_MS;
    let parent = is_recent.then_some(trace.parent.span_id);
    let trace_id = if is_recent { trace.parent.trace_id } else { rand::random() };
    let registration = trace.registration.map(|it| it.own_place());
    let links = registration.into_iter().chain(trace.decision);
    let above = (!is_recent).then_some(trace.parent);
    let mut links: Vec<SpanPlace> = links.chain(above).collect();
    links.dedup();
    SpanDraft {
        place: SpanPlace { trace_id, span_id: u64::max(rand::random(), 1).to_be_bytes() },
        parent,
        kind: SpanKind::Producer,
        name: match decision {
            Decision::Commit => "phase two commit",
            Decision::RollBack => "phase two roll back",
        },
        started_at: SystemTime::now(),
        attributes: Vec::new(),
        links,
    }
}

fn attributes(call: &Call, process: &str) -> Vec<KeyValue> {
    let xid = XidText { address: &call.address, xid: call.xid };
    vec![
        text("xid", xid.to_string()),
        text("branch", call.branch.0.to_string()),
        text("resource", call.resource.id.as_ref()),
        text("process", process),
        KeyValue::new("attempt", i64::from(call.attempts) + 1),
    ]
}
