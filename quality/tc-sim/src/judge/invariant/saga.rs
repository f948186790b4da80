//! A saga is completed step by step, or compensated in the reverse order. A step takes effect once,
//! after it is stored as begun and all steps before it are stored as done. It is compensated once,
//! after all steps after it. At the end every step is done, or every step is compensated.

use handfast_core::{
    ChildRef, SagaDefinition, SagaRecord, SagaState, StepKind, StepRecord, StepState, Xid,
};
use handfast_proto::v1::SagaStatus;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_rm_core::fence::FenceState;

use super::Invariant;
use crate::judge::ledger::{BranchKey, Ledger};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant. It needs no state beside the ledger.
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
                    let Some(step) = step_index(*key) else { continue };
                    check_step(saga, step, (*before, *after), verdict);
                }
            }
            Observation::ReplySent { reply: ServerBody::Saga(reply), .. } => {
                let Ok(named) = handfast_core::XidText::parse(&reply.xid) else { return };
                check_reported(ledger, named.xid, reply.status(), verdict);
            }
            Observation::Ended { .. } => {
                ledger.sagas.values().for_each(|saga| check_end(ledger, saga, verdict));
            }
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::Recorded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::OutcomeReported { .. } => {}
        }
    }
}

fn check_step(
    saga: &SagaRecord,
    at: usize,
    (before, after): (Option<FenceState>, FenceState),
    verdict: &mut Verdict,
) {
    let (kind, state) = (saga.definition.steps[at].kind, saga.steps[at].state);
    let compensates = matches!(saga.state, SagaState::Compensating(_) | SagaState::Compensated(..));
    let may = match (before, after) {
        // A late action does no harm if it will be compensated or has no effect.
        (None, FenceState::Tried) => {
            let may_come_late = matches!(kind, StepKind::Compensable | StepKind::Harmless);
            let earlier_done = earlier(saga, at).all(|step| step.state == StepState::Done);
            state != StepState::Waiting && (may_come_late && compensates || earlier_done)
        }
        (Some(FenceState::Tried), FenceState::Cancelled) | (None, FenceState::Barred) => {
            let refused_pivot = kind == StepKind::Pivot && before.is_none();
            compensates && kind == StepKind::Compensable && later_are_compensated(saga, at)
                || refused_pivot
        }
        (
            _,
            FenceState::Tried | FenceState::Confirmed | FenceState::Cancelled | FenceState::Barred,
        ) => false,
    };
    verdict.require(may, || {
        let (xid, saga_state) = (saga.xid, saga.state);
        format!(
            "step {at} of saga {xid}, {state:?} in {saga_state:?}: from {before:?} to {after:?}"
        )
    });
}

fn check_reported(ledger: &Ledger, xid: Xid, status: SagaStatus, verdict: &mut Verdict) {
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
    verdict
        .require(fits, || format!("saga {xid} was reported as {status:?}, stored is {stored:?}"));
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
            (_, Some(FenceState::Tried)) if completed => true,
            (_, _) if completed => false,
            (StepKind::Harmless, _) => true,
            (StepKind::Compensable, None) => step.state == StepState::Waiting,
            (_, None | Some(FenceState::Barred)) => true,
            (_, Some(FenceState::Cancelled)) => definition.kind == StepKind::Compensable,
            (_, Some(FenceState::Tried | FenceState::Confirmed)) => false,
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

fn later_are_compensated(saga: &SagaRecord, at: usize) -> bool {
    let after = |other: &usize| comes_before(&saga.definition, at, *other);
    (0..saga.steps.len()).filter(after).all(|other| {
        let kept = saga.definition.steps[other].kind == StepKind::Compensable
            && !matches!(saga.steps[other].state, StepState::Waiting | StepState::Compensated);
        !kept
    })
}

/// Returns whether one step comes before the other: whether its group is earlier in the innermost
/// saga that contains both.
fn comes_before(saga: &SagaDefinition, one: usize, other: usize) -> bool {
    let (one, other) = (groups(saga, one), groups(saga, other));
    let parting = one.iter().zip(&other).find(|(one, other)| one != other);
    parting.is_some_and(|(one, other)| one.0 == other.0 && one.1 < other.1)
}

/// Returns the groups that contain a step, from the outermost saga to the innermost.
fn groups(saga: &SagaDefinition, step: usize) -> Vec<(Option<ChildRef>, u32)> {
    let step = &saga.steps[step];
    let mut groups = vec![(step.parent, step.group)];
    while let Some(child) = groups[0].0 {
        let child = &saga.children[child.0 as usize];
        groups.insert(0, (child.parent, child.group));
    }
    groups
}

fn step_index((_, branch): BranchKey) -> Option<usize> {
    usize::try_from(branch.0.checked_sub(1)?).ok()
}
