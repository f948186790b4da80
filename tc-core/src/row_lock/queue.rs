//! Waiting for locks: which request must wait, is next, or is refused.
//!
//! A request takes all its rows at once or none. It is its turn when no other global holds one of
//! them in a conflicting mode and no request before it in a row's queue, its own global's included,
//! wants to. A queue is in order of arrival, but for a head start of globals that hold rows. No
//! request waits for a check, which takes nothing. QUEUE: when `settle` is done, no request whose
//! turn it is waits, and none waits for a row that is free only after an operator has acted.

use std::collections::BTreeSet;

use super::row_locks::Blocker;
use super::table::{LockId, Rank, Touched, WaitId};
use super::waiters::{Unfit, WaitGoal, Waiter, WantedRow, WantedRows};
use crate::contract::{Correlation, Holding, LockWait, NewLease, Rejection, Reply, Xid};
use crate::decision_context::HandlerResult;
use crate::global::globals::Globals;
use crate::global::register::Given;
use crate::named_lock::acquire::Acquired;
use crate::waiting::Awaited;

impl Globals<'_> {
    /// Puts a blocked request into the queues of its rows, or refuses it and leaves nothing behind.
    pub(crate) fn wait_or_refuse(
        &mut self,
        to: Option<Correlation>,
        goal: WaitGoal,
        rows: WantedRows,
        wait: LockWait,
        blocker: Blocker,
    ) -> HandlerResult {
        let xid = goal.xid();
        let locks: Touched = rows.iter().map(|row| row.lock).collect();
        let waits = self.may_wait(to, xid, &rows, wait, blocker).and_then(|reply_to| {
            let (holding, since) = (wait.holding, self.on.now);
            let deadline = self.on.now.after_ms(wait.timeout_ms.min(self.on.limits.wait_ms_max));
            let blocked_at = rows.iter().position(|row| row.lock == blocker.lock).unwrap_or(0);
            let owner = self.owner_of(xid);
            let behind = blocker.by;
            self.enqueue(Waiter {
                reply_to,
                xid,
                owner,
                goal,
                rows,
                blocked_at,
                behind,
                holding,
                since,
                deadline,
            })
        });
        // Slots that were made for this request alone are given back.
        if let Err(rejection) = waits {
            locks.into_iter().for_each(|lock| self.rows.table.reclaim(lock));
            return Err(rejection);
        }
        Ok(None)
    }

    fn may_wait(
        &self,
        to: Option<Correlation>,
        xid: Option<Xid>,
        rows: &[WantedRow],
        wait: LockWait,
        blocker: Blocker,
    ) -> Result<Correlation, Rejection> {
        if let Some(stuck) = self.globals.stuck_holder(self.rows, xid, rows) {
            return Err(self.row_locked(stuck));
        }
        // A holder that rolls back may need the database locks that this requester would keep.
        let rolling_back = match wait.holding {
            Holding::DatabaseLocks => self.holder_rolling_back(xid, rows),
            Holding::Nothing => None,
        };
        match (to, rolling_back) {
            (Some(to), None) if wait.timeout_ms > 0 => {
                self.check_room_to_wait()?;
                self.check_places(&self.owner_of(xid), rows.len())?;
                Ok(to)
            }
            (_, rolling_back) => Err(self.row_locked(rolling_back.unwrap_or(blocker))),
        }
    }

    fn holder_rolling_back(&self, xid: Option<Xid>, rows: &[WantedRow]) -> Option<Blocker> {
        rows.iter().find_map(|row| {
            let mut holders = self.rows.table.conflicting_holders(row.lock, xid, row.mode);
            let holder = holders.find(|holder| self.globals.is_rolling_back(holder.xid))?;
            Some(Blocker { lock: row.lock, by: holder.xid })
        })
    }

    pub(crate) fn row_locked(&self, Blocker { lock, by }: Blocker) -> Rejection {
        let (table, key) =
            (self.rows.table.space(lock).table.clone(), self.rows.table.key(lock).into());
        let by_address = self.address_of(by);
        let mut holders = self.rows.table.holders(lock).filter(|holder| holder.xid == by);
        if holders.any(|holder| self.globals.is_stuck(by, holder.sequence)) {
            return Rejection::RowNeedsOperator { table, key, by, by_address };
        }
        let holder_rolling_back = self.globals.is_rolling_back(by);
        Rejection::RowLocked { table, key, by, by_address, holder_rolling_back }
    }

    /// Adds the request to the queues, unless that closes a cycle.
    fn enqueue(&mut self, waiter: Waiter) -> Result<(), Rejection> {
        let (xid, reply_to) = (waiter.xid, waiter.reply_to);
        let id = self.rows.enqueue(waiter);
        self.waiting.enter(reply_to, Awaited::Locks(id), self.on.asker);
        // There was no cycle before, so one there is goes through this request.
        match xid.and_then(|xid| self.graph().find_cycle(xid)) {
            Some(cycle) => {
                let rejection = self.deadlock(&cycle);
                // The queues are again as they were before it came, so no other request's turn
                // comes by this.
                self.leave_queues(id, &mut Touched::new());
                Err(rejection)
            }
            None => Ok(()),
        }
    }

    /// Acquires a named lock. If the global that asks has to wait, it stands in the same wait-for
    /// graph as for rows.
    pub(crate) fn acquire_named_lock(
        &mut self,
        to: Option<Correlation>,
        wanted: NewLease,
    ) -> HandlerResult {
        self.named_locks().check_lengths(&wanted)?;
        let xid = wanted.xid;
        xid.map_or(Ok(()), |xid| self.undecided(xid).map(drop))?;
        let turn = match self.named_locks().acquire(to, wanted)? {
            Acquired::Answered(reply) => return Ok(Some(reply)),
            Acquired::Waits => return Ok(None),
            Acquired::Queued(turn) => turn,
        };
        // There was no cycle before, so one there is goes through this request.
        match xid.and_then(|xid| self.graph().find_cycle(xid)) {
            Some(cycle) => {
                let rejection = self.deadlock(&cycle);
                self.leases.dequeue(turn);
                Err(rejection)
            }
            None => Ok(None),
        }
    }

    /// Refuses a request that closes a cycle, and remembers the cycle while it is there.
    pub(crate) fn deadlock(&mut self, cycle: &[Xid]) -> Rejection {
        self.log_deadlock(cycle);
        let member = |&xid: &Xid| (xid, self.address_of(xid));
        Rejection::Deadlock { cycle: cycle.iter().map(member).collect() }
    }

    // ---- leaving ----

    /// Takes a request out of all queues; its rows are to be settled.
    pub(crate) fn leave_queues(&mut self, id: WaitId, touched: &mut Touched) -> Option<Waiter> {
        let waiter = self.rows.dequeue(id, touched)?;
        self.waiting.leave(waiter.reply_to, Awaited::Locks(id));
        Some(waiter)
    }

    /// Takes a request out of all queues and tells it why.
    pub(crate) fn refuse(&mut self, id: WaitId, rejection: Rejection, touched: &mut Touched) {
        if let Some(waiter) = self.leave_queues(id, touched) {
            self.note_refused_wait(&waiter, &rejection);
            self.on.reply(Some(waiter.reply_to), Reply::Rejected(rejection));
        }
    }

    /// Refuses a request whose time is up.
    pub(crate) fn expire_waiter(&mut self, id: WaitId, touched: &mut Touched) {
        let Some(waiter) = self.rows.waiters.get(id) else { return };
        let blocker = self.rows.blocker(waiter.xid, &waiter.rows, id);
        let rejection = self.row_locked(blocker.expect("QUEUE: only blocked requests wait"));
        self.refuse(id, rejection, touched);
    }

    /// Refuses the requests that hold locks of a database and wait for a global that itself waits
    /// in this very database: it may wait for theirs, and neither would ever go on. The database
    /// sees one half of such a cycle and the wait-for graph the other. Only the database could tell
    /// which of them is in the way, so each is taken for it.
    pub(crate) fn report_database_wait(&mut self, xid: Xid, resource: &str) -> HandlerResult {
        if self.globals.get(xid).is_none() {
            return Err(self.finished_or_unknown(xid));
        }
        let (mut apart, mut touched) = (BTreeSet::new(), Touched::new());
        let holding: Vec<WaitId> = self.rows.waiters.with_database_locks().collect();
        for id in holding {
            if self.is_in_the_way(id, xid, resource, &mut apart) {
                self.expire_waiter(id, &mut touched);
            }
        }
        self.settle(touched);
        Ok(Some(Reply::Reported))
    }

    /// Returns whether a request of another global may keep a statement of `xid` waiting in the
    /// database, and itself waits for `xid`.
    fn is_in_the_way(
        &self,
        id: WaitId,
        xid: Xid,
        resource: &str,
        apart: &mut BTreeSet<Xid>,
    ) -> bool {
        let Some(waiter) = self.rows.waiters.get(id) else { return false };
        let holds_there = waiter
            .rows
            .first()
            .is_some_and(|row| *self.rows.table.space(row.lock).resource == *resource);
        waiter.xid != Some(xid)
            && holds_there
            && self.graph().leads_to(self.rows.blockers_of_request(id), xid, apart)
    }

    /// Refuses the unfit ones of the requests that wait for a row of a global that starts to roll
    /// back, or to need an operator.
    pub(crate) fn refuse_unfit_waiters(
        &mut self,
        xid: Xid,
        held: &[LockId],
        unfit: Unfit,
        touched: &mut Touched,
    ) {
        for &lock in held {
            // The next place is looked up each time: a refusal takes a request out of this very
            // queue.
            let mut after = None;
            while let Some((place, claim)) = self.rows.table.next_claim(lock, after) {
                after = Some(place);
                // A request may also wait behind other requests alone, and share the row with this
                // holder.
                let waits_for_it = self
                    .rows
                    .table
                    .conflicting_holders(lock, claim.xid, claim.mode)
                    .any(|holder| holder.xid == xid);
                let waiter = self.rows.waiters.get(place.id);
                let is_unfit = |waiter: &Waiter| match unfit {
                    Unfit::WithDatabaseLocks => waiter.holding == Holding::DatabaseLocks,
                    Unfit::All => true,
                };
                if waits_for_it && waiter.is_some_and(is_unfit) {
                    let rejection = self.row_locked(Blocker { lock, by: xid });
                    self.refuse(place.id, rejection, touched);
                }
            }
        }
    }

    // ---- going on ----

    /// Grants every request whose turn it is, and frees the slots that are not needed. `touched`
    /// are the rows that were released or are no longer waited for.
    pub(crate) fn settle(&mut self, mut touched: Touched) {
        if self.rows.waiters.is_idle() {
            return touched.into_iter().for_each(|lock| self.rows.table.reclaim(lock));
        }
        // QUEUE: a grant takes its request out of other queues, whose rows are looked at in turn.
        while let Some(lock) = touched.pop() {
            let mut after = None;
            while let Some((place, _)) = self.rows.table.next_claim(lock, after) {
                let is_newcomer = matches!(place.rank, Rank::Newcomer(_));
                // Behind a newcomer are newcomers alone.
                if is_newcomer && self.rows.table.is_closed(lock, place) {
                    break;
                }
                after = Some(place);
                if self.rows.is_next(place.id) {
                    self.grant(place.id, &mut touched);
                }
            }
            self.rows.table.reclaim(lock);
        }
    }

    fn grant(&mut self, id: WaitId, touched: &mut Touched) {
        let Some(waiter) = self.leave_queues(id, touched) else { return };
        let to = Some(waiter.reply_to);
        let waited = self.wait_event(&waiter, "rows granted");
        match waiter.goal {
            WaitGoal::Check(_) => self.on.reply(to, Reply::Unlocked),
            WaitGoal::Join(xid, pending) => {
                let waited = Given::AfterAWait(waited);
                let joined = self.join(xid, pending, &waiter.rows, waited);
                self.on.reply(to, joined.unwrap_or_else(Reply::Rejected));
                self.after_change_of_rows(xid, touched);
            }
        }
    }

    /// Keeps the other waiting requests of a global right when it got rows or released some.
    ///
    /// Their rank follows what the global holds. Every wait-for edge that this adds starts or ends
    /// at the global, so a cycle that appears goes through it: its own requests give way.
    pub(crate) fn after_change_of_rows(&mut self, xid: Xid, touched: &mut Touched) {
        let ids: Vec<_> = self.rows.waiters.of_global(xid).collect();
        for &id in &ids {
            self.rank_again(xid, id, touched);
        }
        while let Some(cycle) = self.graph().find_cycle(xid) {
            let next = cycle.get(1).copied().unwrap_or(xid);
            let rejection = self.deadlock(&cycle);
            let closes = |id: &&WaitId| self.rows.blockers_of_request(**id).contains(&next);
            if let Some(&id) = ids.iter().rev().find(closes) {
                self.refuse(id, rejection, touched);
            } else if !self.named_locks().refuse_turn_towards(xid, next, rejection) {
                // Each edge out of the global is one of its own requests, so one of them led into
                // the cycle. A graph that broke this rule must not keep the search going forever.
                return;
            }
        }
    }

    fn rank_again(&mut self, xid: Xid, id: WaitId, touched: &mut Touched) {
        let Some(since) = self.rows.waiters.get(id).map(|waiter| waiter.since) else { return };
        let waits_from = self.globals.waits_from(Some(xid), since);
        let Some(waiter) = self.rows.waiters.get_mut(id) else { return };
        for place in 0..waiter.rows.len() {
            let row = waiter.rows[place];
            let rank = self.rows.table.rank(row.lock, Some(xid), waits_from);
            if rank != row.rank {
                let claim = waiter.claim(row.mode);
                self.rows.table.dequeue(row.lock, row.place(id));
                waiter.rows[place].rank = rank;
                self.rows.table.enqueue(row.lock, waiter.rows[place].place(id), claim);
                // With another rank it may be next, or may have left another request's way free.
                touched.push(row.lock);
            }
        }
    }
}
