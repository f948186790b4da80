//! The spans of one call: one for each of its branches.

use std::collections::HashMap;

use handfast_proto::v1::branch_outcome::Result as Ended;
use handfast_proto::v1::{BranchOutcome, PhaseTwoCall};
use tracing::Span;

use crate::trace;

/// The spans of a call's branches, in the order of these.
#[derive(Debug)]
pub(super) struct CallSpans(Vec<((String, u64), Span)>);

impl CallSpans {
    pub(super) fn begin(call: &PhaseTwoCall) -> Self {
        let mut spans = Vec::new();
        for branch in &call.branches {
            // No subscriber wants them, or all.
            let Some(span) = trace::call(call, branch).filter(|span| !span.is_disabled()) else {
                break;
            };
            spans.push(((branch.xid.clone(), branch.branch_id), span));
        }
        Self(spans)
    }

    /// Returns the span that the work is done in: that of the branch, if there is only one.
    pub(super) fn around(&self) -> Span {
        match &*self.0 {
            [(_, span)] => span.clone(),
            _ => Span::none(),
        }
    }

    /// Ends them with how their branches have ended.
    pub(super) fn end(self, outcomes: &[BranchOutcome]) {
        if self.0.is_empty() {
            return;
        }
        let words = outcomes.iter().map(|it| ((it.xid.as_str(), it.branch_id), word(it)));
        let words: HashMap<(&str, u64), &'static str> = words.collect();
        for ((xid, branch), span) in &self.0 {
            span.record("outcome", words.get(&(xid.as_str(), *branch)).copied().unwrap_or("none"));
        }
    }
}

fn word(outcome: &BranchOutcome) -> &'static str {
    match &outcome.result {
        Some(Ended::Done(_) | Ended::Given(_)) => "done",
        Some(Ended::Refused(_)) => "refused",
        Some(Ended::Retryable(_)) | None => "retryable",
    }
}
