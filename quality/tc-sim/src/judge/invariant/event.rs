//! An event takes effect exactly once if its global is committed, and never if it is rolled back.
//! Events of one key take effect in the order in which they were emitted.

use std::collections::BTreeMap;

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;
use crate::model::values::{EventId, Seq};

/// The invariant, with the last event that took effect for each outbox and key.
#[derive(Debug, Default)]
pub(super) struct EventsInOrder {
    newest: BTreeMap<(usize, u32), Seq>,
}

impl Invariant for EventsInOrder {
    fn name(&self) -> &'static str {
        "event"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::LocalCommit { written, .. } => {
                written.inbox.iter().for_each(|id| self.check_effect(ledger, *id, verdict));
            }
            Observation::Ended { .. } => check_end(ledger, verdict),
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::Recorded { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. } => {}
        }
    }
}

impl EventsInOrder {
    fn check_effect(&mut self, ledger: &Ledger, id: EventId, verdict: &mut Verdict) {
        let event = ledger.events.get(&id);
        verdict.require(event.is_some(), || format!("event {:x} was never emitted", id.0));
        let Some(event) = event else { return };
        let (xid, branch) = event.branch;
        verdict.require(ledger.is_committed(xid), || {
            let decision = ledger.decision(xid);
            format!("event {} of {xid}/{branch} takes effect under {decision:?}", event.seq)
        });
        verdict.require(!event.took_effect, || {
            format!("event {} of {xid}/{branch} takes effect again", event.seq)
        });
        let place = (event.database, event.key);
        let before = self.newest.insert(place, event.seq);
        verdict.require(before.is_none_or(|before| before < event.seq), || {
            let (database, key) = place;
            format!(
                "event {} of key {key} of database {database} takes effect after {before:?}",
                event.seq
            )
        });
    }
}

fn check_end(ledger: &Ledger, verdict: &mut Verdict) {
    for event in ledger.events.values() {
        let (xid, branch) = event.branch;
        verdict.require(event.took_effect == ledger.is_committed(xid), || {
            let (decision, took) = (ledger.decision(xid), event.took_effect);
            format!("event {} of {xid}/{branch}, {decision:?}: effect {took}", event.seq)
        });
    }
}
