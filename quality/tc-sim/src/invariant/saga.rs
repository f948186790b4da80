//! A saga is done step by step, or taken back in the reverse order: a step takes effect once,
//! after all before it are stored as done and it is stored as begun; it is taken back once, when
//! all after it have been; and at the end all is done, or all is taken back.

use handfast_core::{
    ChildRef, SagaDefinition, SagaRecord, SagaState, StepKind, StepRecord, StepState, Xid,
};
use handfast_proto::v1::SagaStatus;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_rm_core::fence::State;

use super::Invariant;
use crate::ledger::{BranchKey, Ledger};
use crate::oracle::{Observation, Verdict};

/// The invariant; the ledger holds all that it needs.
#[derive(Debug)]
pub(super) struct Saga;

impl Invariant for Saga {
    fn name(&self) -> &'static str {
        "saga"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::LocalCommit { written, .. } => {
                for (key, before, after) in &written.fences {
                    let Some(saga) = ledger.sagas.get(&key.0) else { continue };
                    let Some(step) = place(*key) else { continue };
                    check_step(saga, step, (*before, *after), verdict);
                }
            }
            Observation::Answered { answer: Answer::Saga(reply), .. } => {
                let Ok(named) = handfast_core::XidText::parse(&reply.xid) else { return };
                check_told(ledger, named.xid, reply.status(), verdict);
            }
            Observation::Ended { .. } => {
                ledger.sagas.values().for_each(|saga| check_end(ledger, saga, verdict));
            }
            Observation::Asked { .. }
            | Observation::Answered { .. }
            | Observation::Stored { .. }
            | Observation::Booked { .. }
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::Told { .. } => {}
        }
    }
}

fn check_step(
    saga: &SagaRecord,
    at: usize,
    (before, after): (Option<State>, State),
    verdict: &mut Verdict,
) {
    let (kind, state) = (saga.definition.steps[at].kind, saga.steps[at].state);
    let goes_back = matches!(saga.state, SagaState::Compensating(_) | SagaState::Compensated(..));
    let may = match (before, after) {
        // A late attempt of what will be taken back, or leaves nothing, does no harm.
        (None, State::Tried) => {
            let may_come_late = matches!(kind, StepKind::Compensable | StepKind::Harmless);
            let earlier_done = earlier(saga, at).all(|step| step.state == StepState::Done);
            state != StepState::Waiting && (may_come_late && goes_back || earlier_done)
        }
        (Some(State::Tried), State::Cancelled) | (None, State::Barred) => {
            let refused_pivot = kind == StepKind::Pivot && before.is_none();
            goes_back && kind == StepKind::Compensable && later_are_back(saga, at) || refused_pivot
        }
        (_, State::Tried | State::Confirmed | State::Cancelled | State::Barred) => false,
    };
    verdict.require(may, || {
        let (xid, stands) = (saga.xid, saga.state);
        format!("step {at} of saga {xid}, {state:?} in {stands:?}: from {before:?} to {after:?}")
    });
}

fn check_told(ledger: &Ledger, xid: Xid, status: SagaStatus, verdict: &mut Verdict) {
    let stored = ledger.sagas.get(&xid).map(|saga| saga.state);
    let fits = match status {
        SagaStatus::Completed => matches!(stored, Some(SagaState::Completed(_))),
        SagaStatus::Compensated => matches!(stored, Some(SagaState::Compensated(..))),
        SagaStatus::Compensating => {
            matches!(stored, Some(SagaState::Compensating(_) | SagaState::Compensated(..)))
        }
        SagaStatus::Running | SagaStatus::NeedsOperator | SagaStatus::Unspecified => {
            stored.is_some()
        }
    };
    verdict.require(fits, || format!("saga {xid} is said to be {status:?}, stored is {stored:?}"));
}

fn check_end(ledger: &Ledger, saga: &SagaRecord, verdict: &mut Verdict) {
    let (completed, compensated) = match saga.state {
        SagaState::Completed(_) => (true, false),
        SagaState::Compensated(..) => (false, true),
        SagaState::Running | SagaState::Compensating(_) => (false, false),
    };
    verdict.require(completed || compensated, || format!("saga {} has not ended", saga.xid));
    for (at, (definition, step)) in (0..).zip(saga.definition.steps.iter().zip(&saga.steps)) {
        let key = (saga.xid, handfast_core::BranchId(at + 1));
        let fence = ledger.fenced.get(&key).map(|effect| effect.state);
        let fits = match (definition.kind, fence) {
            (_, Some(State::Tried)) if completed => true,
            (_, _) if completed => false,
            (StepKind::Harmless, _) => true,
            (StepKind::Compensable, None) => step.state == StepState::Waiting,
            (_, None | Some(State::Barred)) => true,
            (_, Some(State::Cancelled)) => definition.kind == StepKind::Compensable,
            (_, Some(State::Tried | State::Confirmed)) => false,
        };
        verdict.require(fits, || {
            let (xid, state) = (saga.xid, saga.state);
            format!("step {at} of saga {xid} ends as {fence:?}, the saga as {state:?}")
        });
    }
}

fn earlier(saga: &SagaRecord, at: usize) -> impl Iterator<Item = &StepRecord> {
    let before = move |other: &usize| comes_before(&saga.definition, *other, at);
    (0..saga.steps.len()).filter(before).map(|other| &saga.steps[other])
}

fn later_are_back(saga: &SagaRecord, at: usize) -> bool {
    let after = |other: &usize| comes_before(&saga.definition, at, *other);
    (0..saga.steps.len()).filter(after).all(|other| {
        let kept = saga.definition.steps[other].kind == StepKind::Compensable
            && !matches!(saga.steps[other].state, StepState::Waiting | StepState::Compensated);
        !kept
    })
}

/// Whether one step comes before the other, in the saga where their ways part.
fn comes_before(saga: &SagaDefinition, one: usize, other: usize) -> bool {
    let (one, other) = (groups(saga, one), groups(saga, other));
    let parting = one.iter().zip(&other).find(|(one, other)| one != other);
    parting.is_some_and(|(one, other)| one.0 == other.0 && one.1 < other.1)
}

/// The groups on the way from the saga that is started to a step.
fn groups(saga: &SagaDefinition, step: usize) -> Vec<(Option<ChildRef>, u32)> {
    let step = &saga.steps[step];
    let mut groups = vec![(step.parent, step.group)];
    while let Some(child) = groups[0].0 {
        let child = &saga.children[child.0 as usize];
        groups.insert(0, (child.parent, child.group));
    }
    groups
}

fn place((_, branch): BranchKey) -> Option<usize> {
    usize::try_from(branch.0.checked_sub(1)?).ok()
}
