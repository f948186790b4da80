//! Where a global stands in traces, and what the spans of its phase two follow from.

use super::branch::Branch;
use super::state::{Global, Phase};
use crate::contract::{CallTrace, EventKind, GlobalTrace, RequestTrace, SpanPlace, Timestamp};

/// The places of a global in traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownTrace {
    pub(crate) places: GlobalTrace,
    /// Whether the decision was read from a record: the process that took it may have ended before
    /// it exported its span.
    decided_before: bool,
}

impl KnownTrace {
    /// The places that a record has.
    pub(crate) fn restored(places: &GlobalTrace) -> Box<Self> {
        Box::new(Self { places: *places, decided_before: true })
    }

    /// The span that phase two belongs under: that of the decision, or of its client if the former
    /// may be lost.
    fn parent(&self) -> Option<SpanPlace> {
        let of_decision = |decision: RequestTrace| {
            if self.decided_before { decision.client } else { decision.own_place() }
        };
        self.places.decision.map(of_decision).or(self.places.transaction)
    }
}

impl Global {
    /// Notes the client's span within which it was begun.
    pub(crate) fn note_begin(&mut self, trace: RequestTrace) {
        let transaction = Some(trace.client);
        if self.trace().is_none() {
            let places = GlobalTrace { transaction, decision: None };
            self.extras_mut().trace = Some(Box::new(KnownTrace { places, decided_before: false }));
        }
    }

    /// Notes the request that is about to decide it, unless it is decided.
    pub(crate) fn note_decision(&mut self, trace: RequestTrace) {
        if self.phase != Phase::Active {
            return;
        }
        let transaction = self.trace().and_then(|known| known.places.transaction);
        let places = GlobalTrace { transaction, decision: Some(trace) };
        self.extras_mut().trace = Some(Box::new(KnownTrace { places, decided_before: false }));
    }

    /// The spans that a call to the branch follows from.
    pub(super) fn call_trace(&self, branch: &Branch) -> Option<Box<CallTrace>> {
        let (known, registration) = (self.trace(), branch.trace());
        let of_registration = || registration.map(|it| it.own_place());
        let parent = known.and_then(KnownTrace::parent).or_else(of_registration)?;
        let decision = known.and_then(|known| known.places.decision);
        Some(Box::new(CallTrace {
            parent,
            decided_at: self.decided_at(),
            decision: decision.map(|it| it.own_place()),
            registration,
        }))
    }

    /// The spans that a question to the branch follows from, which is asked now.
    pub(super) fn question_trace(&self, branch: &Branch, now: Timestamp) -> Option<Box<CallTrace>> {
        let trace = self.call_trace(branch)?;
        Some(Box::new(CallTrace { decided_at: now, ..*trace }))
    }

    /// When it was decided, as its course tells.
    fn decided_at(&self) -> Timestamp {
        let decided = self.events().iter().rfind(|event| event.kind == EventKind::Decided);
        decided.map_or(self.begun_at, |event| event.at)
    }
}
