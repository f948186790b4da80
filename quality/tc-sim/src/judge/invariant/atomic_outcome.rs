//! All of a global or nothing: at the end every local transaction of a committed global stands,
//! every one of another is undone, and each row holds what the committed ones, all operations under
//! a fence, prepared branches and effects of events add up to.

use std::collections::BTreeMap;

use super::Invariant;
use crate::judge::ledger::{Ledger, Stage};
use crate::judge::oracle::{Ending, Observation, Verdict};
use crate::model::database::RowId;

/// The invariant; the ledger holds all that it needs.
#[derive(Debug)]
pub(super) struct AtomicOutcome;

impl Invariant for AtomicOutcome {
    fn name(&self) -> &'static str {
        "atomic_outcome"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        if let Observation::Ended { ending } = observation {
            check_effects(ledger, verdict);
            check_rows(ledger, ending, verdict);
        }
    }
}

fn check_effects(ledger: &Ledger, verdict: &mut Verdict) {
    for ((xid, branch), effect) in &ledger.effects {
        let stage = if ledger.is_committed(*xid) { Stage::Kept } else { Stage::Restored };
        verdict.require(effect.stage == stage, || {
            let decision = ledger.decision(*xid);
            format!("branch {xid}/{branch} is {:?} under {decision:?}", effect.stage)
        });
    }
}

fn check_rows(ledger: &Ledger, ending: &Ending, verdict: &mut Verdict) {
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
    for (place, delta) in &ledger.outright {
        *sums.entry(*place).or_default() += delta;
    }
    for (database, (values, start)) in ending.databases.iter().zip(&ending.at_start).enumerate() {
        for ((row, value), (_, start)) in values.iter().zip(start) {
            let expected = start + sums.get(&(database, *row)).copied().unwrap_or_default();
            verdict.require(*value == expected, || {
                format!("row {} of database {database} is {value}, not {expected}", row.0)
            });
        }
    }
}
