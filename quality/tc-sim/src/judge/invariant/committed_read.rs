//! A globally committed read returns no row that an undecided or rolled back global wrote.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct CommittedRead;

impl Invariant for CommittedRead {
    fn name(&self) -> &'static str {
        "committed_read"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        let Observation::CommittedRead { database, read } = observation else { return };
        for (row, cell) in *read {
            let Some((xid, branch)) = cell.writer else { continue };
            verdict.require(ledger.is_committed(xid), || {
                let decision = ledger.decision(xid);
                let row = row.0;
                format!("row {row} of database {database} was read as {xid}/{branch} left it, which is decided {decision:?}")
            });
        }
    }
}
