//! Registration of branches, and checks of locks.
//!
//! Both want rows of one resource: they get them at once, wait in the queues, or are refused with
//! nothing left behind. Waiting itself is in `queue`.

use std::sync::Arc;

use crate::branch::{Branch, HeldRow, Stage};
use crate::coordinator::{Answer, Coordinator, check_limit};
use crate::global::Global;
use crate::lock::{Holder, LockTable, Rank};
use crate::outcome::{Change, Outcome, Rejection, Reply};
use crate::record::Record;
use crate::request::{LockMode, LockWait, NewBranch, RowLock};
use crate::wait::{Joining, WaitId, Want, WantedRow};
use crate::{Correlation, FencingToken, Timestamp, Xid};

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
        let NewBranch { id, resource, mode, rows, application_data } = branch;
        let joining = Joining { id, resource: self.names.text(&resource), mode, application_data };
        self.admit(xid, &joining)?;
        let rows = self.wanted_rows(Some(xid), &joining.resource, rows)?;
        if let Some(blocker) = self.blocker(Some(xid), &rows, WaitId(u64::MAX)) {
            let want = Want::Join(xid, joining);
            return self.wait_or_refuse(now, to, want, rows, wait, blocker);
        }
        let token = self.join(now, xid, joining, &rows, out);
        let mut touched = rows.iter().map(|row| row.lock).collect();
        self.after_change_of_rows(xid, &mut touched, out);
        self.settle(now, touched, out);
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
        let rows = rows.into_iter().map(RowLock::shared).collect();
        let rows = self.wanted_rows(xid, resource, rows)?;
        if let Some(blocker) = self.blocker(xid, &rows, WaitId(u64::MAX)) {
            return self.wait_or_refuse(now, to, Want::Check(xid), rows, wait, blocker);
        }
        rows.iter().for_each(|row| self.locks.reclaim(row.lock));
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
            None => {
                let max = self.limits.branches_per_global_max;
                check_limit("branches of a global", global.branches.len() + 1, max)?;
                Ok(global)
            }
        }
    }

    /// The slots of the rows, each once in its strongest mode.
    fn wanted_rows(
        &mut self,
        xid: Option<Xid>,
        resource: &Arc<str>,
        mut rows: Vec<RowLock>,
    ) -> Result<Vec<WantedRow>, Rejection> {
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
        self.check_room(resource, &rows)?;
        let wanted = rows.into_iter().map(|row| {
            let space = self.names.space(resource, &row.table);
            let lock = self.locks.find_or_insert(space, row.key);
            let held = self.locks.holds(lock, xid);
            let rank = if held { Rank::Holder } else { Rank::Newcomer };
            WantedRow { lock, mode: row.mode, rank }
        });
        Ok(wanted.collect())
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

    /// Makes the branch hold the rows, which nothing blocks.
    ///
    /// A request that finds its rows held already changes nothing and gets the token of then.
    pub(crate) fn join(
        &mut self,
        now: Timestamp,
        xid: Xid,
        joining: Joining,
        rows: &[WantedRow],
        out: &mut Outcome,
    ) -> Result<FencingToken, Rejection> {
        let joint = match self.plan_joint(xid, &joining, rows)? {
            Ok(joint) => joint,
            Err(granted_before) => return Ok(granted_before),
        };
        let token = self.numbers.token()?;
        if self.globals.get(xid).is_some_and(|global| !global.stored) {
            self.put_global(xid, out);
        }
        self.store_joint(now, xid, joining, &joint, token, out);
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
        let held = |row: &&WantedRow| holds(&self.locks, row, xid, sequence);
        let missing: Vec<_> = rows.iter().filter(|row| !held(row)).copied().collect();
        if let (Some(branch), true) = (known, missing.is_empty()) {
            return Ok(Err(branch.token));
        }
        let rows = known.map_or(0, |branch| branch.rows.len()) + missing.len();
        check_limit("rows of a branch", rows, self.limits.rows_per_branch_max)?;
        Ok(Ok(Joint { sequence, missing }))
    }

    fn store_joint(
        &mut self,
        now: Timestamp,
        xid: Xid,
        joining: Joining,
        joint: &Joint,
        token: FencingToken,
        out: &mut Outcome,
    ) {
        let locks = &mut self.locks;
        self.globals.change(xid, |global| {
            let id = joining.id;
            if global.branch(id).is_none() {
                global.add(make_branch(now, joint.sequence, joining));
            }
            let Some(branch) = global.branch_mut(id) else { return };
            branch.token = token;
            branch.rows.reserve_exact(joint.missing.len());
            for row in &joint.missing {
                let holder = Holder { xid, sequence: branch.sequence, mode: row.mode };
                if locks.hold(row.lock, holder) {
                    branch.raise(row);
                } else {
                    branch.rows.push(HeldRow { lock: row.lock, mode: row.mode });
                }
            }
            out.changes.push(Change::Put(Record::Branch(branch.record(xid, locks))));
        });
    }
}

/// A branch's place and the rows that it has yet to get.
struct Joint {
    sequence: u32,
    missing: Vec<WantedRow>,
}

impl RowLock {
    fn shared(self) -> Self {
        Self { mode: LockMode::Shared, ..self }
    }
}

impl Branch {
    /// Holds a row that it holds already in a stronger mode.
    fn raise(&mut self, row: &WantedRow) {
        if let Some(held) = self.rows.iter_mut().find(|held| held.lock == row.lock) {
            held.mode = held.mode.max(row.mode);
        }
    }
}

fn holds(locks: &LockTable, row: &WantedRow, xid: Xid, sequence: u32) -> bool {
    let covers = |holder: Holder| {
        (holder.xid, holder.sequence) == (xid, sequence) && holder.mode >= row.mode
    };
    locks.holders(row.lock).any(covers)
}

fn make_branch(now: Timestamp, sequence: u32, joining: Joining) -> Branch {
    Branch {
        id: joining.id,
        sequence,
        mode: joining.mode,
        stage: Stage::Registered,
        resource: joining.resource,
        token: FencingToken::default(),
        registered_at: now,
        rows: Vec::new(),
        application_data: joining.application_data,
        trouble: None,
    }
}
