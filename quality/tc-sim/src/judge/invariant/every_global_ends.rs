//! When the faults are over, everything ends: no global is left unfinished, no lock is held, and no
//! undo log is left.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct EveryGlobalEnds;

impl Invariant for EveryGlobalEnds {
    fn name(&self) -> &'static str {
        "every_global_ends"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        let Observation::Ended { end } = observation else { return };
        verdict.require(end.unsettled.is_empty(), || end.unsettled.join("; "));
        let unfinished: Vec<String> = ledger
            .unfinished()
            .map(|global| format!("{} is {:?}", global.xid, global.state))
            .collect();
        verdict.require(unfinished.is_empty(), || unfinished.join("; "));
        verdict.require(ledger.locks.is_empty(), || format!("locked: {:?}", ledger.locks));
        verdict.require(ledger.branches.is_empty(), || {
            format!("branch records are left: {:?}", ledger.branches.keys())
        });
        for (database, (xid, branch), guard) in &end.undo {
            // The guard row of a branch whose process died stays for a day, and the undo log of a
            // lost branch whose process died too for an operator.
            verdict.require(*guard || ledger.is_unstored((*xid, *branch)), || {
                format!("the undo log of {xid}/{branch} is left in database {database}")
            });
        }
    }
}
