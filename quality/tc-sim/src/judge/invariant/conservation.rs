//! Units and money are conserved, and what was paid is what was sold.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant. The workload audits its own accounts.
#[derive(Debug)]
pub(super) struct Conservation;

impl Invariant for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn observe(&mut self, _ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        if let Observation::Ended { end } = observation {
            verdict.require(end.audit.is_empty(), || end.audit.join("; "));
        }
    }
}
