//! Finds for every operation that did not commit a reason other than the change of a leader. Pure.
//!
//! The services and their databases suffer no fault in a run of a cluster, and their time limits
//! are longer than every outage, so few reasons are left.

use std::fmt;
use std::time::Duration;

use crate::history::Outcome;
use crate::service::TimeLimits;
use crate::stage::Done;

/// The codes of operations that met others at the same rows: at the coordinator, in PostgreSQL and
/// in MariaDB.
const CONTENTION: [&str; 6] =
    ["HF-TC-ROW-LOCKED", "HF-TC-DEADLOCK", "SQL 40P01", "SQL 40001", "SQL 1213", "SQL 1205"];
/// The code of a global that had no branch when its coordinator died.
const UNKNOWN_XID: &str = "HF-TC-UNKNOWN-XID";

/// The reason of an operation that did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UncommittedReason {
    /// Another operation held its rows, or the two were in a deadlock.
    Contention,
    /// It had begun and had no branch yet, so that nothing was rolled back.
    BegunWithoutBranch,
    /// It ran out of time.
    OutOfTime,
}

impl fmt::Display for UncommittedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contention => "rows held by others, or a deadlock",
            Self::BegunWithoutBranch => "begun, no branch yet, leader gone",
            Self::OutOfTime => "longer than its own time limit",
        })
    }
}

/// Returns the reason for which an operation did not commit; `None` if the only one is that the
/// leader changed.
#[must_use]
pub fn reason_of(done: &Done, limits: TimeLimits) -> Option<UncommittedReason> {
    let code = done.why.split_once(": ").map_or("", |(code, _)| code);
    if done.outcome == Outcome::RolledBack && CONTENTION.contains(&code) {
        return Some(UncommittedReason::Contention);
    }
    let lasted = Duration::from_nanos(done.ended?.saturating_sub(done.began));
    if lasted >= limits.global {
        return Some(UncommittedReason::OutOfTime);
    }
    // A commit that is answered so had a branch, and its outcome counts as unknown.
    let is_forgotten = done.outcome == Outcome::RolledBack && done.why.contains(UNKNOWN_XID);
    is_forgotten.then_some(UncommittedReason::BegunWithoutBranch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ReadValues;
    use crate::work::Task;

    fn reason(outcome: Outcome, why: &str, lasted: Duration) -> Option<UncommittedReason> {
        let done = Done {
            task: Task::Total,
            began: 0,
            ended: Some(u64::try_from(lasted.as_nanos()).unwrap()),
            outcome,
            why: why.to_owned(),
            xid: None,
            seen: ReadValues::default(),
        };
        reason_of(&done, TimeLimits::LONG)
    }

    #[test]
    fn contention_needs_no_change_of_leader() {
        let why = "HF-TC-DEADLOCK: two wait for each other";
        let deadlock = reason(Outcome::RolledBack, why, Duration::ZERO);
        assert_eq!(deadlock, Some(UncommittedReason::Contention));
    }

    #[test]
    fn a_timeout_before_its_time_is_the_change_of_a_leader() {
        let timed_out = |lasted| reason(Outcome::RolledBack, "HF-TM-ROLLED-BACK: timeout", lasted);
        assert_eq!(timed_out(Duration::from_secs(12)), None);
        assert_eq!(timed_out(TimeLimits::LONG.global), Some(UncommittedReason::OutOfTime));
    }

    #[test]
    fn a_forgotten_global_may_have_had_no_branch() {
        let forgotten = |outcome| reason(outcome, "HF-TC-UNKNOWN-XID: 7", Duration::ZERO);
        let without_branch = Some(UncommittedReason::BegunWithoutBranch);
        assert_eq!(forgotten(Outcome::RolledBack), without_branch);
        assert_eq!(forgotten(Outcome::Unknown), None);
    }
}
