//! A refused registration leaves no branch, and no branch joins a global that is decided.

use std::collections::BTreeMap;

use handfast_core::{Change, Record};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

use super::Invariant;
use crate::judge::ledger::{BranchKey, Ledger, branch_key};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// Codes of refusals after which the branch may be registered all the same.
pub(super) const UNSURE: [&str; 3] = ["HF-TC-BUSY", "HF-TC-STOPPING", "HF-TC-NOT-LEADING"];

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
            Observation::RequestArrived { request } => {
                if let Some(key) = registration(request) {
                    *self.arrived.entry(key).or_default() += 1;
                }
            }
            Observation::ReplySent {
                request: Some(request),
                reply: ServerBody::Rejected(refusal),
                ..
            } => {
                if let Some(key) = registration(request.body) {
                    self.check_refused(ledger, key, &refusal.code, verdict);
                }
            }
            Observation::Stored { batch, .. } => check_batch(ledger, batch, verdict),
            Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl RefusedRegistration {
    /// Checks that there is no branch if every registration that ever arrived was refused.
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

fn registration(body: &ClientBody) -> Option<BranchKey> {
    let ClientBody::RegisterBranch(request) = body else { return None };
    branch_key(&request.xid, request.branch_id)
}
