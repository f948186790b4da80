//! The memory of what has passed between services and coordinator: the XIDs that were begun, the
//! calls of phase two that are not answered, the steps of sagas that were called.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use handfast_proto::v1::{BranchOutcome, Decision, PhaseTwoCall, Question, SagaStepKind};

/// The XIDs that are remembered, and the steps (BOUNDED: a test that begins more is a benchmark).
const REMEMBERED_MAX: usize = 100_000;

/// The name of a call about one branch. Its answer has the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallName {
    xid: String,
    branch: u64,
    decision: i32,
    question: i32,
}

/// A call of a saga's action or compensation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepSeen {
    pub(crate) step: String,
    pub(crate) kind: SagaStepKind,
    pub(crate) decision: Decision,
}

/// The memory of the wire.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    state: Mutex<TrafficState>,
}

#[derive(Debug, Default)]
struct TrafficState {
    begun: Vec<String>,
    open: HashMap<CallName, PhaseTwoCall>,
    steps: Vec<StepSeen>,
}

impl CallName {
    /// Returns the name of a call with one branch.
    pub(crate) fn of_call(call: &PhaseTwoCall) -> Option<Self> {
        let branch = call.branches.first()?;
        Some(Self {
            xid: branch.xid.clone(),
            branch: branch.branch_id,
            decision: call.decision,
            question: call.question,
        })
    }

    /// Returns the name of the call that this answers.
    pub(crate) fn of_outcome(outcome: &BranchOutcome) -> Self {
        Self {
            xid: outcome.xid.clone(),
            branch: outcome.branch_id,
            decision: outcome.decision,
            question: outcome.question,
        }
    }
}

impl Traffic {
    /// Remembers a global or a saga that was begun.
    pub(crate) fn begun(&self, xid: &str) {
        let mut state = self.lock();
        if state.begun.len() < REMEMBERED_MAX && !state.begun.iter().rev().any(|it| it == xid) {
            state.begun.push(xid.to_owned());
        }
    }

    /// Returns what was begun, in its order.
    pub(crate) fn all_begun(&self) -> Vec<String> {
        self.lock().begun.clone()
    }

    /// Remembers a call until it is answered.
    pub(crate) fn called(&self, call: &PhaseTwoCall) {
        let Some(name) = CallName::of_call(call) else { return };
        let mut state = self.lock();
        let step = call.branches.first().and_then(|branch| branch.step.as_ref());
        if let Some(step) = step.filter(|_| call.question() == Question::None) {
            let (kind, decision) = (step.kind(), call.decision());
            let seen = StepSeen { step: step.step.clone(), kind, decision };
            if state.steps.len() < REMEMBERED_MAX && !state.steps.contains(&seen) {
                state.steps.push(seen);
            }
        }
        state.open.insert(name, call.clone());
    }

    /// Returns the call of this name, if it is known and not answered.
    pub(crate) fn open(&self, name: &CallName) -> Option<PhaseTwoCall> {
        self.lock().open.get(name).cloned()
    }

    /// Forgets a call that is answered.
    pub(crate) fn answered(&self, name: &CallName) {
        self.lock().open.remove(name);
    }

    /// Returns the number of calls that are not answered.
    pub(crate) fn calls_open(&self) -> usize {
        self.lock().open.len()
    }

    /// Returns the steps that were called, each once for its action and once for its compensation.
    pub(crate) fn steps(&self) -> Vec<StepSeen> {
        self.lock().steps.clone()
    }

    fn lock(&self) -> MutexGuard<'_, TrafficState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
