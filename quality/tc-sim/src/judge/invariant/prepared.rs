//! A prepared branch never decides alone. It is prepared only after it is registered, stays until
//! its global is decided, and ends as the global did. No global is committed before all its
//! branches are prepared, and none is finished while one still is. At the end only the transactions
//! of other installations are prepared, all of them.

use handfast_core::{Change, Decision, Mode, Record, RecordKey};

use super::Invariant;
use crate::judge::ledger::{BranchKey, Ledger, decision_of, is_finished};
use crate::judge::verdict::Verdict;
use crate::model::observation::{FinalState, Observation};
use crate::model::values::UndoKey;
use crate::workload::transfers::is_foreign;

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct PreparedBranches;

impl Invariant for PreparedBranches {
    fn name(&self) -> &'static str {
        "prepared"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Prepared { branch } => check_prepared(ledger, *branch, verdict),
            Observation::PreparedEnded { name, branch, decision } => {
                check_ended(ledger, name, *branch, *decision, verdict);
            }
            Observation::Stored { batch, .. } => {
                batch.iter().for_each(|change| check_change(ledger, change, verdict));
            }
            Observation::Ended { end } => check_left(end, verdict),
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. } => {}
        }
    }
}

fn check_prepared(ledger: &Ledger, branch: BranchKey, verdict: &mut Verdict) {
    verdict.require(ledger.branches.contains_key(&branch), || {
        format!("{}/{} is prepared, and the branch is not stored", branch.0, branch.1)
    });
}

fn check_ended(
    ledger: &Ledger,
    name: &str,
    branch: Option<UndoKey>,
    decision: Decision,
    verdict: &mut Verdict,
) {
    let due = match branch {
        Some((xid, _)) => ledger.decision(xid),
        None if is_foreign(name) => None,
        // A branch of this node, in a global that no coordinator knows.
        None => Some(Decision::RollBack),
    };
    verdict.require(due == Some(decision), || {
        format!("{name} was prepared and ends with {decision:?} under {due:?}")
    });
}

fn check_change(ledger: &Ledger, change: &Change, verdict: &mut Verdict) {
    match change {
        Change::Put(Record::Global(global)) => {
            let own = |(xid, _): &BranchKey| *xid == global.xid;
            let left = ledger.prepared.iter().find(|key| own(key));
            verdict.require(!is_finished(global.state) || left.is_none(), || {
                format!("{} is {:?}, and {left:?} is still prepared", global.xid, global.state)
            });
            let commits = decision_of(global.state) == Some(Decision::Commit)
                && ledger.decision(global.xid).is_none();
            for (key, branch) in ledger.branches.iter().filter(|(key, _)| commits && own(key)) {
                let ready = branch.mode != Mode::Xa || ledger.prepared.contains(key);
                verdict.require(ready, || {
                    format!("{} commits, and {}/{} is not prepared", global.xid, key.0, key.1)
                });
            }
        }
        Change::Delete(RecordKey::Branch(xid, id)) => {
            verdict.require(!ledger.prepared.contains(&(*xid, *id)), || {
                format!("branch {xid}/{id} is forgotten and still prepared")
            });
        }
        Change::Put(
            Record::Branch(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_),
        )
        | Change::Delete(
            RecordKey::Global(_) | RecordKey::Saga(_) | RecordKey::Lease(_) | RecordKey::Closure,
        ) => {}
    }
}

fn check_left(end: &FinalState, verdict: &mut Verdict) {
    for (database, name) in &end.prepared {
        verdict.require(is_foreign(name), || {
            format!("{name} is left prepared in database {database}")
        });
    }
    let foreign = end.prepared.iter().filter(|(_, name)| is_foreign(name)).count();
    let at_start = end.foreign;
    verdict.require(foreign == at_start, || {
        format!("{foreign} prepared transactions of others are left of {at_start}")
    });
}
