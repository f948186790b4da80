//! The certain facts: the durable records, and what local transactions did.
//!
//! The judge writes it from synced batches and from COMMITs of the model databases, and never from
//! what a coordinator or a client reports.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{
    BranchId, BranchRecord, Change, Decision, DeltaTag, FencingToken, GlobalRecord, GlobalState,
    LockMode, Record, RecordKey, SagaRecord, Xid, XidText,
};
use handfast_proto::v1::RegisterBranchRequest;
use handfast_rm_core::fence;

use crate::model::observation::GuardedWrite;
use crate::model::values::{EventId, EventRow, RowChanges, RowId, Seq, TableGuard, Undo, UndoItem};
use crate::world::SECOND;

/// How long after it was put on a guard is in effect, as the product promises.
const IN_EFFECT_AFTER: i64 = 120 * SECOND.cast_signed();
/// When all branches that commit locally come from processes that have known of a guard: a
/// description is trusted for a minute, and no local transaction of a run lasts for half of one.
const KNOWN_AFTER: i64 = 90 * SECOND.cast_signed();

/// A branch, in any database.
pub(crate) type BranchKey = (Xid, BranchId);

/// A row as the coordinator locks it: resource, table, key.
pub(crate) type LockedRow = (String, String, Vec<u8>);

/// A row lock that a branch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldRow {
    pub(crate) mode: LockMode,
    pub(crate) token: FencingToken,
}

/// The local transaction of a branch in AT mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) database: usize,
    /// The change of each row's value.
    pub(crate) deltas: Vec<(RowId, i64)>,
    pub(crate) state: BranchState,
    pub(crate) committed_at: u64,
    /// When its undo row was deleted.
    pub(crate) ended_at: Option<u64>,
}

impl Effect {
    fn has_changed(&self, database: usize, row: RowId) -> bool {
        self.database == database && self.deltas.iter().any(|(changed, _)| *changed == row)
    }

    /// Returns whether it has held a row at that time or since.
    pub(crate) fn has_held(&self, database: usize, row: RowId, since: u64) -> bool {
        self.has_changed(database, row) && self.ended_at.is_none_or(|ended| ended >= since)
    }
}

/// The operations of a branch under a fence, all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FencedEffect {
    pub(crate) database: usize,
    pub(crate) state: fence::FenceState,
    /// The change of each row's value.
    pub(crate) deltas: BTreeMap<RowId, i64>,
}

/// An event that was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Emitted {
    pub(crate) database: usize,
    pub(crate) seq: Seq,
    pub(crate) key: u32,
    pub(crate) branch: BranchKey,
    /// Whether a consumer's local transaction has applied it.
    pub(crate) took_effect: bool,
}

/// The state of a local transaction's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchState {
    /// Committed locally: its undo row is there.
    Applied,
    /// Committed globally: its undo row is gone.
    Kept,
    /// Rolled back: its rows are restored.
    Restored,
}

/// The ledger of one run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The time of the observation, in microseconds.
    pub(crate) now: u64,
    /// How often a coordinator has taken the lead.
    pub(crate) leads: u64,
    pub(crate) globals: BTreeMap<Xid, GlobalRecord>,
    pub(crate) branches: BTreeMap<BranchKey, BranchRecord>,
    /// Every branch that was ever stored.
    pub(crate) registered: BTreeSet<BranchKey>,
    /// Those of them whose local commit was to decide their global.
    pub(crate) deciding: BTreeSet<BranchKey>,
    /// Branches that were told so before they were stored, each the only one of its global, with
    /// the counters that it changes.
    told_ahead: BTreeMap<BranchKey, BTreeMap<LockedRow, LockMode>>,
    pub(crate) locks: BTreeMap<LockedRow, BTreeMap<BranchKey, HeldRow>>,
    pub(crate) effects: BTreeMap<BranchKey, Effect>,
    pub(crate) guards: BTreeSet<(usize, BranchKey)>,
    pub(crate) sagas: BTreeMap<Xid, SagaRecord>,
    pub(crate) fenced: BTreeMap<BranchKey, FencedEffect>,
    /// Branches that are prepared and have not ended.
    pub(crate) prepared: BTreeSet<BranchKey>,
    /// The numbers of prepared branches that were committed and rolled back.
    pub(crate) prepared_ended: (u64, u64),
    pub(crate) events: BTreeMap<EventId, Emitted>,
    /// The change of each row's value by what is never undone: prepared branches that committed,
    /// effects of events, and writes from outside.
    pub(crate) permanent: BTreeMap<(usize, RowId), i64>,
    /// The part of it that comes from outside.
    pub(crate) outside: BTreeMap<(usize, RowId), i64>,
    /// How many writes from outside guards have let pass, and refused.
    pub(crate) outside_writes: (u64, u64),
    /// Rows that are being written from outside although a branch without a guard holds them.
    unprotected: BTreeSet<(usize, RowId)>,
}

impl Ledger {
    /// Returns the durable decision of a global.
    pub(crate) fn decision(&self, xid: Xid) -> Option<Decision> {
        decision_of(self.globals.get(&xid)?.state)
    }

    /// Returns whether a global is committed: by its record, or by the local commit of its last
    /// branch, which no record tells of yet (LAST-BRANCH).
    pub(crate) fn is_committed(&self, xid: Xid) -> bool {
        let branches = (xid, BranchId(0))..=(xid, BranchId(u64::MAX));
        let is_deciding = |key: &BranchKey| {
            let record = self.branches.get(key);
            record.is_some_and(|it| it.state == handfast_core::BranchState::Deciding)
                || self.is_unstored(*key)
        };
        self.decision(xid).map_or_else(
            || self.effects.range(branches).any(|(key, _)| is_deciding(key)),
            |decision| decision == Decision::Commit,
        )
    }

    /// Returns whether a branch was told that it decides, and is not stored: a crash takes it from
    /// the coordinators.
    pub(crate) fn is_unstored(&self, branch: BranchKey) -> bool {
        self.told_ahead.contains_key(&branch) && !self.registered.contains(&branch)
    }

    /// Returns how many branches were told before they were stored, and how many of them never
    /// were.
    pub(crate) fn told_ahead(&self) -> [u64; 2] {
        let unstored = self.told_ahead.keys().filter(|key| self.is_unstored(**key)).count();
        [self.told_ahead.len() as u64, unstored as u64]
    }

    /// Enters that a branch is told that it decides its global.
    pub(crate) fn tell(&mut self, request: &RegisterBranchRequest) {
        let key = branch_key(&request.xid, request.branch_id);
        if let Some(key) = key.filter(|key| !self.registered.contains(key)) {
            let counters = request.rows.iter().filter(|rows| rows.delta_tag != 0);
            let counters = counters.flat_map(|rows| {
                let mode = LockMode::Delta(DeltaTag::new(rows.delta_tag));
                let resource = &request.resource_id;
                let named = |key: &Vec<u8>| (resource.clone(), rows.table.clone(), key.clone());
                rows.keys.iter().map(move |key| (named(key), mode))
            });
            self.told_ahead.insert(key, counters.collect());
        }
    }

    /// Returns the globals that are not finished.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &GlobalRecord> {
        self.globals.values().filter(|global| !is_finished(global.state))
    }

    /// Returns the number of sagas that have not ended.
    pub(crate) fn unfinished_sagas(&self) -> usize {
        self.sagas.values().filter(|saga| saga.ended_at().is_none()).count()
    }

    /// Returns the number of events of committed globals that have not taken effect.
    pub(crate) fn pending_events(&self) -> usize {
        let due = |event: &&Emitted| self.is_committed(event.branch.0) && !event.took_effect;
        self.events.values().filter(due).count()
    }

    /// Returns whether two globals hold a row of a database together, to add to it in the same way.
    pub(crate) fn add_together(&self, database: usize, row: RowId, one: Xid, other: Xid) -> bool {
        let name = locked_row(database, row);
        let mode = |xid: Xid| {
            let held = self.locks.get(&name).into_iter().flatten();
            let stored = held.filter(|((of, _), _)| *of == xid).map(|(_, held)| held.mode);
            let branches = (xid, BranchId(0))..=(xid, BranchId(u64::MAX));
            let told = self.told_ahead.range(branches).filter_map(|(_, rows)| rows.get(&name));
            let mut modes = stored.chain(told.copied());
            modes.find(|mode| matches!(mode, LockMode::Delta(_)))
        };
        mode(one).is_some() && mode(one) == mode(other)
    }

    /// Returns the branches that hold a row of a database: they have changed it, and their undo
    /// rows are there.
    pub(crate) fn holders(
        &self,
        database: usize,
        row: RowId,
    ) -> impl Iterator<Item = (&BranchKey, &Effect)> {
        let holds = move |effect: &Effect| {
            effect.state == BranchState::Applied && effect.has_changed(database, row)
        };
        self.effects.iter().filter(move |(_, effect)| holds(effect))
    }

    /// Returns whether a guard is in effect and protects what a branch has changed: the branch's
    /// process has known of the guard.
    pub(crate) fn protects(&self, guard: &TableGuard, effect: &Effect) -> bool {
        let (now, committed_at) = (self.now.cast_signed(), effect.committed_at.cast_signed());
        now >= guard.enabled_at + IN_EFFECT_AFTER && committed_at >= guard.enabled_at + KNOWN_AFTER
    }

    /// Returns whether a write from outside that has passed is over a row of a branch that no guard
    /// protects.
    pub(crate) fn is_unprotected(&self, database: usize, row: RowId) -> bool {
        self.unprotected.contains(&(database, row))
    }

    /// Enters what a guard has said to a write.
    pub(crate) fn meet_guard(&mut self, write: &GuardedWrite) {
        let GuardedWrite { database, row, guard, .. } = *write;
        match (write.from_outside, write.refused_for) {
            (true, Some(_)) => self.outside_writes.1 += 1,
            (true, None) => {
                self.outside_writes.0 += 1;
                let protects = |effect| guard.is_some_and(|guard| self.protects(&guard, effect));
                let is_unprotected =
                    self.holders(database, row).any(|(_, effect)| !protects(effect));
                match is_unprotected {
                    true => self.unprotected.insert((database, row)),
                    false => self.unprotected.remove(&(database, row)),
                };
            }
            (false, _) => {}
        }
    }

    /// Enters a durable batch.
    pub(crate) fn store(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Put(Record::Global(global)) => {
                    self.globals.insert(global.xid, global.clone());
                }
                Change::Put(Record::Branch(branch)) => {
                    self.registered.insert((branch.xid, branch.id));
                    if branch.state == handfast_core::BranchState::Deciding {
                        self.deciding.insert((branch.xid, branch.id));
                    }
                    self.branches.insert((branch.xid, branch.id), branch.clone());
                }
                Change::Put(Record::Saga(saga)) => {
                    self.sagas.insert(saga.xid, saga.clone());
                }
                Change::Delete(RecordKey::Saga(xid)) => drop(self.sagas.remove(xid)),
                // No simulated client takes named locks, and no simulated operator moves records.
                Change::Put(Record::Lease(_) | Record::Closure(_))
                | Change::Delete(RecordKey::Lease(_) | RecordKey::Closure) => {}
                Change::Delete(RecordKey::Global(xid)) => drop(self.globals.remove(xid)),
                Change::Delete(RecordKey::Branch(xid, id)) => {
                    // A branch that was registered and removed within one batch leaves only this.
                    self.registered.insert((*xid, *id));
                    self.branches.remove(&(*xid, *id));
                }
            }
        }
        let touched: BTreeSet<Xid> = batch.iter().map(xid_of).collect();
        for xid in touched {
            self.rebuild_locks(xid);
        }
    }

    /// Derives the row locks of a global from its records again.
    fn rebuild_locks(&mut self, xid: Xid) {
        for holders in self.locks.values_mut() {
            holders.retain(|(holder, _), _| *holder != xid);
        }
        self.locks.retain(|_, holders| !holders.is_empty());
        let state = self.globals.get(&xid).map(|global| global.state);
        if !state.is_some_and(holds_locks) {
            return;
        }
        let own = (xid, BranchId(0))..=(xid, BranchId(u64::MAX));
        for (key, branch) in self.branches.range(own) {
            for row in &branch.rows {
                let name = (branch.resource.to_string(), row.table.to_string(), row.key.to_vec());
                let hold = HeldRow { mode: row.mode, token: branch.token };
                self.locks.entry(name).or_default().insert(*key, hold);
            }
        }
    }

    /// Enters a local transaction that committed.
    pub(crate) fn commit(&mut self, database: usize, written: &RowChanges) {
        for (key, before, after) in &written.undo {
            match (before, after) {
                (None, Some(Undo::Log(items))) => {
                    let delta = |item: &UndoItem| (item.row, item.after.value - item.before.value);
                    let deltas = items.iter().map(delta).collect();
                    let (state, committed_at) = (BranchState::Applied, self.now);
                    let effect = Effect { database, deltas, state, committed_at, ended_at: None };
                    self.effects.insert(*key, effect);
                }
                (None, Some(Undo::Guard)) => drop(self.guards.insert((database, *key))),
                (Some(Undo::Log(_)), None) => {
                    if let Some(effect) = self.effects.get_mut(key) {
                        effect.state = branch_state_after(written);
                        effect.ended_at = Some(self.now);
                    }
                }
                (Some(Undo::Guard), None) => drop(self.guards.remove(&(database, *key))),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        for (key, _, after) in &written.fences {
            let fresh = || FencedEffect { database, state: *after, deltas: BTreeMap::new() };
            let effect = self.fenced.entry(*key).or_insert_with(fresh);
            effect.state = *after;
            for (row, before, after) in &written.rows {
                *effect.deltas.entry(*row).or_default() += after.value - before.value;
            }
        }
        if written.prepared.is_some() || !written.inbox.is_empty() || written.from_outside {
            for (row, before, after) in &written.rows {
                let (place, delta) = ((database, *row), after.value - before.value);
                *self.permanent.entry(place).or_default() += delta;
                if written.from_outside {
                    *self.outside.entry(place).or_default() += delta;
                }
            }
        }
        self.commit_events(database, written);
    }

    /// Enters the end of a prepared branch.
    pub(crate) fn end_prepared(&mut self, branch: BranchKey, decision: Decision) {
        self.prepared.remove(&branch);
        match decision {
            Decision::Commit => self.prepared_ended.0 += 1,
            Decision::RollBack => self.prepared_ended.1 += 1,
        }
    }

    fn commit_events(&mut self, database: usize, written: &RowChanges) {
        for (seq, before, after) in &written.events {
            if let (None, Some(EventRow { event, branch, .. })) = (before, after) {
                let (seq, key, branch) = (*seq, event.key, *branch);
                let emitted = Emitted { database, seq, key, branch, took_effect: false };
                self.events.insert(event.id, emitted);
            }
        }
        for id in &written.inbox {
            if let Some(event) = self.events.get_mut(id) {
                event.took_effect = true;
            }
        }
    }
}

/// Returns the state of a branch whose undo row a transaction deleted: a rollback restores rows in
/// the same transaction, a commit deletes the undo row alone.
pub(crate) fn branch_state_after(written: &RowChanges) -> BranchState {
    if written.rows.is_empty() { BranchState::Kept } else { BranchState::Restored }
}

pub(crate) fn decision_of(state: GlobalState) -> Option<Decision> {
    match state {
        GlobalState::Active => None,
        GlobalState::Committing | GlobalState::Committed(_) => Some(Decision::Commit),
        GlobalState::RollingBack(_) | GlobalState::RolledBack(..) => Some(Decision::RollBack),
    }
}

pub(crate) fn is_finished(state: GlobalState) -> bool {
    matches!(state, GlobalState::Committed(_) | GlobalState::RolledBack(..))
}

/// LOCK-OWNER: on commit the locks are released with the decision, on rollback with each branch.
fn holds_locks(state: GlobalState) -> bool {
    matches!(state, GlobalState::Active | GlobalState::RollingBack(_))
}

fn xid_of(change: &Change) -> Xid {
    match change {
        Change::Put(Record::Global(global)) => global.xid,
        Change::Put(Record::Branch(branch)) => branch.xid,
        Change::Put(Record::Saga(saga)) => saga.xid,
        Change::Put(Record::Lease(lease)) => lease.xid.unwrap_or_default(),
        Change::Put(Record::Closure(_))
        | Change::Delete(RecordKey::Lease(_) | RecordKey::Closure) => Xid::default(),
        Change::Delete(
            RecordKey::Global(xid) | RecordKey::Branch(xid, _) | RecordKey::Saga(xid),
        ) => *xid,
    }
}

/// Returns a row of the only table of a database as the coordinator locks it.
fn locked_row(database: usize, row: RowId) -> LockedRow {
    let key = row.0.to_string();
    let key = format!("{}:{key}", key.len()).into_bytes();
    (format!("database-{database}"), "item".to_owned(), key)
}

/// Returns the key of a branch that a message names.
pub(crate) fn branch_key(xid: &str, branch: u64) -> Option<BranchKey> {
    let xid = XidText::parse(xid).ok()?.xid;
    Some((xid, BranchId(branch)))
}
