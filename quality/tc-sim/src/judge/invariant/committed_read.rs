//! A globally committed read never sees what may still be rolled back, or was.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::oracle::{Observation, Verdict};

/// The invariant; the ledger holds all that it needs.
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
