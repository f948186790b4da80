//! Decides when an XA branch that a resource does not know counts as ended.
//!
//! On MariaDB, and on MySQL before 8.0.29, a prepared branch belongs to the session that prepared
//! it, for as long as the session lives. Every other session gets the answer that there is no such
//! branch. So the answer *unknown* (XAER_NOTA) says little by itself. It ends a branch only after
//! the time in which a late prepare may still make it known, and then only
//!
//! - when every connected process that may have registered the branch has answered *unknown* since:
//!   the registering process, those that may be it after a reconnect, or all if it is not known; or
//! - when none of these has been connected for a while. A branch it had prepared then belongs to
//!   the database as a whole, where any process finds it.
//!
//! In all other cases phase two of the branch is retried.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use handfast_core::{BranchId, Timestamp, Xid};
use hashbrown::HashMap;

/// The most branches that are remembered. A branch for which there is no room counts as not ended.
/// It is retried, and there is room when others have ended (BOUNDED).
const BRANCHES_MAX: usize = 16_384;

/// The time without an answer after which a branch is forgotten. A branch that is owed is retried
/// more often.
const FORGOTTEN_AFTER_MS: u64 = 600_000;

/// An answer that a branch is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownBranchReport<'a> {
    pub(super) branch: (Xid, BranchId),
    /// The client that was called.
    pub(super) by: &'a Arc<str>,
    /// The connected clients that may have registered the branch.
    pub(super) owners: &'a [Arc<str>],
    pub(super) now: Timestamp,
    /// Whether a client that has answered can no longer prepare or find the branch.
    pub(super) is_time_up: bool,
    /// How long the owner must have been away.
    pub(super) away_ms: u64,
}

/// The branches for which the answer was *unknown*.
#[derive(Debug, Default)]
pub(super) struct UnknownXaBranches {
    branches: Mutex<HashMap<(Xid, BranchId), UnknownBranch>>,
}

#[derive(Debug)]
struct UnknownBranch {
    /// The possible owners that have answered *unknown* since the time was up.
    by: BTreeSet<Arc<str>>,
    /// Since when no possible owner is connected.
    away_since: Option<Timestamp>,
    last: Timestamp,
}

impl UnknownXaBranches {
    /// Records an answer, and returns whether the branch has ended.
    pub(super) fn has_ended(&self, answer: &UnknownBranchReport<'_>) -> bool {
        let mut branches = self.lock();
        if branches.len() >= BRANCHES_MAX && !branches.contains_key(&answer.branch) {
            let now = answer.now;
            branches.retain(|_, it| it.last.after_ms(FORGOTTEN_AFTER_MS) > now);
            if branches.len() >= BRANCHES_MAX {
                return false;
            }
        }
        let none = || UnknownBranch { by: BTreeSet::new(), away_since: None, last: answer.now };
        branches.entry(answer.branch).or_insert_with(none).takes(answer)
    }

    /// Forgets a branch that has ended.
    pub(super) fn forget(&self, branch: (Xid, BranchId)) {
        self.lock().remove(&branch);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Xid, BranchId), UnknownBranch>> {
        self.branches.lock().expect("no holder of the lock of unknown branches panics")
    }
}

impl UnknownBranch {
    fn takes(&mut self, answer: &UnknownBranchReport<'_>) -> bool {
        self.last = answer.now;
        if answer.owners.is_empty() {
            let since = *self.away_since.get_or_insert(answer.now);
            return answer.is_time_up && answer.now >= since.after_ms(answer.away_ms);
        }
        self.away_since = None;
        // An owner that is gone may have come back under another name, and is asked under that.
        self.by.retain(|client| answer.owners.contains(client));
        if answer.is_time_up && answer.owners.contains(answer.by) {
            self.by.insert(Arc::clone(answer.by));
        }
        answer.owners.iter().all(|owner| self.by.contains(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies answers, each with its time, client, and connected owners, and returns the time at
    /// which the branch has ended. The time is up at 100. An owner has gone when it is away for 60.
    fn ended_at(answers: &[(u64, &str, &[&str])]) -> Option<u64> {
        let unknown = UnknownXaBranches::default();
        let ends = |(now, by, owners): &(u64, &str, &[&str])| {
            let owners: Vec<Arc<str>> = owners.iter().map(|&it| it.into()).collect();
            unknown.has_ended(&UnknownBranchReport {
                branch: (Xid(7), BranchId(1)),
                by: &(*by).into(),
                owners: &owners,
                now: Timestamp(*now),
                is_time_up: *now >= 100,
                away_ms: 60,
            })
        };
        answers.iter().find(|it| ends(it)).map(|(now, ..)| *now)
    }

    #[test]
    fn another_process_ends_nothing_while_the_owner_is_connected() {
        let owner: &[&str] = &["a"];
        assert_eq!(ended_at(&[(10, "b", owner), (200, "b", owner), (900, "c", owner)]), None);
        assert_eq!(ended_at(&[(200, "b", owner), (300, "a", owner)]), Some(300));
    }

    #[test]
    fn the_owners_answer_counts_when_the_time_is_up() {
        let owner: &[&str] = &["a"];
        assert_eq!(ended_at(&[(10, "a", owner), (99, "a", owner), (100, "a", owner)]), Some(100));
    }

    #[test]
    fn every_possible_owner_must_have_answered() {
        let kin: &[&str] = &["a", "b"];
        assert_eq!(ended_at(&[(200, "a", kin), (300, "a", kin), (400, "b", kin)]), Some(400));
        // One possible owner has disconnected, and another has connected.
        let other: &[&str] = &["b", "c"];
        let answers = [(200, "a", kin), (300, "b", other), (400, "a", other), (500, "c", other)];
        assert_eq!(ended_at(&answers), Some(500));
    }

    #[test]
    fn a_disconnected_owner_has_time_to_come_back() {
        assert_eq!(ended_at(&[(200, "b", &[]), (259, "b", &[]), (260, "b", &[])]), Some(260));
        // It had been away before the time was up.
        assert_eq!(ended_at(&[(10, "b", &[]), (99, "b", &[]), (100, "b", &[])]), Some(100));
        let answers: [(u64, &str, &[&str]); 4] =
            [(10, "b", &[]), (150, "b", &["a"]), (170, "b", &[]), (229, "b", &[])];
        assert_eq!(ended_at(&answers), None, "it was connected in between");
    }

    #[test]
    fn a_branch_without_room_has_not_ended() {
        let unknown = UnknownXaBranches::default();
        let (by, owners) = (Arc::from("a"), [Arc::from("a")]);
        let ends = |number, now| {
            unknown.has_ended(&UnknownBranchReport {
                branch: (Xid(number), BranchId(1)),
                by: &by,
                owners: &owners,
                now: Timestamp(now),
                is_time_up: true,
                away_ms: 60,
            })
        };
        for number in 0..BRANCHES_MAX as u64 {
            assert!(ends(number, 100));
        }
        assert!(!ends(u64::MAX, 200));
        assert!(ends(u64::MAX, 100 + FORGOTTEN_AFTER_MS), "the others are forgotten");
        unknown.forget((Xid(u64::MAX), BranchId(1)));
        assert!(unknown.lock().is_empty());
    }
}
