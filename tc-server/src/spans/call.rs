//! The spans of calls, one for each attempt: of phase two, of questions before a commit, and of the
//! steps of sagas.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use handfast_core::{
    BranchId, CallTrace, Decision, PhaseTwoOutcome, SpanPlace, Timestamp, VoteRequest, Xid, XidText,
};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;

use super::Spans;
use super::draft::{SpanDraft, text};
use crate::dispatch::{Ask, Call, CallReply};

/// How long after the decision, or the start of a saga, calls are still shown under it. A later
/// one begins a trace of its own, with links: backends do not wait for days until a trace is whole.
const RECENT_MS: u64 = 60_000;

/// Calls with a span at a time. Beyond that calls have none (BOUNDED).
const OPEN_MAX: usize = 65_536;

/// The error of a call that was made again without an answer.
const UNANSWERED: &str = "not answered in time, or by a process that has gone";

/// The calls that are under way and have a span.
#[derive(Debug, Default)]
pub(crate) struct CallSpans {
    spans: Spans,
    /// By their branches, each of which is asked one thing at a time.
    open: BTreeMap<(Xid, BranchId), (Ask, SpanDraft)>,
}

/// The circumstances in which a call leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving<'a> {
    pub(crate) now: Timestamp,
    /// The process that it goes to.
    pub(crate) process: &'a str,
    /// How many calls the message has.
    pub(crate) together: usize,
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
    pub(crate) fn begin(&mut self, leaving: Leaving<'_>, call: &mut Call) {
        let Some(trace) = call.trace.as_deref() else { return };
        let has_room = self.open.len() < OPEN_MAX;
        if !self.spans.adds_to(trace.parent) || !has_room {
            call.span = Some(trace.parent);
            return;
        }
        let mut draft = draft(leaving.now, name(call), trace);
        draft.attributes = attributes(call, leaving);
        call.span = Some(draft.place);
        let earlier = self.open.insert((call.xid, call.branch), (call.ask, draft));
        self.give_up(earlier);
    }

    /// Ends the span of a call that is answered. A late answer to an earlier question ends none.
    pub(crate) fn end(&mut self, answer: &CallReply) {
        let key = (answer.xid, answer.branch);
        if self.open.get(&key).is_none_or(|(ask, _)| *ask != answer.ask) {
            return;
        }
        let Some((_, mut draft)) = self.open.remove(&key) else { return };
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

    fn give_up(&self, call: Option<(Ask, SpanDraft)>) {
        if let Some((_, draft)) = call {
            draft.end(&self.spans, Some(UNANSWERED));
        }
    }
}

fn draft(now: Timestamp, name: Cow<'static, str>, trace: &CallTrace) -> SpanDraft {
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
        name,
        started_at: SystemTime::now(),
        attributes: Vec::new(),
        links,
    }
}

fn name(call: &Call) -> Cow<'static, str> {
    match (call.ask, call.step.as_deref()) {
        (Ask::Vote(VoteRequest::CanCommit), _) => "can commit".into(),
        (Ask::Vote(VoteRequest::Prepare), _) => "prepare".into(),
        (Ask::Vote(VoteRequest::Settle), _) => "settle".into(),
        (Ask::Finish(Decision::Commit), Some(step)) => format!("step {}", step.step).into(),
        (Ask::Finish(Decision::RollBack), Some(step)) => format!("compensate {}", step.step).into(),
        (Ask::Finish(Decision::Commit), None) => "phase two commit".into(),
        (Ask::Finish(Decision::RollBack), None) => "phase two roll back".into(),
    }
}

fn attributes(call: &Call, leaving: Leaving<'_>) -> Vec<KeyValue> {
    let xid = XidText { address: &call.address, xid: call.xid };
    let mut attributes = vec![
        text("xid", xid.to_string()),
        text("branch", call.branch.0.to_string()),
        text("resource", call.resource.id.as_ref()),
        text("process", leaving.process),
        KeyValue::new("attempt", i64::from(call.attempts) + 1),
        KeyValue::new("branches", i64::try_from(leaving.together).unwrap_or(i64::MAX)),
    ];
    if let Some(step) = call.step.as_deref() {
        let named = [("saga", &step.saga), ("key", &step.key), ("action", &step.action)];
        attributes.extend(named.map(|(name, value)| text(name, value.as_ref())));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use handfast_core::{Mode, Retry, StepCall, StepKind};
    use opentelemetry_sdk::trace::SpanData;
    use tokio::sync::mpsc;

    use super::*;
    use crate::dispatch::ResourceKey;

    const BEGUN: Timestamp = Timestamp(1_000);

    /// The spans of calls in a trace, all of which are kept, and those that have ended.
    fn spans() -> (CallSpans, mpsc::Receiver<SpanData>) {
        let (queue, ended) = mpsc::channel(8);
        (CallSpans::new(Spans::new(queue, 100)), ended)
    }

    fn place(span: u8) -> SpanPlace {
        SpanPlace { trace_id: [7; 16], span_id: [span; 8] }
    }

    fn call(ask: Ask, step: Option<&'static str>) -> Call {
        let step = step.map(|step| StepCall {
            saga: "place-order".into(),
            key: "order-42".into(),
            step: step.into(),
            action: "take".into(),
            kind: StepKind::Compensable,
            outputs: Vec::new(),
            retry: Retry::DEFAULT,
        });
        let trace = CallTrace {
            parent: place(1),
            decided_at: BEGUN,
            decision: Some(place(2)),
            registration: None,
        };
        Call {
            xid: Xid(9),
            address: "tc".into(),
            branch: BranchId(1),
            resource: ResourceKey { id: "stock".into(), mode: Mode::Saga },
            ask,
            resolution: None,
            application_data: Box::default(),
            attempts: 0,
            step: step.map(Arc::new),
            registered_by: None,
            trace: Some(Arc::new(trace)),
            span: None,
        }
    }

    fn leaving(now: Timestamp) -> Leaving<'static> {
        Leaving { now, process: "shop-1", together: 3 }
    }

    fn answer(ask: Ask) -> CallReply {
        CallReply { xid: Xid(9), branch: BranchId(1), ask, outcome: PhaseTwoOutcome::Done }
    }

    /// Returns the span of a call that leaves then and is answered.
    fn answered(now: Timestamp, mut call: Call) -> SpanData {
        let (mut spans, mut ended) = spans();
        spans.begin(leaving(now), &mut call);
        spans.end(&answer(call.ask));
        let span = ended.try_recv().expect("an answer ends the span");
        let place = call.span.expect("the call is told the place of its span");
        assert_eq!(span.span_context.span_id().to_bytes(), place.span_id);
        span
    }

    fn value(span: &SpanData, name: &str) -> Option<String> {
        let named = span.attributes.iter().find(|it| it.key.as_str() == name);
        named.map(|it| it.value.to_string())
    }

    #[test]
    fn a_span_is_named_after_what_is_asked() {
        const COMMIT: Ask = Ask::Finish(Decision::Commit);
        const ROLL_BACK: Ask = Ask::Finish(Decision::RollBack);
        for (ask, step, name) in [
            (Ask::Vote(VoteRequest::CanCommit), None, "can commit"),
            (Ask::Vote(VoteRequest::Prepare), None, "prepare"),
            (Ask::Vote(VoteRequest::Settle), None, "settle"),
            (COMMIT, None, "phase two commit"),
            (ROLL_BACK, None, "phase two roll back"),
            (COMMIT, Some("billing/charge"), "step billing/charge"),
            (ROLL_BACK, Some("deduct"), "compensate deduct"),
        ] {
            let span = answered(BEGUN, call(ask, step));
            assert_eq!(span.name, name);
            assert_eq!(value(&span, "branches").as_deref(), Some("3"));
            assert_eq!(value(&span, "key").as_deref(), step.map(|_| "order-42"));
            assert_eq!(span.parent_span_id.to_bytes(), place(1).span_id);
            let links: Vec<_> =
                span.links.iter().map(|it| it.span_context.span_id().to_bytes()).collect();
            assert_eq!(links, [place(2).span_id]);
        }
    }

    /// A late vote must not end the span of phase two.
    #[test]
    fn an_answer_to_another_question_ends_no_span() {
        let (mut spans, mut ended) = spans();
        let asked = Ask::Finish(Decision::RollBack);
        spans.begin(leaving(BEGUN), &mut call(asked, None));
        for other in [Ask::Vote(VoteRequest::Prepare), Ask::Finish(Decision::Commit)] {
            spans.end(&answer(other));
            assert!(ended.try_recv().is_err(), "{other:?}");
        }
        spans.end(&answer(asked));
        assert_eq!(ended.try_recv().expect("an answer ends the span").name, "phase two roll back");
    }

    #[test]
    fn a_step_that_is_called_much_later_has_a_trace_of_its_own() {
        let late = Timestamp(BEGUN.0 + RECENT_MS);
        let span = answered(late, call(Ask::Finish(Decision::Commit), Some("ship")));
        assert_ne!(span.span_context.trace_id().to_bytes(), place(1).trace_id);
        assert_eq!(span.parent_span_id.to_bytes(), [0; 8]);
        let links: Vec<_> =
            span.links.iter().map(|it| it.span_context.span_id().to_bytes()).collect();
        assert_eq!(links, [place(2).span_id, place(1).span_id]);
    }
}
