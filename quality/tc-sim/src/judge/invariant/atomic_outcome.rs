//! All of a global or nothing. At the end every local transaction of a committed global is kept,
//! every other one is undone, and each row holds the sum of what the kept ones, the operations
//! under a fence, the prepared branches that committed and the effects of events added to it.

use std::collections::BTreeMap;

use super::Invariant;
use crate::judge::ledger::{BranchState, Ledger};
use crate::judge::verdict::Verdict;
use crate::model::observation::{FinalState, Observation};
use crate::model::values::RowId;

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct AtomicOutcome;

impl Invariant for AtomicOutcome {
    fn name(&self) -> &'static str {
        "atomic_outcome"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        if let Observation::Ended { end } = observation {
            check_effects(ledger, verdict);
            check_rows(ledger, end, verdict);
        }
    }
}

fn check_effects(ledger: &Ledger, verdict: &mut Verdict) {
    for ((xid, branch), effect) in &ledger.effects {
        let due = if ledger.is_committed(*xid) { BranchState::Kept } else { BranchState::Restored };
        // Its undo row may be left if its process died too.
        let is_left = effect.state == BranchState::Applied && ledger.is_unstored((*xid, *branch));
        verdict.require(is_left || effect.state == due, || {
            let decision = ledger.decision(*xid);
            format!("branch {xid}/{branch} is {:?} under {decision:?}", effect.state)
        });
    }
}

fn check_rows(ledger: &Ledger, end: &FinalState, verdict: &mut Verdict) {
    let mut sums: BTreeMap<(usize, RowId), i64> = BTreeMap::new();
    for ((xid, _), effect) in &ledger.effects {
        for (row, delta) in effect.deltas.iter().filter(|_| ledger.is_committed(*xid)) {
            *sums.entry((effect.database, *row)).or_default() += delta;
        }
    }
    for effect in ledger.fenced.values() {
        for (row, delta) in &effect.deltas {
            *sums.entry((effect.database, *row)).or_default() += delta;
        }
    }
    for (place, delta) in &ledger.permanent {
        *sums.entry(*place).or_default() += delta;
    }
    for (database, (values, start)) in end.databases.iter().zip(&end.at_start).enumerate() {
        for ((row, value), (_, start)) in values.iter().zip(start) {
            let expected = start + sums.get(&(database, *row)).copied().unwrap_or_default();
            verdict.require(*value == expected, || {
                format!("row {} of database {database} is {value}, not {expected}", row.0)
            });
        }
    }
}
