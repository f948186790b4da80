//! Registration of branches, and checks of locks.
//!
//! Both want rows of one resource: they get them at once, wait in the queues, or are refused with
//! nothing left behind. Waiting itself is in `queue`.

use std::sync::Arc;

use super::branch::{Branch, BranchExtras, BranchStage};
use super::branch_rows::BranchRows;
use super::globals::Globals;
use super::state::{Global, row_count};
use super::vote::must_vote;
use crate::contract::{
    Asker, Change, Correlation, Event, FencingToken, Holding, LockMode, LockWait, Mode, NewBranch,
    Record, Rejection, Reply, RowLock, Timestamp, Xid,
};
use crate::decision_context::HandlerResult;
use crate::row_lock::table::{Holder, LockId, LockTable, WaitId};
use crate::row_lock::waiters::{PendingBranch, WaitGoal, WantedRow, WantedRows};
use crate::shares::{check_limit, check_share};

/// The most bytes of tables and keys of the rows that one branch holds, over all its registrations.
/// Too few: local transactions of many statements are refused. Too many: the branch's record
/// exceeds what a database takes in one statement, and no leader could store it.
const ROW_BYTES_PER_BRANCH_MAX: usize = 8 << 20;

impl Globals<'_> {
    pub(crate) fn register_branch(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        branch: NewBranch,
        wait: LockWait,
    ) -> HandlerResult {
        let (pending, rows) = self.pending(branch, wait);
        self.register(to, xid, pending, rows, wait)
    }

    /// Splits a new branch from the rows that it wants.
    fn pending(&mut self, branch: NewBranch, wait: LockWait) -> (PendingBranch, Vec<RowLock>) {
        let NewBranch { id, resource, mode, rows, application_data, registered_by } = branch;
        let site = self.on.names.site(&resource, registered_by.as_ref());
        let trace = self.on.trace.map(|trace| Box::new(*trace));
        let (is_last, is_ahead) = (false, wait.holding == Holding::Nothing);
        (PendingBranch { id, site, mode, application_data, is_last, is_ahead, trace }, rows)
    }

    fn register(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        pending: PendingBranch,
        rows: Vec<RowLock>,
        wait: LockWait,
    ) -> HandlerResult {
        self.admit(xid, &pending)?;
        let rows = self.distinct_rows(rows)?;
        let wanted = self.wanted_rows(Some(xid), &pending.site.resource, &rows)?;
        // A request that is in no queue yet stands behind all that are.
        if let Some(blocker) = self.rows.blocker(Some(xid), &wanted, WaitId(u64::MAX)) {
            let goal = WaitGoal::Join(xid, pending);
            return self.wait_or_refuse(to, goal, wanted, wait, blocker);
        }
        let joined = self.join(xid, pending, &wanted, Given::Now(rows));
        // A refused request leaves the slots that `wanted_rows` has made. A granted one may change
        // the rank of other requests of its global, and close a cycle with that.
        if joined.is_err() || !self.rows.waiters.is_idle() {
            let mut touched = wanted.iter().map(|row| row.lock).collect();
            self.after_change_of_rows(xid, &mut touched);
            self.settle(touched);
        }
        joined.map(Some)
    }

    /// Registers a branch after which none joins its global.
    ///
    /// The reply need not wait until the branch is stored if that may be lost, and nothing else is
    /// stored of its global (LAST-BRANCH). Lost in a crash, the global is as if it had never been
    /// begun: what its only branch commits is all of it. Others have not changed the rows
    /// meanwhile, which are locked in their database. A begin with a key is answered by what is
    /// known of the global later.
    pub(crate) fn register_last_branch(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        branch: NewBranch,
        wait: LockWait,
        may_be_lost: bool,
    ) -> HandlerResult {
        let global = self.globals.get(xid).filter(|_| may_be_lost);
        let nothing_stored = global.is_some_and(|it| !it.stored && it.key().is_none());
        let (pending, rows) = self.pending(branch, wait);
        let last = PendingBranch { is_last: true, ..pending };
        let mut reply = self.register(to, xid, last, rows, wait)?;
        if let Some(Reply::Registered { decides: true, may_be_lost, .. }) = &mut reply {
            *may_be_lost = nothing_stored;
        }
        Ok(reply)
    }

    pub(crate) fn check_locks(
        &mut self,
        to: Option<Correlation>,
        xid: Option<Xid>,
        resource: &Arc<str>,
        rows: Vec<RowLock>,
        wait: LockWait,
    ) -> HandlerResult {
        xid.map_or(Ok(()), |xid| self.undecided(xid).map(|_| ()))?;
        let rows = self.distinct_rows(rows)?;
        let wanted = self.wanted_rows(xid, resource, &rows)?;
        if let Some(blocker) = self.rows.blocker(xid, &wanted, WaitId(u64::MAX)) {
            return self.wait_or_refuse(to, WaitGoal::Check(xid), wanted, wait, blocker);
        }
        wanted.iter().for_each(|row| self.rows.table.reclaim(row.lock));
        Ok(Some(Reply::Unlocked))
    }

    /// Refuses a branch that may not join the global, locks aside.
    fn admit(&self, xid: Xid, pending: &PendingBranch) -> Result<&Global, Rejection> {
        let global = self.undecided(xid)?;
        match global.branch(pending.id) {
            Some(known)
                if *known.resource() != pending.site.resource || known.mode != pending.mode =>
            {
                Err(Rejection::BranchMismatch { xid, branch: pending.id })
            }
            // LAST-BRANCH: what others registered would be committed unseen.
            _ if global.deciding().is_some_and(|last| last.id != pending.id) => {
                Err(Rejection::Voting(xid))
            }
            Some(_) => Ok(global),
            // VOTES: a branch that joined in the midst of a voting would not have been asked.
            None if self.votings.contains_key(&xid) => Err(Rejection::Voting(xid)),
            None => {
                let max = self.on.limits.branches_per_global_max;
                check_limit("branches of a global", global.branches.len() + 1, max)?;
                Ok(global)
            }
        }
    }

    /// Each row once, in a mode that allows all that is asked for, in order.
    fn distinct_rows(&self, mut rows: Vec<RowLock>) -> Result<Vec<RowLock>, Rejection> {
        check_limit("rows of a request", rows.len(), self.on.limits.rows_per_request_max)?;
        rows.sort_unstable();
        rows.dedup_by(|next, kept| {
            let same = (&next.table, &next.key) == (&kept.table, &kept.key);
            if same {
                kept.mode = kept.mode.joined(next.mode);
            }
            same
        });
        Ok(rows)
    }

    /// The slots of the rows.
    fn wanted_rows(
        &mut self,
        xid: Option<Xid>,
        resource: &Arc<str>,
        rows: &[RowLock],
    ) -> Result<WantedRows, Rejection> {
        self.check_room(resource, rows)?;
        let waits_from = self.globals.waits_from(xid, self.on.now);
        let mut wanted = WantedRows::with_capacity(rows.len());
        for of_table in rows.chunk_by(|one, next| one.table == next.table) {
            let space = self.on.names.space(resource, &of_table[0].table);
            wanted.extend(of_table.iter().map(|row| {
                let lock = self.rows.table.find_or_insert(&space, &row.key);
                WantedRow {
                    lock,
                    mode: row.mode,
                    rank: self.rows.table.rank(lock, xid, waits_from),
                }
            }));
        }
        Ok(wanted)
    }

    /// Rows that are locked or waited for already need no room: a request sent again is answered
    /// as the first time, however full the table is.
    fn check_room(&mut self, resource: &Arc<str>, rows: &[RowLock]) -> Result<(), Rejection> {
        let mut wanted = self.rows.table.len() + rows.len();
        if wanted > self.on.limits.locks_max {
            for row in rows {
                let space = self.on.names.space(resource, &row.table);
                wanted -= usize::from(self.rows.table.find(&space, &row.key).is_some());
            }
        }
        check_limit("row locks", wanted, self.on.limits.locks_max)
    }

    /// Checks that there is room for this many more holders of rows or waiters for them. Each
    /// holder of a shared row counts.
    pub(crate) fn check_places(&self, owner: &Asker, wanted: usize) -> Result<(), Rejection> {
        let (what, max) = ("row locks", self.on.limits.locks_max);
        check_limit(what, self.rows.table.places() + wanted, max)?;
        let tallies = [self.globals.rows(), self.rows.waiters.rows()];
        check_share(self.on.limits, &tallies, owner, what, wanted, max)
    }

    /// Returns the owner of a request: the client that began the global or, outside of a global,
    /// the sender.
    pub(crate) fn owner_of(&self, xid: Option<Xid>) -> Asker {
        let global = xid.and_then(|xid| self.globals.get(xid));
        global.map_or_else(|| self.on.asker.clone(), Global::owner)
    }

    /// Makes the branch hold the rows, which nothing blocks.
    ///
    /// A request whose rows the branch already holds changes nothing and gets the earlier token.
    pub(crate) fn join(
        &mut self,
        xid: Xid,
        pending: PendingBranch,
        rows: &[WantedRow],
        given: Given,
    ) -> Result<Reply, Rejection> {
        self.take_place(xid, &pending)?;
        let (sequence, missing) = match self.plan_locks(xid, &pending, rows)? {
            LockPlan::Take { sequence, missing } => (sequence, missing),
            LockPlan::HasAll(granted_before) => return Ok(granted_before),
        };
        // The last step that can be refused comes before the first change.
        let token = self.on.ids.token()?;
        let decides = pending.is_last && self.may_decide(xid, &pending);
        let locks = &mut self.rows.table;
        self.globals.change(xid, |global| {
            // Decision 0002: the first branch stores its global, in the same batch.
            if !std::mem::replace(&mut global.stored, true) {
                self.on.out.changes.push(Change::Put(Record::Global(global.record())));
            }
            let is_new = global.branch(pending.id).is_none();
            let id = pending.id;
            if is_new {
                global.add(make_branch(self.on.now, sequence, pending));
            }
            let Some(branch) = global.branch_mut(id) else { return };
            branch.token = token;
            if decides {
                branch.stage = BranchStage::Deciding;
            }
            let taken = branch.hold(xid, &missing, locks);
            // A branch that is just made holds the rows of this request and no others.
            let record = match given {
                Given::Now(rows) if is_new => branch.record_with(xid, rows),
                Given::Now(_) => branch.record(xid, locks),
                Given::AfterAWait(waited) => {
                    branch.note(waited);
                    branch.record(xid, locks)
                }
            };
            global.rows += row_count(taken);
            self.on.out.changes.push(Change::Put(Record::Branch(record)));
        });
        Ok(Reply::Registered { token, decides, may_be_lost: false })
    }

    /// Gives a known branch its place in the order of rollback: behind all that have registered
    /// before the request which its local transaction makes. One that was registered ahead may have
    /// met their changes (decision 0003). A request that is sent twice finds it in its place.
    fn take_place(&mut self, xid: Xid, pending: &PendingBranch) -> Result<(), Rejection> {
        // LAST-BRANCH: nothing gets behind the branch that decides.
        let global = self.admit(xid, pending)?;
        let Some(known) = global.branch(pending.id) else { return Ok(()) };
        if known.is_ahead == pending.is_ahead {
            return Ok(());
        }
        let is_behind_all = global.branches.last().is_some_and(|last| last.id == known.id);
        let from = known.sequence;
        let to =
            if pending.is_ahead || is_behind_all { Some(from) } else { global.next_sequence() };
        let to = to.ok_or_else(too_many_registrations)?;
        let locks = &mut self.rows.table;
        self.globals.change(xid, |global| {
            let Some(branch) = global.branches.move_to(pending.id, to) else { return };
            branch.is_ahead = pending.is_ahead;
            if to != from {
                locks.renumber(branch.locks(), xid, from, to);
                self.on.out.changes.push(Change::Put(Record::Branch(branch.record(xid, locks))));
            }
        });
        Ok(())
    }

    /// Whether the local commit of this branch may decide the global: nothing that is left to do
    /// before the commit can refuse it (LAST-BRANCH).
    fn may_decide(&self, xid: Xid, pending: &PendingBranch) -> bool {
        self.globals.get(xid).is_some_and(|global| {
            let last = global.branches.last();
            let is_last = global.branch(pending.id).is_none()
                || last.is_some_and(|last| last.id == pending.id && last.may_decide());
            let is_free = !global.is_rollback_only() && !must_vote(global);
            pending.mode == Mode::At && is_last && is_free && !self.votings.contains_key(&xid)
        })
    }

    /// Finds which rows the branch has yet to take.
    fn plan_locks(
        &self,
        xid: Xid,
        pending: &PendingBranch,
        rows: &[WantedRow],
    ) -> Result<LockPlan, Rejection> {
        // A granted request has waited, and its global may have reached a limit or begun a voting
        // meanwhile.
        let global = self.admit(xid, pending)?;
        let known = global.branch(pending.id);
        let sequence = known.map(|branch| branch.sequence).or_else(|| global.next_sequence());
        let sequence = sequence.ok_or_else(too_many_registrations)?;
        let held = |row: &WantedRow| held_in(&self.rows.table, row.lock, xid, sequence);
        let covered = |row: &WantedRow| held(row).is_some_and(|mode| mode.covers(row.mode));
        let missing: WantedRows = rows.iter().filter(|row| !covered(row)).copied().collect();
        if let (Some(branch), true) = (known, missing.is_empty()) {
            let decides = branch.stage == BranchStage::Deciding;
            if decides || !pending.is_last || !self.may_decide(xid, pending) {
                let granted =
                    Reply::Registered { token: branch.token, decides, may_be_lost: false };
                return Ok(LockPlan::HasAll(granted));
            }
        }
        let added = missing.iter().filter(|row| held(row).is_none()).count();
        let rows = known.map_or(0, |branch| branch.locks().len()) + added;
        check_limit("rows of a branch", rows, self.on.limits.rows_per_branch_max)?;
        if let Some(branch) = known {
            self.check_row_bytes(branch, &missing)?;
        }
        self.check_places(&global.owner(), added)?;
        Ok(LockPlan::Take { sequence, missing })
    }

    /// Refuses further rows with which the record of the branch could not be stored (BOUNDED).
    fn check_row_bytes(&self, branch: &Branch, missing: &[WantedRow]) -> Result<(), Rejection> {
        let held = branch.locks().iter().copied();
        let rows = held.chain(missing.iter().map(|row| row.lock));
        let table = &self.rows.table;
        let bytes = rows.map(|row| table.space(row).table.len() + table.key(row).len()).sum();
        check_limit("bytes in the rows of a branch", bytes, ROW_BYTES_PER_BRANCH_MAX)
    }
}

fn too_many_registrations() -> Rejection {
    Rejection::LimitReached { what: "registrations of a global", max: u64::from(u32::MAX) }
}

/// How a branch gets its rows.
pub(crate) enum Given {
    /// At once; the same rows as the request names them.
    Now(Vec<RowLock>),
    /// After this wait, which belongs to the branch's course.
    AfterAWait(Event),
}

/// The changes that a registration makes.
enum LockPlan {
    /// The branch with this sequence number takes the rows that it does not hold yet.
    Take { sequence: u32, missing: WantedRows },
    /// None: the branch holds every row, and the answer is that of the grant.
    HasAll(Reply),
}

impl Branch {
    /// Whether its phase one goes on as far as is known, so that its local commit can decide.
    fn may_decide(&self) -> bool {
        matches!(self.stage, BranchStage::Registered | BranchStage::Deciding)
    }

    /// Takes the rows; those that it holds already, in one more mode. Returns how many it did not
    /// hold.
    fn hold(&mut self, xid: Xid, rows: &[WantedRow], locks: &mut LockTable) -> usize {
        let mut taken = 0;
        for row in rows {
            let holder = Holder { xid, sequence: self.sequence, mode: row.mode };
            if !locks.hold(row.lock, holder) {
                self.add_lock(row.lock);
                taken += 1;
            }
        }
        taken
    }
}

/// Returns the mode in which the branch with this sequence number holds the row, if it does.
fn held_in(locks: &LockTable, lock: LockId, xid: Xid, sequence: u32) -> Option<LockMode> {
    let mut holders = locks.holders(lock);
    holders.find(|it| (it.xid, it.sequence) == (xid, sequence)).map(|holder| holder.mode)
}

fn make_branch(now: Timestamp, sequence: u32, pending: PendingBranch) -> Branch {
    let PendingBranch { application_data, trace, .. } = pending;
    let has_extras = !application_data.is_empty() || trace.is_some();
    let trace = trace.map(|trace| *trace);
    Branch {
        id: pending.id,
        sequence,
        mode: pending.mode,
        stage: BranchStage::Registered,
        is_ahead: pending.is_ahead,
        site: pending.site,
        token: FencingToken::default(),
        registered_at: now,
        phase_one_at: Timestamp(0),
        rows: BranchRows::None,
        extras: has_extras
            .then(|| Box::new(BranchExtras { application_data, trace, ..BranchExtras::default() })),
    }
}
