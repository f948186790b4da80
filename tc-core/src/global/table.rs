//! The unfinished globals, with what must always agree with them: deadlines and counts.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{Global, Phase};
use crate::collections::packed_set::PackedSet;
use crate::collections::xid_map::XidMap;
use crate::contract::{Change, ClientId, Counts, Outcome, Record, Timestamp, Xid};
use crate::restart::Restart;
use crate::row_lock::row_locks::{Blocker, RowLocks};
use crate::row_lock::waiters::WantedRow;
use crate::shares::ShareTally;

/// By how much a request of a global that holds rows counts as earlier, in milliseconds. Too short:
/// globals that lock rows in opposite order are refused one after the other; too long: a client
/// that holds nothing waits that much longer.
const HEAD_START_MS: u64 = 1_000;

/// Every unfinished global. Changes go through [`GlobalTable::change`], so that exactly the
/// undecided ones are in the deadline set (DEADLINE), but for those whose time is over and whose
/// last branch decides, and the counts are right.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalTable {
    by_xid: XidMap<Global>,
    deadlines: PackedSet<(Timestamp, Xid)>,
    counts: Counts,
    open: ShareTally,
    rows: ShareTally,
    /// The globals without a branch, by client, if the client is known.
    without_branch: BTreeMap<ClientId, BTreeSet<Xid>>,
    /// The globals that need an operator, who looks for them among very many.
    needing: BTreeSet<Xid>,
}

impl GlobalTable {
    pub(crate) fn len(&self) -> usize {
        self.by_xid.len()
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&Global> {
        self.by_xid.get(xid)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Global> {
        self.by_xid.iter()
    }

    /// Oldest XIDs first, from `first` on.
    pub(crate) fn oldest_from(&self, first: Xid) -> impl Iterator<Item = &Global> {
        self.by_xid.from(first)
    }

    /// Newest XIDs first, from below `before`.
    pub(crate) fn newest_before(&self, before: Xid) -> impl Iterator<Item = &Global> {
        self.by_xid.below(before)
    }

    pub(crate) fn insert(&mut self, global: Global) {
        self.counts.enter(global.counted());
        self.needing.extend(global.needs_operator().then_some(global.xid));
        self.open.enter(global.client(), &global.origin.application, 1);
        self.rows.enter(global.client(), &global.origin.application, global.rows as usize);
        self.note_without_branch(&global);
        if global.phase == Phase::Active && !global.asks_its_last {
            self.deadlines.insert((global.deadline, global.xid));
        }
        self.by_xid.insert(global.xid, global);
    }

    pub(crate) fn remove(&mut self, xid: Xid) -> Option<Box<Global>> {
        let global = self.by_xid.remove(xid)?;
        self.counts.leave(global.counted());
        if global.needs_operator() {
            self.needing.remove(&xid);
        }
        self.open.leave(global.client(), &global.origin.application, 1);
        self.rows.leave(global.client(), &global.origin.application, global.rows as usize);
        self.forget_without_branch(global.client(), xid);
        if global.phase == Phase::Active {
            self.deadlines.remove(&(global.deadline, xid));
        }
        Some(global)
    }

    /// Changes a global; `None` if it is not there.
    pub(crate) fn change<T>(
        &mut self,
        xid: Xid,
        change: impl FnOnce(&mut Global) -> T,
    ) -> Option<T> {
        let global = self.by_xid.get_mut(xid)?;
        let (was, was_stored, rows) = (global.phase, global.stored, global.rows);
        let was_needing = global.needs_operator();
        self.counts.leave(global.counted());
        let result = change(global);
        self.counts.enter(global.counted());
        if global.rows != rows {
            let application = &global.origin.application;
            self.rows.leave(global.client(), application, rows as usize);
            self.rows.enter(global.client(), application, global.rows as usize);
        }
        // DEADLINE: no phase leads back to `Active`, so nothing is ever added here.
        if was == Phase::Active && global.phase != Phase::Active {
            self.deadlines.remove(&(global.deadline, xid));
        }
        let is_needing = global.needs_operator();
        let (client, is_stored) = (global.client(), global.stored);
        if is_stored && !was_stored {
            self.forget_without_branch(client, xid);
        }
        if is_needing && !was_needing {
            self.needing.insert(xid);
        } else if was_needing && !is_needing {
            self.needing.remove(&xid);
        }
        Some(result)
    }

    /// The globals that need an operator: newest XIDs first, from below `before`.
    pub(crate) fn needing_before(&self, before: Xid) -> impl Iterator<Item = Xid> {
        self.needing.range(..before).rev().copied()
    }

    /// The globals that need an operator: oldest XIDs first, from `first` on.
    pub(crate) fn needing_from(&self, first: Xid) -> impl Iterator<Item = Xid> {
        self.needing.range(first..).copied()
    }

    /// Returns whether the set of the globals that need an operator, made again, agrees.
    pub(crate) fn needing_is_consistent(&self) -> bool {
        let needing = self.by_xid.iter().filter(|global| global.needs_operator());
        needing.map(|global| global.xid).eq(self.needing.iter().copied())
    }

    /// Returns the time from which a request that came at `since` counts as waiting.
    ///
    /// Other globals wait for a global that holds rows. Ahead of globals that hold nothing it can
    /// finish soon. Behind them it would wait for all of them, and each of them that wants one of
    /// its rows next would close a cycle. The head start is limited in time, so that a global that
    /// holds nothing has its turn as well.
    pub(crate) fn waits_from(&self, xid: Option<Xid>, since: Timestamp) -> Timestamp {
        let global = xid.and_then(|xid| self.get(xid));
        let holds_rows = global.is_some_and(|global| global.rows > 0);
        if holds_rows { since.before_ms(HEAD_START_MS) } else { since }
    }

    /// Stores a global as it is.
    pub(crate) fn put(&mut self, xid: Xid, out: &mut Outcome) {
        let put = |global: &mut Global| {
            global.stored = true;
            out.changes.push(Change::Put(Record::Global(global.record())));
        };
        self.change(xid, put);
    }

    pub(crate) fn is_rolling_back(&self, xid: Xid) -> bool {
        self.get(xid).is_some_and(Global::is_rolling_back)
    }

    /// Returns whether the rows of a branch are released only after an operator has acted.
    pub(crate) fn is_stuck(&self, xid: Xid, sequence: u32) -> bool {
        self.get(xid).is_some_and(|global| global.is_stuck(sequence))
    }

    /// A holder of a wanted row that releases it only after an operator has acted.
    pub(crate) fn stuck_holder(
        &self,
        rows: &RowLocks,
        xid: Option<Xid>,
        wanted: &[WantedRow],
    ) -> Option<Blocker> {
        wanted.iter().find_map(|row| {
            let mut holders = rows.table.conflicting_holders(row.lock, xid, row.mode);
            let holder = holders.find(|it| self.is_stuck(it.xid, it.sequence))?;
            Some(Blocker { lock: row.lock, by: holder.xid })
        })
    }

    /// Gives each undecided global what the restart leaves of its time.
    pub(crate) fn resume(&mut self, restart: Restart) {
        // `change` keeps the set by the phase alone, and here the deadline itself moves.
        let undecided = std::mem::take(&mut self.deadlines);
        for &(_, xid) in undecided.iter() {
            let Some(global) = self.by_xid.get_mut(xid) else { continue };
            let begun_at = restart.no_later(global.begun_at);
            global.deadline = restart.end_of(begun_at, global.timeout_ms);
            self.deadlines.insert((global.deadline, xid));
        }
    }

    /// Takes note that the time of a global is over, and that its last branch decides.
    pub(crate) fn leave_to_its_last_branch(&mut self, xid: Xid) {
        let deadline = self.change(xid, |global| {
            global.asks_its_last = true;
            global.deadline
        });
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, xid));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The undecided global whose deadline is the first to have passed.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<Xid> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, xid)| xid)
    }

    /// Returns the number of unfinished globals, by owner.
    pub(crate) fn open(&self) -> &ShareTally {
        &self.open
    }

    /// Returns the number of rows that they hold, by owner.
    pub(crate) fn rows(&self) -> &ShareTally {
        &self.rows
    }

    /// Returns the oldest global of a client that has neither a branch nor a record.
    pub(crate) fn first_without_branch(&self, client: ClientId) -> Option<Xid> {
        self.without_branch.get(&client)?.first().copied()
    }

    fn note_without_branch(&mut self, global: &Global) {
        if !global.stored && global.client() != ClientId::default() {
            self.without_branch.entry(global.client()).or_default().insert(global.xid);
        }
    }

    fn forget_without_branch(&mut self, client: ClientId, xid: Xid) {
        let Some(own) = self.without_branch.get_mut(&client) else { return };
        own.remove(&xid);
        if own.is_empty() {
            self.without_branch.remove(&client);
        }
    }

    /// Returns whether the shares, counted again from the globals, agree.
    pub(crate) fn shares_are_consistent(&self) -> bool {
        let mut rebuilt = Self::default();
        for global in self.by_xid.iter() {
            rebuilt.open.enter(global.client(), &global.origin.application, 1);
            rebuilt.rows.enter(global.client(), &global.origin.application, global.rows as usize);
            rebuilt.note_without_branch(global);
        }
        let agree = rebuilt.open == self.open && rebuilt.rows == self.rows;
        agree && rebuilt.without_branch == self.without_branch
    }

    pub(crate) fn deadlines(&self) -> impl Iterator<Item = &(Timestamp, Xid)> {
        self.deadlines.iter()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}
