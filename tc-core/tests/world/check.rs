//! The invariants, checked from outside: from records, requests and views, with rules of their own.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{
    BranchId, BranchState, Counts, Decision, GlobalState, GlobalStatus, GlobalView, Holding,
    LockFilter, LockMode, LockView, PageBounds, Record, RowLock, StatusKind, Timestamp, Xid,
};

use super::{KEYS, RESOURCES, World, row};
use crate::support::{held, recorded, views};

impl World {
    pub(crate) fn check(&mut self) {
        self.coordinator.check_invariants().expect("the coordinator agrees with itself");
        let loaded = self.store.load(self.epoch + 1, &self.limits).expect("RECORDED");
        assert_eq!(recorded(&self.coordinator), recorded(&loaded), "RECORDED");
        let (globals, locks) = (views(&self.coordinator), self.all_locks());
        self.check_decided_once();
        self.check_lock_owner();
        self.check_deadline(&globals, &locks);
        self.check_bounded(&globals, &locks);
        self.check_owed(&globals);
        self.check_fail_fast(&locks);
        check_exclusive(&locks);
        check_no_cycle(&locks);
    }

    /// Returns every row that a global can hold or wait for.
    fn all_locks(&self) -> Vec<LockView> {
        let rows = RESOURCES.iter().flat_map(|resource| (0..KEYS).map(move |key| (resource, key)));
        let lock = |(resource, key): (&&str, usize)| {
            let RowLock { table, key, .. } = row(key, LockMode::Exclusive);
            let resource = Some((*resource).to_owned());
            let (table, key) = (Some(table.to_string()), Some(key));
            let filter = LockFilter { resource, table, key, holder: None };
            self.coordinator.locks(&filter, None, PageBounds::NONE).items
        };
        rows.flat_map(lock).collect()
    }

    /// DECIDED-ONCE: statuses follow the arrows of the state machine.
    fn check_decided_once(&mut self) {
        for xid in self.begun.clone() {
            let is = self.coordinator.status(xid).kind();
            let was = self.statuses.insert(xid, is).unwrap_or(StatusKind::Unknown);
            assert!(is == was || may_follow(was, is), "DECIDED-ONCE: from {was:?} to {is:?}");
        }
    }

    /// LOCK-OWNER: the rows of the records of globals that are not committing, and no others, are
    /// locked.
    fn check_lock_owner(&self) {
        let committing = |xid: Xid| {
            self.store.records.values().any(|record| match record {
                Record::Global(global) => {
                    global.xid == xid && global.state == GlobalState::Committing
                }
                Record::Branch(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_) => {
                    false
                }
            })
        };
        let mut recorded = BTreeSet::new();
        for record in self.store.records.values() {
            if let Record::Branch(branch) = record
                && !committing(branch.xid)
            {
                let rows = branch.rows.iter().map(|row| {
                    (branch.resource.clone(), row.key.clone(), branch.xid, branch.token, row.mode)
                });
                recorded.extend(rows);
            }
        }
        let shown = held(&self.coordinator).into_iter().flat_map(|lock| {
            let holders = lock.holders.into_iter();
            let (resource, key) = (lock.resource, lock.key);
            holders.map(move |it| (resource.clone(), key.clone(), it.xid, it.token, it.mode))
        });
        assert_eq!(recorded, shown.collect(), "LOCK-OWNER");
    }

    /// DEADLINE: the next tick is due when the first of all that can expire does.
    fn check_deadline(&self, globals: &[GlobalView], locks: &[LockView]) {
        let undecided = globals.iter().filter(|global| global.status == GlobalStatus::Active);
        let (asked, timed): (Vec<_>, Vec<_>) = undecided.partition(|it| self.asks_its_last(it));
        let retention = self.limits.retention_ms;
        let finished = globals.iter().filter_map(|global| global.record.finished_at());
        let waiters = locks.iter().flat_map(|lock| &lock.queue);
        let all = timed
            .into_iter()
            .map(|global| global.record.deadline)
            .chain(finished.map(|at| at.after_ms(retention)))
            .chain(waiters.map(|waiter| waiter.deadline));
        let (due, next) = (all.min(), self.coordinator.next_deadline());
        let is_not_asked_yet = asked.iter().any(|global| Some(global.record.deadline) == next);
        assert!(due == next || is_not_asked_yet, "DEADLINE: {next:?} and not {due:?}");
    }

    /// Returns whether the time of a global is over that its last branch decides. Once that is
    /// asked whether it has committed, it decides in its own time.
    fn asks_its_last(&self, global: &GlobalView) -> bool {
        let last = global.branches.last().map(|branch| &branch.state);
        last == Some(&BranchState::Deciding) && global.record.deadline <= self.now
    }

    /// BOUNDED: nothing grows past its limit, and the counts are those of what is shown.
    fn check_bounded(&self, globals: &[GlobalView], locks: &[LockView]) {
        let counts = self.coordinator.counts();
        let of = |kind| globals.iter().filter(|global| global.status.kind() == kind).count();
        let decided = globals.iter().filter(|global| global.status != GlobalStatus::Active);
        let owed = decided.flat_map(|global| &global.branches).filter(|it| is_owed(&it.state));
        let undecided = globals.iter().filter(|global| global.status == GlobalStatus::Active);
        let asked = undecided.filter(|global| self.asks_its_last(global)).count();
        // The tick that asks may still be due.
        let is_ticked = self.coordinator.next_deadline().is_none_or(|next| next > self.now);
        let (owed, asked_least) = (owed.count(), if is_ticked { asked } else { 0 });
        let pending = counts.pending_branches.clamp(owed + asked_least, owed + asked);
        let counted = Counts {
            active: of(StatusKind::Active),
            committing: of(StatusKind::Committing),
            rolling_back: of(StatusKind::RollingBack),
            needs_operator: of(StatusKind::NeedsOperator),
            remembered: of(StatusKind::Committed) + of(StatusKind::RolledBack),
            locks: locks.len(),
            waiters: self.pending.values().filter(|pending| pending.holding.is_some()).count(),
            pending_branches: pending,
            // This world takes no named locks; `tests/leases.rs` does.
            leases: 0,
            lock_queue: 0,
        };
        assert_eq!(counted, counts);
        let limits = &self.limits;
        assert!(globals.len() - counts.remembered <= limits.globals_max, "BOUNDED: globals");
        assert!(counts.remembered <= limits.history_max, "BOUNDED: history");
        assert!(counts.locks <= limits.locks_max, "BOUNDED: locks");
        assert!(self.pending.len() <= limits.waiters_max, "BOUNDED: waiters");
        for global in globals {
            assert!(global.branches.len() <= limits.branches_per_global_max, "BOUNDED: branches");
            assert!(global.record.events.len() <= limits.events_per_global_max, "BOUNDED: events");
            let rows = global.branches.iter().map(|branch| branch.rows.len()).max();
            assert!(rows.unwrap_or(0) <= limits.rows_per_branch_max, "BOUNDED: rows");
        }
    }

    /// Returns the branches that phase two owes: all of a commit; the latest of each resource of a
    /// rollback.
    fn check_owed(&self, globals: &[GlobalView]) {
        let owed: BTreeSet<_> =
            self.owed().iter().map(|it| (it.xid, it.branch, it.decision)).collect();
        let due = globals.iter().filter(|global| !global.record.paused).flat_map(due);
        assert_eq!(owed, due.collect(), "EFFECTS-REPEAT: owed");
    }

    /// No request that holds database locks waits for a row of a global that rolls back.
    fn check_fail_fast(&self, locks: &[LockView]) {
        for pending in self.pending.values() {
            if pending.holding != Some(Holding::DatabaseLocks) {
                continue;
            }
            let wanted = |lock: &&LockView| *lock.resource == *RESOURCES[pending.resource];
            for lock in locks.iter().filter(wanted) {
                for row in pending.rows.iter().filter(|row| row.key == lock.key) {
                    let conflicting = lock.holders.iter().filter(|holder| {
                        Some(holder.xid) != pending.xid && conflict(holder.mode, row.mode)
                    });
                    for holder in conflicting {
                        let status = self.coordinator.status(holder.xid);
                        assert_eq!(status, GlobalStatus::Active, "a holder rolls back");
                    }
                }
            }
        }
    }
}

fn may_follow(was: StatusKind, is: StatusKind) -> bool {
    use StatusKind::{
        Active, Committed, Committing, NeedsOperator, RolledBack, RollingBack, Unknown,
    };
    match was {
        // One that was forgotten, or lost before its first branch, does not come back.
        Unknown => is == Active,
        Active => is != Unknown,
        Committing => matches!(is, Committed | Unknown),
        RollingBack | NeedsOperator => {
            matches!(is, RollingBack | NeedsOperator | RolledBack | Unknown)
        }
        Committed | RolledBack => is == Unknown,
    }
}

/// Rows are held together in equal modes only, but never for oneself.
fn conflict(one: LockMode, other: LockMode) -> bool {
    one != other || one == LockMode::Exclusive
}

/// A refused branch waits for a person, and not for a call.
fn is_owed(state: &BranchState) -> bool {
    !finished(state) && !matches!(state, BranchState::Refused(..))
}

fn finished(state: &BranchState) -> bool {
    matches!(state, BranchState::Finished(Timestamp(_)))
}

fn due(global: &GlobalView) -> Vec<(Xid, BranchId, Decision)> {
    let unfinished = || global.branches.iter().filter(|branch| !finished(&branch.state));
    let xid = global.record.xid;
    match global.status.kind() {
        StatusKind::Committing => unfinished().map(|it| (xid, it.id, Decision::Commit)).collect(),
        StatusKind::RollingBack | StatusKind::NeedsOperator => {
            let mut latest = BTreeMap::new();
            for branch in unfinished() {
                latest.insert(branch.resource.clone(), branch);
            }
            let called = latest.into_values();
            let called = called.filter(|it| !matches!(it.state, BranchState::Refused(..)));
            called.map(|branch| (xid, branch.id, Decision::RollBack)).collect()
        }
        StatusKind::Unknown
        | StatusKind::Active
        | StatusKind::Committed
        | StatusKind::RolledBack => Vec::new(),
    }
}

/// No row is held by two globals unless both only read it, or both change it in the same way.
fn check_exclusive(locks: &[LockView]) {
    for lock in locks {
        for one in &lock.holders {
            for other in lock.holders.iter().filter(|other| other.xid != one.xid) {
                assert!(!conflict(one.mode, other.mode), "held twice: {lock:?}");
            }
        }
    }
}

/// No global waits, through others, for itself. Every edge is taken, and globals that wait for
/// no other are removed until none is left.
fn check_no_cycle(locks: &[LockView]) {
    let mut edges = BTreeSet::new();
    for lock in locks {
        for (place, waiter) in lock.queue.iter().enumerate() {
            let Some(xid) = waiter.xid else { continue };
            let own = lock.holders.iter().filter(|holder| holder.xid == xid);
            let own: Vec<_> = own.map(|holder| holder.mode).collect();
            if own.iter().any(|&mode| mode == waiter.mode || mode == LockMode::Exclusive) {
                continue;
            }
            let holders = lock.holders.iter().filter(|it| conflict(it.mode, waiter.mode));
            edges.extend(holders.map(|holder| (xid, holder.xid)));
            let ahead = lock.queue[..place].iter();
            let ahead = ahead.filter(|it| it.takes && conflict(it.mode, waiter.mode));
            edges.extend(ahead.filter_map(|ahead| Some((xid, ahead.xid?))));
        }
    }
    edges.retain(|(from, to)| from != to);
    loop {
        let waiting: BTreeSet<_> = edges.iter().map(|&(from, _)| from).collect();
        let before = edges.len();
        edges.retain(|(_, to)| waiting.contains(to));
        if edges.len() == before {
            break;
        }
    }
    assert!(edges.is_empty(), "a cycle persists among {edges:?}");
}
