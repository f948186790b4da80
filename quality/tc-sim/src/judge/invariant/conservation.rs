//! Units and money are conserved, and what was paid is what was sold.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::oracle::{Observation, Verdict};

/// The invariant; the application audits its own books.
#[derive(Debug)]
pub(super) struct Conservation;

impl Invariant for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn observe(&mut self, _ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        if let Observation::Ended { ending } = observation {
            verdict.require(ending.audit.is_empty(), || ending.audit.join("; "));
        }
    }
}
