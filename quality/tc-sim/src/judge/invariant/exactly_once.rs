//! Effects happen exactly once, however often they are requested. A branch's local transaction
//! commits once, and never after its guard row is there. Its rows are restored once, and only under
//! a rollback. Its undo log is deleted only when the decision is durable.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::Decision;

use super::Invariant;
use crate::judge::ledger::{BranchKey, BranchState, Ledger, branch_state_after};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;
use crate::model::values::{RowChanges, Undo};

/// The invariant, with the branches that have ended, and those that a guard row bars.
#[derive(Debug, Default)]
pub(super) struct ExactlyOnce {
    ended: BTreeMap<BranchKey, BranchState>,
    barred: BTreeSet<(usize, BranchKey)>,
    /// Branches that were to decide their globals, barred before these were decided.
    settled: BTreeSet<BranchKey>,
}

impl Invariant for ExactlyOnce {
    fn name(&self) -> &'static str {
        "exactly_once"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        if let Observation::Ended { .. } = observation {
            return self.check_settled(ledger, verdict);
        }
        let Observation::LocalCommit { database, written } = observation else { return };
        for (key, before, after) in &written.undo {
            match (before, after) {
                (_, Some(Undo::Log(_))) => {
                    self.check_commit(ledger, *database, *key, verdict);
                }
                (Some(Undo::Log(_)), None) => self.check_end(ledger, *key, written, verdict),
                (_, Some(Undo::Guard)) => {
                    self.barred.insert((*database, *key));
                    verdict.require(self.may_be_barred(ledger, *key), || {
                        format!("a guard bars {}/{}, which is not rolled back", key.0, key.1)
                    });
                }
                (_, None) => {}
            }
        }
    }
}

impl ExactlyOnce {
    /// A branch that decides its global is barred before the decision, which then has to follow. A
    /// question that comes late bars one that has committed and is done, which changes nothing.
    fn may_be_barred(&mut self, ledger: &Ledger, key: BranchKey) -> bool {
        let decides = ledger.deciding.contains(&key) || ledger.is_unstored(key);
        match ledger.decision(key.0) {
            Some(Decision::RollBack) => true,
            Some(Decision::Commit) => decides && self.ended.contains_key(&key),
            None if decides => {
                self.settled.insert(key);
                true
            }
            None => false,
        }
    }

    /// LAST-BRANCH: no global commits whose last branch was barred.
    fn check_settled(&self, ledger: &Ledger, verdict: &mut Verdict) {
        for (xid, branch) in &self.settled {
            verdict.require(!ledger.is_committed(*xid), || {
                format!("{xid} is committed, and its last branch {branch} was barred")
            });
        }
    }

    fn check_commit(
        &self,
        ledger: &Ledger,
        database: usize,
        key: BranchKey,
        verdict: &mut Verdict,
    ) {
        let (xid, branch) = key;
        verdict.require(!ledger.effects.contains_key(&key), || {
            format!("branch {xid}/{branch} commits locally a second time")
        });
        verdict.require(!self.barred.contains(&(database, key)), || {
            format!("branch {xid}/{branch} commits locally after its guard")
        });
        verdict.require(ledger.registered.contains(&key) || ledger.is_unstored(key), || {
            format!("branch {xid}/{branch} commits locally and was never registered")
        });
    }

    fn check_end(
        &mut self,
        ledger: &Ledger,
        key: BranchKey,
        written: &RowChanges,
        verdict: &mut Verdict,
    ) {
        let (xid, branch) = key;
        let state = branch_state_after(written);
        let due = match state {
            BranchState::Restored => Decision::RollBack,
            BranchState::Kept | BranchState::Applied => Decision::Commit,
        };
        let decision = ledger.decision(xid);
        let is_lost = due == Decision::Commit && ledger.is_unstored(key);
        verdict.require(is_lost || decision == Some(due), || {
            format!("branch {xid}/{branch} is {state:?} under {decision:?}")
        });
        let earlier = self.ended.insert(key, state);
        verdict.require(earlier.is_none(), || {
            format!("branch {xid}/{branch} is {state:?} after {earlier:?}")
        });
    }
}
