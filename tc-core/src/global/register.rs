//! Registration of branches, and checks of locks.
//!
//! Both want rows of one resource: they get them at once, wait in the queues, or are refused with
//! nothing left behind. Waiting itself is in `queue`.

use std::sync::Arc;

use super::branch::{Branch, Rare, Stage};
use super::state::Global;
use crate::contract::{
    Asker, Change, Correlation, FencingToken, LockMode, LockWait, NewBranch, Outcome, Record,
    Rejection, Reply, RowLock, Timestamp, Xid,
};
use crate::coordinator::Coordinator;
use crate::reply::Answer;
use crate::row_lock::held_locks::HeldLocks;
use crate::row_lock::table::{Holder, LockId, LockTable, WaitId};
use crate::row_lock::waiters::{Joining, Want, WantedRow, WantedRows};
use crate::shares::{check_limit, check_share};

impl Coordinator {
    pub(crate) fn register_branch(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        xid: Xid,
        branch: NewBranch,
        wait: LockWait,
        out: &mut Outcome,
    ) -> Answer {
        let NewBranch { id, resource, mode, rows, application_data, registered_by } = branch;
        let resource = self.names.name(&resource);
        let registered_by = registered_by.map(|process| self.names.name(&process));
        let joining = Joining { id, resource, mode, application_data, registered_by };
        self.admit(xid, &joining)?;
        let rows = self.distinct_rows(rows)?;
        let wanted = self.wanted_rows(now, Some(xid), &joining.resource, &rows)?;
        if let Some(blocker) = self.blocker(Some(xid), &wanted, WaitId(u64::MAX)) {
            let want = Want::Join(xid, joining);
            return self.wait_or_refuse(now, to, want, wanted, wait, blocker);
        }
        let token = self.join(now, xid, joining, &wanted, Some(rows), out);
        if token.is_err() || !self.waits.is_idle() {
            let mut touched = wanted.iter().map(|row| row.lock).collect();
            self.after_change_of_rows(now, xid, &mut touched, out);
            self.settle(now, touched, out);
        }
        Ok(Some(Reply::Registered { token: token? }))
    }

    pub(crate) fn check_locks(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        xid: Option<Xid>,
        resource: &Arc<str>,
        rows: Vec<RowLock>,
        wait: LockWait,
    ) -> Answer {
        xid.map_or(Ok(()), |xid| self.undecided(xid).map(|_| ()))?;
        // A check is compatible like a shared lock: it reads.
        let rows = self.distinct_rows(rows.into_iter().map(RowLock::shared).collect())?;
        let wanted = self.wanted_rows(now, xid, resource, &rows)?;
        if let Some(blocker) = self.blocker(xid, &wanted, WaitId(u64::MAX)) {
            return self.wait_or_refuse(now, to, Want::Check(xid), wanted, wait, blocker);
        }
        wanted.iter().for_each(|row| self.locks.reclaim(row.lock));
        Ok(Some(Reply::Unlocked))
    }

    /// Whether the branch may join the global, locks aside.
    fn admit(&self, xid: Xid, joining: &Joining) -> Result<&Global, Rejection> {
        let global = self.undecided(xid)?;
        match global.branch(joining.id) {
            Some(known) if known.resource != joining.resource || known.mode != joining.mode => {
                Err(Rejection::BranchMismatch { xid, branch: joining.id })
            }
            Some(_) => Ok(global),
            None if self.votings.contains_key(&xid) => Err(Rejection::Voting(xid)),
            None => {
                let max = self.limits.branches_per_global_max;
                check_limit("branches of a global", global.branches.len() + 1, max)?;
                Ok(global)
            }
        }
    }

    /// Each row once, in its strongest mode, in order.
    fn distinct_rows(&self, mut rows: Vec<RowLock>) -> Result<Vec<RowLock>, Rejection> {
        check_limit("rows of a request", rows.len(), self.limits.rows_per_request_max)?;
        rows.sort_unstable();
        // Of equal rows the last is the strongest: it is kept, in place of the one before it.
        rows.dedup_by(|next, kept| {
            let same = (&next.table, &next.key) == (&kept.table, &kept.key);
            if same {
                kept.mode = next.mode;
            }
            same
        });
        Ok(rows)
    }

    /// The slots of the rows.
    fn wanted_rows(
        &mut self,
        now: Timestamp,
        xid: Option<Xid>,
        resource: &Arc<str>,
        rows: &[RowLock],
    ) -> Result<WantedRows, Rejection> {
        self.check_room(resource, rows)?;
        let waits_from = self.waits_from(xid, now);
        let mut wanted = WantedRows::with_capacity(rows.len());
        for of_table in rows.chunk_by(|one, next| one.table == next.table) {
            let space = self.names.space(resource, &of_table[0].table);
            wanted.extend(of_table.iter().map(|row| {
                let lock = self.locks.find_or_insert(&space, &row.key);
                WantedRow { lock, mode: row.mode, rank: self.locks.rank(lock, xid, waits_from) }
            }));
        }
        Ok(wanted)
    }

    /// Rows that are locked or waited for already need no room: a request sent again is answered
    /// as the first time, however full the table is.
    fn check_room(&mut self, resource: &Arc<str>, rows: &[RowLock]) -> Result<(), Rejection> {
        let mut wanted = self.locks.len() + rows.len();
        if wanted > self.limits.locks_max {
            for row in rows {
                let space = self.names.space(resource, &row.table);
                wanted -= usize::from(self.locks.find(&space, &row.key).is_some());
            }
        }
        check_limit("row locks", wanted, self.limits.locks_max)
    }

    /// Whether there is room for so many more that hold a row or wait for one: of a row that many
    /// share each counts.
    pub(crate) fn check_places(&self, owner: &Asker, wanted: usize) -> Result<(), Rejection> {
        let (what, max) = ("row locks", self.limits.locks_max);
        check_limit(what, self.locks.places() + wanted, max)?;
        let tallies = [self.globals.rows(), self.waits.rows()];
        check_share(&self.limits, &tallies, owner, what, wanted, max)
    }

    /// Whose a request of the global is: of the client that began it. Outside of a global, of the
    /// one that asks.
    pub(crate) fn owner_of(&self, xid: Option<Xid>) -> Asker {
        let global = xid.and_then(|xid| self.globals.get(xid));
        global.map_or_else(|| self.asker.clone(), Global::owner)
    }

    /// Makes the branch hold the rows, which nothing blocks. `given` are the same rows as the
    /// request named them, where that is still known.
    ///
    /// A request that finds its rows held already changes nothing and gets the token of then.
    pub(crate) fn join(
        &mut self,
        now: Timestamp,
        xid: Xid,
        joining: Joining,
        rows: &[WantedRow],
        given: Option<Vec<RowLock>>,
        out: &mut Outcome,
    ) -> Result<FencingToken, Rejection> {
        let joint = match self.plan_joint(xid, &joining, rows)? {
            Ok(joint) => joint,
            Err(granted_before) => return Ok(granted_before),
        };
        let token = self.numbers.token()?;
        let locks = &mut self.locks;
        self.globals.change(xid, |global| {
            if !std::mem::replace(&mut global.stored, true) {
                out.changes.push(Change::Put(Record::Global(global.record())));
            }
            let is_new = global.branch(joining.id).is_none();
            let id = joining.id;
            if is_new {
                global.add(make_branch(now, joint.sequence, joining));
            }
            let Some(branch) = global.branch_mut(id) else { return };
            branch.token = token;
            branch.hold(xid, &joint.missing, locks);
            let record = match given {
                Some(rows) if is_new => branch.record_with(xid, rows),
                Some(_) | None => branch.record(xid, locks),
            };
            out.changes.push(Change::Put(Record::Branch(record)));
        });
        Ok(token)
    }

    /// What the branch has yet to get, or the token of a branch that has everything.
    fn plan_joint(
        &self,
        xid: Xid,
        joining: &Joining,
        rows: &[WantedRow],
    ) -> Result<Result<Joint, FencingToken>, Rejection> {
        let global = self.admit(xid, joining)?;
        let known = global.branch(joining.id);
        let sequence = known.map(|branch| branch.sequence).or_else(|| global.next_sequence());
        let sequence = sequence.ok_or(Rejection::LimitReached {
            what: "registrations of a global",
            max: u64::from(u32::MAX),
        })?;
        let held = |row: &WantedRow| held_in(&self.locks, row.lock, xid, sequence);
        let covered = |row: &WantedRow| held(row).is_some_and(|mode| mode >= row.mode);
        let missing: WantedRows = rows.iter().filter(|row| !covered(row)).copied().collect();
        if let (Some(branch), true) = (known, missing.is_empty()) {
            return Ok(Err(branch.token));
        }
        let added = missing.iter().filter(|row| held(row).is_none()).count();
        let rows = known.map_or(0, |branch| branch.locks.len()) + added;
        check_limit("rows of a branch", rows, self.limits.rows_per_branch_max)?;
        self.check_places(&global.owner(), added)?;
        Ok(Ok(Joint { sequence, missing }))
    }
}

/// A branch's place and the rows that it has yet to get.
struct Joint {
    sequence: u32,
    missing: WantedRows,
}

impl RowLock {
    fn shared(self) -> Self {
        Self { mode: LockMode::Shared, ..self }
    }
}

impl Branch {
    /// Holds the rows, those that it holds already in a stronger mode.
    fn hold(&mut self, xid: Xid, rows: &[WantedRow], locks: &mut LockTable) {
        for row in rows {
            let holder = Holder { xid, sequence: self.sequence, mode: row.mode };
            if !locks.hold(row.lock, holder) {
                self.locks.push(row.lock);
            }
        }
    }
}

/// How the branch of this place holds the row, if it does.
fn held_in(locks: &LockTable, lock: LockId, xid: Xid, sequence: u32) -> Option<LockMode> {
    let mut holders = locks.holders(lock);
    holders.find(|it| (it.xid, it.sequence) == (xid, sequence)).map(|holder| holder.mode)
}

fn make_branch(now: Timestamp, sequence: u32, joining: Joining) -> Branch {
    Branch {
        id: joining.id,
        sequence,
        mode: joining.mode,
        stage: Stage::Registered,
        resource: joining.resource,
        registered_by: joining.registered_by,
        token: FencingToken::default(),
        registered_at: now,
        finished_at: Timestamp(0),
        locks: HeldLocks::None,
        rare: (!joining.application_data.is_empty()).then(|| {
            let application_data = joining.application_data;
            Box::new(Rare { application_data, ..Rare::default() })
        }),
    }
}
