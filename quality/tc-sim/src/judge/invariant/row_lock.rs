//! No row is held twice but in one mode that allows it, in the records and in the databases, and
//! fencing tokens grow.

use std::collections::BTreeMap;

use handfast_core::{BranchRecord, Change, FencingToken, LockMode, Record};

use super::Invariant;
use crate::judge::ledger::{BranchKey, HeldRow, Ledger, LockedRow};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;
use crate::model::values::RowChanges;

/// The invariant, with the newest fencing token of each row and its branch.
#[derive(Debug, Default)]
pub(super) struct RowLock {
    tokens: BTreeMap<LockedRow, (FencingToken, BranchKey)>,
}

impl Invariant for RowLock {
    fn name(&self) -> &'static str {
        "row_lock"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Recorded { batch } => {
                let mut branches: Vec<&BranchRecord> = batch.iter().filter_map(branch).collect();
                // In the order of their grants: a batch may hold several of one row, in any order.
                branches.sort_by_key(|branch| branch.token);
                for branch in branches {
                    self.check_branch(ledger, branch, verdict);
                }
            }
            Observation::LocalCommit { database, written } => {
                check_writes(ledger, *database, written, verdict);
            }
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl RowLock {
    fn check_branch(&mut self, ledger: &Ledger, branch: &BranchRecord, verdict: &mut Verdict) {
        let key = (branch.xid, branch.id);
        for row in &branch.rows {
            let name = (branch.resource.to_string(), row.table.to_string(), row.key.to_vec());
            let holders = ledger.locks.get(&name);
            let own = holders.and_then(|holders| holders.get(&key));
            if let (Some(own), Some(holders)) = (own, holders) {
                check_alone(key, own, holders, &name, verdict);
            }
            let (newest, holder) =
                self.tokens.get(&name).copied().unwrap_or((FencingToken(0), key));
            // The branches of one global may share a row. A record that is written again for
            // another reason grants no lock, so its token need not grow.
            let grows = branch.token > newest || holder.0 == key.0;
            if branch.token > newest {
                self.tokens.insert(name.clone(), (branch.token, key));
            }
            verdict.require(grows || is_held_together(holders, key), || {
                let (xid, id) = key;
                format!("{xid}/{id} got token {} for {name:?} after {newest}", branch.token)
            });
        }
    }
}

/// Returns whether the branch holds the row together with others: the records of concurrent holders
/// may be written again in any order.
fn is_held_together(holders: Option<&BTreeMap<BranchKey, HeldRow>>, key: BranchKey) -> bool {
    let mode = holders.and_then(|holders| holders.get(&key)).map(|hold| hold.mode);
    mode.is_some_and(|mode| mode != LockMode::Exclusive)
}

fn check_alone(
    key: BranchKey,
    own: &HeldRow,
    holders: &BTreeMap<BranchKey, HeldRow>,
    name: &LockedRow,
    verdict: &mut Verdict,
) {
    for ((xid, branch), other) in holders.iter().filter(|((xid, _), _)| *xid != key.0) {
        let together = own.mode == other.mode && own.mode != LockMode::Exclusive;
        verdict.require(together, || {
            format!("{name:?} is held by {}/{} and by {xid}/{branch}", key.0, key.1)
        });
    }
}

/// Checks that a row is written only over what its own global or a committed one wrote: the global
/// lock is held until then.
fn check_writes(ledger: &Ledger, database: usize, written: &RowChanges, verdict: &mut Verdict) {
    for (row, before, after) in &written.rows {
        let (Some((old, _)), Some((xid, branch))) = (before.writer, after.writer) else { continue };
        // A restore puts the value of an earlier writer back over that of its own branch.
        let restores = written.undo.iter().any(|(key, _, now)| key.0 == old && now.is_none());
        let is_free = old == xid || restores || ledger.is_committed(old);
        verdict.require(is_free || ledger.add_together(database, *row, old, xid), || {
            let row = row.0;
            format!("{xid}/{branch} writes row {row} of database {database} over {old}, which is not committed")
        });
    }
}

fn branch(change: &Change) -> Option<&BranchRecord> {
    match change {
        Change::Put(Record::Branch(branch)) => Some(branch),
        Change::Put(
            Record::Global(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_),
        )
        | Change::Delete(_) => None,
    }
}
