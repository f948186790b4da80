//! DECIDED-ONCE: a decision goes from none to one value and never changes, in the records and in
//! every reply that leaves.

use std::collections::BTreeMap;

use handfast_core::{Change, Decision, Record, RecordKey, Xid};
use handfast_proto::v1::GlobalStatus;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

use super::Invariant;
use crate::judge::ledger::{Ledger, decision_of, is_finished};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant, with the decision that replies have reported so far, for each XID.
#[derive(Debug, Default)]
pub(super) struct DecidedOnce {
    reported: BTreeMap<String, Decision>,
}

impl Invariant for DecidedOnce {
    fn name(&self) -> &'static str {
        "decision"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Stored { batch, .. } => {
                batch.iter().for_each(|change| check_change(ledger, change, verdict));
            }
            Observation::ReplySent { request: Some(request), reply, .. } => {
                if let Some((xid, decision)) = reported_decision(request.body, reply) {
                    let first = *self.reported.entry(xid.to_owned()).or_insert(decision);
                    verdict.require(first == decision, || {
                        format!("{xid} was reported as decided {first:?}, then {decision:?}")
                    });
                }
            }
            Observation::ReplySent { request: None, .. }
            | Observation::RequestArrived { .. }
            | Observation::Lead(_)
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

fn check_change(ledger: &Ledger, change: &Change, verdict: &mut Verdict) {
    let before = |xid: &Xid| ledger.globals.get(xid).map(|global| global.state);
    match change {
        Change::Put(Record::Global(global)) => {
            let (xid, after) = (global.xid, global.state);
            let Some(before) = before(&xid) else { return };
            let decided = decision_of(before);
            verdict.require(decided.is_none() || decided == decision_of(after), || {
                format!("{xid} was {before:?} and becomes {after:?}")
            });
            verdict.require(!is_finished(before) || before == after, || {
                format!("{xid} was finished as {before:?} and becomes {after:?}")
            });
        }
        Change::Delete(RecordKey::Global(xid)) => {
            let before = before(xid);
            verdict.require(before.is_none_or(is_finished), || {
                format!("{xid} is dropped as {before:?}")
            });
        }
        Change::Put(
            Record::Branch(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_),
        )
        | Change::Delete(
            RecordKey::Branch(..) | RecordKey::Saga(_) | RecordKey::Lease(_) | RecordKey::Closure,
        ) => {}
    }
}

/// Returns the decision of a global that a reply reports.
fn reported_decision<'a>(
    request: &'a ClientBody,
    reply: &ServerBody,
) -> Option<(&'a str, Decision)> {
    let (xid, status) = match (request, reply) {
        (ClientBody::End(request), ServerBody::End(reply)) => (&request.xid, reply.status()),
        (ClientBody::GetStatus(request), ServerBody::GetStatus(reply)) => {
            (&request.xid, reply.status())
        }
        _ => return None,
    };
    let decision = match status {
        GlobalStatus::Committing | GlobalStatus::Committed => Decision::Commit,
        GlobalStatus::RollingBack | GlobalStatus::RolledBack | GlobalStatus::NeedsOperator => {
            Decision::RollBack
        }
        GlobalStatus::Unknown | GlobalStatus::Active => return None,
    };
    Some((xid, decision))
}
