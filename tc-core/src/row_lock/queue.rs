//! Waiting for locks: who must wait, who is next, who is refused.
//!
//! A request takes all its rows at once or none. It is its turn when no other global holds one of
//! them in a conflicting mode and no request before it in a row's queue, its own global's included,
//! wants to. A queue is in order of arrival, but for a head start of globals that hold rows. Nobody
//! waits for a check, which takes nothing. QUEUE: when `settle` is done, no request whose turn it
//! is waits, and none for a row that is free only when an operator has come.

use super::table::{LockId, Rank, Touched, WaitId};
use super::waiters::{Waiter, Want, WantedRow, WantedRows};
use crate::contract::{Correlation, Holding, LockWait, Outcome, Rejection, Reply, Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::reply::{Answer, push_reply};

#[cfg(test)]
mod tests;

/// By how much a request of a global that holds rows counts as earlier, in milliseconds. Too short:
/// globals that lock rows in opposite order are refused one after the other; too long: who comes
/// with nothing waits for as long.
const HEAD_START_MS: u64 = 1_000;

/// Which requests must not wait for a global that rolls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Those that hold database locks, which the rollback may need.
    WithDatabaseLocks,
    /// All: the rollback waits for an operator.
    Anybody,
}

/// A row that a request cannot have yet, and who is in the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocker {
    lock: LockId,
    by: Xid,
}

impl Coordinator {
    /// What keeps a request from being granted. Holders are named before those who wait as well.
    pub(crate) fn blocker(
        &self,
        xid: Option<Xid>,
        rows: &[WantedRow],
        id: WaitId,
    ) -> Option<Blocker> {
        let holder = |row: &WantedRow| {
            let by = self.holder_in_the_way(xid, row)?;
            Some(Blocker { lock: row.lock, by })
        };
        let waiter = |row: &WantedRow| {
            let by = self.waiter_in_the_way(xid, row, id)?;
            Some(Blocker { lock: row.lock, by })
        };
        rows.iter().find_map(holder).or_else(|| rows.iter().find_map(waiter))
    }

    fn holder_in_the_way(&self, xid: Option<Xid>, row: &WantedRow) -> Option<Xid> {
        let mut holders = self.locks.conflicting_holders(row.lock, xid, row.mode);
        holders.next().map(|holder| holder.xid)
    }

    fn waiter_in_the_way(&self, xid: Option<Xid>, row: &WantedRow, id: WaitId) -> Option<Xid> {
        if self.locks.covers(row.lock, xid, row.mode) {
            return None;
        }
        self.locks.blocking_claim(row.lock, row.place(id), row.mode)?.xid
    }

    /// From when on a request that came at `since` counts as waiting.
    ///
    /// A global that holds rows has others waiting for it, and one that wants the row at hand is
    /// soon done: before those who hold nothing it can finish. Behind them it would wait for all of
    /// them, and each of them that wants one of its rows next would close a cycle. The head start
    /// is a length of time, so that whoever holds nothing has its turn as well.
    pub(crate) fn waits_from(&self, xid: Option<Xid>, since: Timestamp) -> Timestamp {
        let global = xid.and_then(|xid| self.globals.get(xid));
        let holds_rows = global.is_some_and(|global| global.locks().next().is_some());
        if holds_rows { since.before_ms(HEAD_START_MS) } else { since }
    }

    /// Puts a blocked request into the queues of its rows, or refuses it and leaves nothing behind.
    pub(crate) fn wait_or_refuse(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        want: Want,
        rows: WantedRows,
        wait: LockWait,
        blocker: Blocker,
    ) -> Answer {
        let xid = want.xid();
        let locks: Touched = rows.iter().map(|row| row.lock).collect();
        let waits = self.may_wait(to, xid, &rows, wait, blocker).and_then(|reply_to| {
            let (holding, since) = (wait.holding, now);
            let deadline = now.after_ms(wait.timeout_ms.min(self.limits.wait_ms_max));
            let blocked_at = rows.iter().position(|row| row.lock == blocker.lock).unwrap_or(0);
            let owner = self.owner_of(xid);
            let waiter =
                Waiter { reply_to, xid, owner, want, rows, blocked_at, holding, since, deadline };
            self.line_up(waiter)
        });
        if let Err(rejection) = waits {
            locks.into_iter().for_each(|lock| self.locks.reclaim(lock));
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
        if let Some(stuck) = self.stuck_holder(xid, rows) {
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
            let mut holders = self.locks.conflicting_holders(row.lock, xid, row.mode);
            let holder = holders.find(|holder| self.is_rolling_back(holder.xid))?;
            Some(Blocker { lock: row.lock, by: holder.xid })
        })
    }

    /// A holder that lets go only when an operator has come.
    pub(crate) fn stuck_holder(&self, xid: Option<Xid>, rows: &[WantedRow]) -> Option<Blocker> {
        rows.iter().find_map(|row| {
            let mut holders = self.locks.conflicting_holders(row.lock, xid, row.mode);
            let holder = holders.find(|it| self.is_stuck(it.xid, it.sequence))?;
            Some(Blocker { lock: row.lock, by: holder.xid })
        })
    }

    fn is_stuck(&self, xid: Xid, sequence: u32) -> bool {
        self.globals.get(xid).is_some_and(|global| global.is_stuck(sequence))
    }

    pub(crate) fn is_rolling_back(&self, xid: Xid) -> bool {
        self.globals.get(xid).is_some_and(|global| global.is_rolling_back())
    }

    pub(crate) fn row_locked(&self, Blocker { lock, by }: Blocker) -> Rejection {
        let (table, key) = (self.locks.space(lock).table.clone(), self.locks.key(lock).into());
        let by_address = self.address_of(by);
        let mut holders = self.locks.holders(lock).filter(|holder| holder.xid == by);
        if holders.any(|holder| self.is_stuck(by, holder.sequence)) {
            return Rejection::RowNeedsOperator { table, key, by, by_address };
        }
        let holder_rolling_back = self.is_rolling_back(by);
        Rejection::RowLocked { table, key, by, by_address, holder_rolling_back }
    }

    /// Adds the request to the queues, unless that closes a cycle.
    fn line_up(&mut self, waiter: Waiter) -> Result<(), Rejection> {
        let id = self.waits.next_id();
        for row in &waiter.rows {
            self.locks.line_up(row.lock, row.place(id), waiter.claim(row.mode));
        }
        let xid = waiter.xid;
        self.waits.add(id, waiter, &self.asker);
        // There was no cycle before, so one there is goes through this request.
        match xid.and_then(|xid| self.find_cycle(xid)) {
            Some(cycle) => {
                self.leave_queues(id, &mut Touched::new());
                Err(self.deadlock(&cycle))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn deadlock(&self, cycle: &[Xid]) -> Rejection {
        let member = |&xid: &Xid| (xid, self.address_of(xid));
        Rejection::Deadlock { cycle: cycle.iter().map(member).collect() }
    }

    // ---- leaving ----

    /// Takes a request out of all queues; its rows are to be settled.
    pub(crate) fn leave_queues(&mut self, id: WaitId, touched: &mut Touched) -> Option<Waiter> {
        let waiter = self.waits.remove(id)?;
        for row in &waiter.rows {
            self.locks.step_out(row.lock, row.place(id));
            touched.push(row.lock);
        }
        Some(waiter)
    }

    /// Takes a request out of all queues and tells it why.
    pub(crate) fn refuse(
        &mut self,
        id: WaitId,
        rejection: Rejection,
        touched: &mut Touched,
        out: &mut Outcome,
    ) {
        if let Some(waiter) = self.leave_queues(id, touched) {
            push_reply(out, Some(waiter.reply_to), Reply::Rejected(rejection));
        }
    }

    /// Refuses a request whose time is up.
    pub(crate) fn expire_waiter(&mut self, id: WaitId, touched: &mut Touched, out: &mut Outcome) {
        let Some(waiter) = self.waits.get(id) else { return };
        let blocker = self.blocker(waiter.xid, &waiter.rows, id);
        let rejection = self.row_locked(blocker.expect("QUEUE: only blocked requests wait"));
        self.refuse(id, rejection, touched, out);
    }

    /// Refuses the unfit ones of the requests that wait for a row of a global that starts to roll
    /// back, or to need an operator.
    pub(crate) fn fail_fast(
        &mut self,
        xid: Xid,
        held: &[LockId],
        unfit: Unfit,
        touched: &mut Touched,
        out: &mut Outcome,
    ) {
        for &lock in held {
            let mut after = None;
            while let Some((place, claim)) = self.locks.next_claim(lock, after) {
                after = Some(place);
                let waits_for_it = self
                    .locks
                    .conflicting_holders(lock, claim.xid, claim.mode)
                    .any(|holder| holder.xid == xid);
                let waiter = self.waits.get(place.id);
                let is_unfit = |waiter: &Waiter| match unfit {
                    Unfit::WithDatabaseLocks => waiter.holding == Holding::DatabaseLocks,
                    Unfit::Anybody => true,
                };
                if waits_for_it && waiter.is_some_and(is_unfit) {
                    let rejection = self.row_locked(Blocker { lock, by: xid });
                    self.refuse(place.id, rejection, touched, out);
                }
            }
        }
    }

    // ---- going on ----

    /// Grants every request whose turn it is, and frees the slots that are not needed. `touched`
    /// are the rows that somebody let go of or stopped waiting for.
    pub(crate) fn settle(&mut self, now: Timestamp, mut touched: Touched, out: &mut Outcome) {
        if self.waits.is_idle() {
            return touched.into_iter().for_each(|lock| self.locks.reclaim(lock));
        }
        while let Some(lock) = touched.pop() {
            let mut after = None;
            while let Some((place, _)) = self.locks.next_claim(lock, after) {
                let is_newcomer = matches!(place.rank, Rank::Newcomer(_));
                // Behind a newcomer are newcomers alone.
                if is_newcomer && self.locks.is_closed(lock, place) {
                    break;
                }
                after = Some(place);
                if self.is_next(place.id) {
                    self.grant(now, place.id, &mut touched, out);
                }
            }
            self.locks.reclaim(lock);
        }
    }

    /// Whether nothing is in its way. A request for many rows is looked at once for each of them
    /// that somebody let go of, so the row that it could not have comes first.
    fn is_next(&mut self, id: WaitId) -> bool {
        let Some(waiter) = self.waits.get(id) else { return false };
        let is_blocked = |row: &WantedRow| {
            #[cfg(test)]
            tests::count_a_look();
            self.holder_in_the_way(waiter.xid, row).is_some()
                || self.waiter_in_the_way(waiter.xid, row, id).is_some()
        };
        if waiter.rows.get(waiter.blocked_at).is_some_and(is_blocked) {
            return false;
        }
        let Some(at) = waiter.rows.iter().position(is_blocked) else { return true };
        if let Some(waiter) = self.waits.get_mut(id) {
            waiter.blocked_at = at;
        }
        false
    }

    fn grant(&mut self, now: Timestamp, id: WaitId, touched: &mut Touched, out: &mut Outcome) {
        let Some(waiter) = self.leave_queues(id, touched) else { return };
        let to = Some(waiter.reply_to);
        match waiter.want {
            Want::Check(_) => push_reply(out, to, Reply::Unlocked),
            Want::Join(xid, joining) => {
                let joined = self.join(now, xid, joining, &waiter.rows, None, out);
                let granted = |token| Reply::Registered { token };
                push_reply(out, to, joined.map_or_else(Reply::Rejected, granted));
                self.after_change_of_rows(now, xid, touched, out);
            }
        }
    }

    /// Keeps the other waiting requests of a global right when it got rows or let go of some.
    ///
    /// Their rank follows what the global holds. Every wait-for edge that this adds starts or ends
    /// at the global, so a cycle that appears goes through it: its own requests give way.
    pub(crate) fn after_change_of_rows(
        &mut self,
        now: Timestamp,
        xid: Xid,
        touched: &mut Touched,
        out: &mut Outcome,
    ) {
        let ids: Vec<_> = self.waits.of_global(xid).collect();
        for &id in &ids {
            self.rank_again(xid, id, touched);
        }
        while let Some(cycle) = self.find_cycle(xid) {
            let next = cycle.get(1).copied().unwrap_or(xid);
            let closes = |id: &&WaitId| self.blockers_of_request(**id).contains(&next);
            let rejection = self.deadlock(&cycle);
            if let Some(&id) = ids.iter().rev().find(closes) {
                self.refuse(id, rejection, touched, out);
            } else if !self.refuse_turn_towards(now, xid, next, rejection, out) {
                return;
            }
        }
    }

    fn rank_again(&mut self, xid: Xid, id: WaitId, touched: &mut Touched) {
        let Some(since) = self.waits.get(id).map(|waiter| waiter.since) else { return };
        let waits_from = self.waits_from(Some(xid), since);
        let Some(waiter) = self.waits.get_mut(id) else { return };
        for place in 0..waiter.rows.len() {
            let row = waiter.rows[place];
            let rank = self.locks.rank(row.lock, Some(xid), waits_from);
            if rank != row.rank {
                let claim = waiter.claim(row.mode);
                self.locks.step_out(row.lock, row.place(id));
                waiter.rows[place].rank = rank;
                self.locks.line_up(row.lock, waiter.rows[place].place(id), claim);
                touched.push(row.lock);
            }
        }
    }
}
