//! A refused registration leaves nothing, and after the decision nobody joins.

use std::collections::BTreeMap;

use handfast_core::{Change, Record};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;

use super::Invariant;
use crate::judge::ledger::{BranchKey, Ledger};
use crate::judge::oracle::{Observation, Verdict, branch_of};

/// Refusals that say nothing about what was done.
const UNSURE: [&str; 3] = ["HF-TC-BUSY", "HF-TC-STOPPING", "HF-TC-NOT-LEADING"];

/// The invariant, with how often each branch's registration arrived and was refused.
#[derive(Debug, Default)]
pub(super) struct RefusedRegistration {
    arrived: BTreeMap<BranchKey, u64>,
    refused: BTreeMap<BranchKey, u64>,
}

impl Invariant for RefusedRegistration {
    fn name(&self) -> &'static str {
        "refused_registration"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Asked { ask } => {
                if let Some(key) = registration(ask) {
                    *self.arrived.entry(key).or_default() += 1;
                }
            }
            Observation::Answered { ask: Some(ask), answer: Answer::Rejected(refusal) } => {
                if let Some(key) = registration(ask) {
                    self.check_refused(ledger, key, &refusal.code, verdict);
                }
            }
            Observation::Stored { batch } => check_batch(ledger, batch, verdict),
            Observation::Answered { .. }
            | Observation::Booked { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::CommittedRead { .. }
            | Observation::Told { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl RefusedRegistration {
    /// Where every registration that ever arrived was refused there is no branch.
    fn check_refused(
        &mut self,
        ledger: &Ledger,
        key: BranchKey,
        code: &str,
        verdict: &mut Verdict,
    ) {
        if UNSURE.contains(&code) {
            return;
        }
        let refused = self.refused.entry(key).or_default();
        *refused += 1;
        if self.arrived.get(&key) == Some(refused) {
            verdict.require(!ledger.registered.contains(&key), || {
                format!("branch {}/{} was refused ({code}) and is stored", key.0, key.1)
            });
        }
    }
}

fn check_batch(ledger: &Ledger, batch: &[Change], verdict: &mut Verdict) {
    for change in batch {
        let Change::Put(Record::Branch(branch)) = change else { continue };
        let known = ledger.branches.contains_key(&(branch.xid, branch.id));
        let decision = ledger.decision(branch.xid);
        verdict.require(known || decision.is_none(), || {
            format!("branch {}/{} joins after {decision:?}", branch.xid, branch.id)
        });
    }
}

fn registration(ask: &Ask) -> Option<BranchKey> {
    let Ask::RegisterBranch(request) = ask else { return None };
    branch_of(&request.xid, request.branch_id)
}
