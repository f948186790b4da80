//! The named invariants, checked against the whole state.
//!
//! For tests and the simulator: slow, and never called by the coordinator itself. State that
//! is derived and kept up to date step by step is derived here once more, from scratch.

use std::collections::BTreeSet;

use crate::contract::{
    After, Counts, Effect, LeaseRecord, LockShare, Outcome, RecordKey, Rejection, Reply,
    VoteRequest, Xid,
};
use crate::coordinator::Coordinator;
use crate::global::begin_keys::BeginKeys;
use crate::global::branch::{Branch, BranchStage};
use crate::global::label_index::LabelIndex;
use crate::global::state::{Global, Phase};
use crate::global::vote::{check_votings, must_vote};
use crate::operator::page::PageBounds;
use crate::row_lock::table::{LockId, Purpose, WaitId};
use crate::row_lock::waiters::Waiter;

impl Outcome {
    /// Checks DURABLE-FIRST for the outcome of one decision: a reply that leaves before its batch
    /// tells of nothing that a crash could undo. It is a begun global without a record, a begin
    /// that was refused, a freed lock, or a last branch that may be lost.
    ///
    /// # Errors
    /// The reply that has to wait, for operators.
    pub fn check_early_replies(&self) -> Result<(), String> {
        for effect in &self.effects {
            let Effect::Reply { reply, when: After::Nothing | After::Commits, .. } = effect else {
                continue;
            };
            let is_stored = |xid| self.changes.iter().any(|it| it.key() == RecordKey::Global(xid));
            let may_leave = match reply {
                Reply::Begun { xid, found, .. } => found.is_none() && !is_stored(*xid),
                Reply::LockFreed => true,
                // Its receiver has the rows in its database, and needs no record of the branch.
                Reply::Registered { may_be_lost: true, .. } => !self.has_committed,
                Reply::Rejected(
                    Rejection::LimitReached { .. }
                    | Rejection::ShareReached { .. }
                    | Rejection::XidNotLent(_),
                ) => self.changes.is_empty(),
                Reply::Registered { .. }
                | Reply::Reported
                | Reply::LastReported
                | Reply::Unlocked
                | Reply::Ended(_)
                | Reply::Status(_)
                | Reply::Operated(_)
                | Reply::Saga(_)
                | Reply::LockGranted { .. }
                | Reply::LockBusy { .. }
                | Reply::LockFound { .. }
                | Reply::LocksRenewed { .. }
                | Reply::LockNotHeld { .. }
                | Reply::LockBroken { .. }
                | Reply::Rejected(_) => false,
            };
            ensure(may_leave, || format!("DURABLE-FIRST: {reply:?} leaves before its batch"))?;
        }
        Ok(())
    }
}

impl Coordinator {
    /// Checks DEADLINE, LOCK-OWNER, LEASE, QUEUE, VOTES, LAST-BRANCH and LENT, and that counts
    /// agree with what is counted. For tests, since it reads the whole state.
    ///
    /// # Errors
    /// The first invariant found broken, for operators.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_globals()?;
        let shares = self.globals.shares_are_consistent()
            && self.rows.waiters.shares_are_consistent()
            && self.waiting.shares_are_consistent();
        ensure(shares, || "BOUNDED: wrong shares".to_owned())?;
        self.check_indexes()?;
        ensure(self.departed.is_consistent(), || "gone: wrong set".to_owned())?;
        self.check_loans()?;
        ensure(self.sagas.is_consistent(), || "DEADLINE: sagas".to_owned())?;
        check_votings(&self.globals, &self.votings)?;
        self.check_leases()?;
        for lock in self.rows.table.iter() {
            self.check_lock(lock)?;
        }
        let places =
            |lock| self.rows.table.holders(lock).count() + self.rows.table.queue(lock).count();
        let places: usize = self.rows.table.iter().map(places).sum();
        ensure(places == self.rows.table.places(), || "counts: wrong places".to_owned())?;
        for (id, waiter) in self.rows.waiters.iter() {
            self.check_waiter(id, waiter)?;
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), String> {
        let mut rebuilt = LabelIndex::default();
        self.globals.iter().for_each(|global| rebuilt.insert(global.labels(), global.xid));
        self.history.iter().for_each(|global| rebuilt.insert(global.labels(), global.xid));
        ensure(rebuilt == self.labels, || "labels: wrong index".to_owned())?;
        let mut keys = BeginKeys::default();
        for global in self.globals.iter() {
            keys.insert(&global.origin.application, global.key(), global.xid);
        }
        for global in self.history.iter() {
            keys.insert(&global.origin.application, global.key(), global.xid);
        }
        ensure(keys == self.keys, || "keys: wrong index".to_owned())?;
        let needing = self.globals.needing_is_consistent();
        ensure(needing, || "counts: wrong set of those that need an operator".to_owned())
    }

    fn check_loans(&self) -> Result<(), String> {
        ensure(self.loans.is_consistent(), || "LENT: wrong counts".to_owned())?;
        let is_used =
            |xid: &Xid| self.globals.get(*xid).is_some() || self.history.get(*xid).is_some();
        let used = self.loans.iter().find(is_used);
        ensure(used.is_none(), || format!("LENT: xid {used:?} can begin two globals"))
    }

    fn check_leases(&self) -> Result<(), String> {
        ensure(self.leases.is_consistent(), || "LEASE: leases and indexes".to_owned())?;
        for lock in self.named_locks(None, PageBounds::NONE).items {
            let alone = |it: &LeaseRecord| it.share == LockShare::All && it.xid.is_none();
            let is_shared = lock.held.len() > 1;
            ensure(!is_shared || !lock.held.iter().any(alone), || {
                format!("LEASE: {} is held twice", lock.name)
            })?;
            let owners = lock.held.iter().filter_map(|lease| lease.xid);
            let mut done = owners.filter(|xid| {
                self.globals.get(*xid).is_none_or(|global| global.phase == Phase::Committing)
            });
            ensure(done.next().is_none(), || {
                format!("LOCK-OWNER: the owner of {} is done", lock.name)
            })?;
        }
        Ok(())
    }

    fn check_globals(&self) -> Result<(), String> {
        let is_asked =
            |xid| self.votings.get(&xid).is_some_and(|it| it.question == VoteRequest::Settle);
        let is_timed = |it: &&Global| it.phase == Phase::Active && !is_asked(it.xid);
        let undecided = self.globals.iter().filter(is_timed);
        let deadlines: BTreeSet<_> = undecided.map(|it| (it.deadline, it.xid)).collect();
        ensure(self.globals.deadlines().eq(&deadlines), || "DEADLINE: wrong set".to_owned())?;
        let mut counts = Counts::default();
        for global in self.globals.iter() {
            counts.enter(global.counted());
            self.check_global(global)?;
        }
        ensure(counts == self.globals.counts(), || "counts: wrong".to_owned())
    }

    fn check_global(&self, global: &Global) -> Result<(), String> {
        let xid = global.xid;
        let open = global.branches.iter().filter(|branch| !branch.is_finished()).count();
        ensure(open == global.unfinished as usize, || format!("xid {xid}: wrong branch count"))?;
        let rows: usize = global.branches.iter().map(|branch| branch.locks().len()).sum();
        ensure(rows == global.rows as usize, || format!("xid {xid}: wrong row count"))?;
        ensure(global.branches.is_sorted_by_key(|branch| branch.sequence), || {
            format!("xid {xid}: branches out of order")
        })?;
        let holds = |branch: &Branch| !branch.locks().is_empty();
        let may_hold = |branch: &Branch| global.phase != Phase::Committing && !branch.is_finished();
        ensure(global.branches.iter().all(|branch| !holds(branch) || may_hold(branch)), || {
            format!("LOCK-OWNER: xid {xid} is done with rows that it holds")
        })?;
        let last = global.branches.last().map(|branch| branch.id);
        let deciding = global.branches.iter().filter(|it| it.stage == BranchStage::Deciding);
        let is_sound = |branch: &Branch| {
            Some(branch.id) == last && !global.is_rollback_only() && !must_vote(global)
        };
        ensure(global.phase != Phase::Active || deciding.clone().all(is_sound), || {
            format!("LAST-BRANCH: xid {xid} is decided by a branch that may not")
        })?;
        ensure(open > 0 || global.phase == Phase::Active, || format!("xid {xid} never finishes"))?;
        for branch in &global.branches {
            for &lock in branch.locks() {
                let mut holders = self.rows.table.holders(lock);
                let held = holders.any(|it| (it.xid, it.sequence) == (xid, branch.sequence));
                ensure(held, || format!("LOCK-OWNER: xid {xid} is not in the lock table"))?;
            }
        }
        Ok(())
    }

    fn check_lock(&self, lock: LockId) -> Result<(), String> {
        let (space, key) = (self.rows.table.space(lock), self.rows.table.key(lock));
        let row = || {
            format!("{}/{}/{}", space.resource, space.table, crate::contract::display_row_key(key))
        };
        let used =
            self.rows.table.holders(lock).next().is_some() || self.rows.table.has_queue(lock);
        ensure(used, || format!("{}: slot not freed", row()))?;
        ensure(self.rows.table.is_indexed(lock), || {
            format!("{}: wrong index of its queue", row())
        })?;
        ensure(self.rows.table.find(space, key) == Some(lock), || format!("{}: not found", row()))?;
        for holder in self.rows.table.holders(lock) {
            let global = self.globals.get(holder.xid);
            let branch = global.and_then(|global| global.branch_at(holder.sequence));
            let knows = |branch: &Branch| branch.locks().contains(&lock);
            let xid = holder.xid;
            ensure(branch.is_some_and(knows), || format!("LOCK-OWNER: {} held by {xid}", row()))?;
            let mut other =
                self.rows.table.conflicting_holders(lock, Some(holder.xid), holder.mode);
            ensure(other.next().is_none(), || format!("{}: held twice", row()))?;
        }
        Ok(())
    }

    fn check_waiter(&self, id: WaitId, waiter: &Waiter) -> Result<(), String> {
        let undecided = waiter
            .xid
            .is_none_or(|xid| self.globals.get(xid).is_some_and(|it| it.phase == Phase::Active));
        ensure(undecided, || format!("waiter {id:?} belongs to a decided global"))?;
        let blocked = self.rows.blocker(waiter.xid, &waiter.rows, id).is_some();
        ensure(blocked, || format!("QUEUE: waiter {id:?} waits for nothing"))?;
        let stuck = self.globals.stuck_holder(&self.rows, waiter.xid, &waiter.rows).is_some();
        ensure(!stuck, || format!("QUEUE: waiter {id:?} waits for an operator"))?;
        for row in &waiter.rows {
            let waits_from = self.globals.waits_from(waiter.xid, waiter.since);
            let rank = self.rows.table.rank(row.lock, waiter.xid, waits_from);
            ensure(row.rank == rank, || format!("waiter {id:?}: wrong rank"))?;
            let mut queue = self.rows.table.queue(row.lock);
            let queued = queue.any(|(place, claim)| {
                place == row.place(id)
                    && claim.mode == row.mode
                    && (claim.purpose == Purpose::Take || !waiter.takes())
            });
            ensure(queued, || format!("waiter {id:?} stands in no queue"))?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
