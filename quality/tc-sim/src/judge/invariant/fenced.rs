//! Under a fence every operation takes effect at most once, and only when it may. A branch is tried
//! once and never after its cancel, confirmed only under a commit, and cancelled only under a
//! rollback. All branches of one global end the same way.

use handfast_core::Decision;
use handfast_rm_core::fence::FenceState;

use super::Invariant;
use crate::judge::ledger::{BranchKey, Ledger};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;
use crate::model::values::RowChanges;
use crate::workload::points::is_points_row;

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct Fenced;

impl Invariant for Fenced {
    fn name(&self) -> &'static str {
        "fenced"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::LocalCommit { written, .. } => check_commit(ledger, written, verdict),
            Observation::Ended { .. } => check_end(ledger, verdict),
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

fn check_commit(ledger: &Ledger, written: &RowChanges, verdict: &mut Verdict) {
    let touches = written.rows.iter().any(|(row, ..)| is_points_row(*row));
    verdict.require(!touches || !written.fences.is_empty(), || {
        format!("points change without a fence: {written}")
    });
    // Steps of sagas have rules of their own, in `saga`.
    let tried = written.fences.iter().filter(|(key, ..)| !ledger.sagas.contains_key(&key.0));
    for (key, before, after) in tried {
        check_step(ledger, *key, *before, *after, touches, verdict);
    }
}

/// Checks one change of a fence's state. This is what must hold, and not a copy of the product's
/// decision table: a wrong entry there must be noticed here.
fn check_step(
    ledger: &Ledger,
    key: BranchKey,
    before: Option<FenceState>,
    after: FenceState,
    touches: bool,
    verdict: &mut Verdict,
) {
    let (xid, branch) = key;
    let may = match (before, after) {
        (None, FenceState::Tried) => touches && ledger.registered.contains(&key),
        (None, FenceState::Barred) => !touches && is_decided(ledger, key, Decision::RollBack),
        (Some(FenceState::Tried), FenceState::Confirmed) => {
            touches && is_decided(ledger, key, Decision::Commit)
        }
        (Some(FenceState::Tried), FenceState::Cancelled) => {
            touches && is_decided(ledger, key, Decision::RollBack)
        }
        (
            _,
            FenceState::Tried | FenceState::Barred | FenceState::Confirmed | FenceState::Cancelled,
        ) => false,
    };
    verdict.require(may, || {
        let decision = ledger.decision(xid);
        let work = if touches { "with" } else { "without" };
        format!("{xid}/{branch} goes from {before:?} to {after:?} {work} work under {decision:?}")
    });
}

fn is_decided(ledger: &Ledger, (xid, _): BranchKey, decision: Decision) -> bool {
    ledger.decision(xid) == Some(decision)
}

fn check_end(ledger: &Ledger, verdict: &mut Verdict) {
    let tried = ledger.fenced.iter().filter(|((xid, _), _)| !ledger.sagas.contains_key(xid));
    for ((xid, branch), effect) in tried {
        let decision = ledger.decision(*xid);
        let fits = match effect.state {
            FenceState::Tried => false,
            FenceState::Confirmed => decision == Some(Decision::Commit),
            FenceState::Cancelled | FenceState::Barred => decision == Some(Decision::RollBack),
        };
        verdict.require(fits, || {
            format!("{xid}/{branch} ends as {:?} under {decision:?}", effect.state)
        });
    }
}
