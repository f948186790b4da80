//! What is known for certain: the records that are durable, and what local transactions did.
//!
//! The judge's own book. It is written from batches that are synced and from COMMITs of the model
//! databases, and never from what anybody says.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{
    BranchId, BranchRecord, Change, Decision, FencingToken, GlobalRecord, GlobalState, LockMode,
    Record, RecordKey, SagaRecord, Xid,
};
use handfast_rm_core::fence;

use crate::database::{EventId, EventRow, RowId, Seq, Undo};
use crate::oracle::Written;

/// A branch anywhere.
pub(crate) type BranchKey = (Xid, BranchId);

/// A row as the coordinator locks it: resource, table, key.
pub(crate) type LockedRow = (String, String, Vec<u8>);

/// A branch's hold on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) mode: LockMode,
    pub(crate) token: FencingToken,
}

/// What became of a branch's local transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) database: usize,
    /// What it added to each row.
    pub(crate) deltas: Vec<(RowId, i64)>,
    pub(crate) stage: Stage,
}

/// What the operations of a branch under a fence have come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FencedEffect {
    pub(crate) database: usize,
    pub(crate) state: fence::State,
    /// What they added to each row, all together.
    pub(crate) deltas: BTreeMap<RowId, i64>,
}

/// An event that was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Emitted {
    pub(crate) database: usize,
    pub(crate) seq: Seq,
    pub(crate) key: u32,
    pub(crate) branch: BranchKey,
    /// Whether it has taken effect.
    pub(crate) took_effect: bool,
}

/// How far a local transaction's effect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Committed locally; its undo row is there.
    Applied,
    /// Committed globally; its undo row is gone.
    Kept,
    /// Its rows are put back.
    Restored,
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Virtual time, in microseconds.
    pub(crate) now: u64,
    pub(crate) globals: BTreeMap<Xid, GlobalRecord>,
    pub(crate) branches: BTreeMap<BranchKey, BranchRecord>,
    /// Every branch that was ever stored.
    pub(crate) registered: BTreeSet<BranchKey>,
    pub(crate) locks: BTreeMap<LockedRow, BTreeMap<BranchKey, Hold>>,
    pub(crate) effects: BTreeMap<BranchKey, Effect>,
    pub(crate) guards: BTreeSet<(usize, BranchKey)>,
    pub(crate) sagas: BTreeMap<Xid, SagaRecord>,
    pub(crate) fenced: BTreeMap<BranchKey, FencedEffect>,
    /// Branches that are prepared and not ended.
    pub(crate) prepared: BTreeSet<BranchKey>,
    /// How many of them were committed, and how many rolled back.
    pub(crate) prepared_ended: (u64, u64),
    pub(crate) events: BTreeMap<EventId, Emitted>,
    /// What prepared branches that committed, and effects of events, added to each row.
    pub(crate) outright: BTreeMap<(usize, RowId), i64>,
}

impl Ledger {
    /// The decision that is durable.
    pub(crate) fn decision(&self, xid: Xid) -> Option<Decision> {
        decision_of(self.globals.get(&xid)?.state)
    }

    pub(crate) fn is_committed(&self, xid: Xid) -> bool {
        self.decision(xid) == Some(Decision::Commit)
    }

    /// Globals that are not finished.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &GlobalRecord> {
        self.globals.values().filter(|global| !is_finished(global.state))
    }

    /// How many sagas have not ended.
    pub(crate) fn unfinished_sagas(&self) -> usize {
        self.sagas.values().filter(|saga| saga.ended_at().is_none()).count()
    }

    /// How many events of committed globals have not taken effect.
    pub(crate) fn events_under_way(&self) -> usize {
        let due = |event: &&Emitted| self.is_committed(event.branch.0) && !event.took_effect;
        self.events.values().filter(due).count()
    }

    /// Takes a batch in, as a whole.
    pub(crate) fn store(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Put(Record::Global(global)) => {
                    self.globals.insert(global.xid, global.clone());
                }
                Change::Put(Record::Branch(branch)) => {
                    self.registered.insert((branch.xid, branch.id));
                    self.branches.insert((branch.xid, branch.id), branch.clone());
                }
                Change::Put(Record::Saga(saga)) => {
                    self.sagas.insert(saga.xid, saga.clone());
                }
                Change::Delete(RecordKey::Saga(xid)) => drop(self.sagas.remove(xid)),
                // No simulated client takes named locks.
                Change::Put(Record::Lease(_)) | Change::Delete(RecordKey::Lease(_)) => {}
                Change::Delete(RecordKey::Global(xid)) => drop(self.globals.remove(xid)),
                Change::Delete(RecordKey::Branch(xid, id)) => {
                    // Registered and gone within one batch leaves only this.
                    self.registered.insert((*xid, *id));
                    self.branches.remove(&(*xid, *id));
                }
            }
        }
        let touched: BTreeSet<Xid> = batch.iter().map(xid_of).collect();
        for xid in touched {
            self.hold_again(xid);
        }
    }

    /// What a global holds, from its records.
    fn hold_again(&mut self, xid: Xid) {
        for holders in self.locks.values_mut() {
            holders.retain(|(holder, _), _| *holder != xid);
        }
        self.locks.retain(|_, holders| !holders.is_empty());
        let state = self.globals.get(&xid).map(|global| global.state);
        if !state.is_some_and(holds) {
            return;
        }
        let own = (xid, BranchId(0))..=(xid, BranchId(u64::MAX));
        for (key, branch) in self.branches.range(own) {
            for row in &branch.rows {
                let name = (branch.resource.to_string(), row.table.to_string(), row.key.to_vec());
                let hold = Hold { mode: row.mode, token: branch.token };
                self.locks.entry(name).or_default().insert(*key, hold);
            }
        }
    }

    /// Takes a local transaction in.
    pub(crate) fn commit(&mut self, database: usize, written: &Written) {
        for (key, before, after) in &written.undo {
            match (before, after) {
                (None, Some(Undo::Log(items))) => {
                    let delta = |item: &crate::database::UndoItem| {
                        (item.row, item.after.value - item.before.value)
                    };
                    let deltas = items.iter().map(delta).collect();
                    let effect = Effect { database, deltas, stage: Stage::Applied };
                    self.effects.insert(*key, effect);
                }
                (None, Some(Undo::Guard)) => drop(self.guards.insert((database, *key))),
                (Some(Undo::Log(_)), None) => {
                    if let Some(effect) = self.effects.get_mut(key) {
                        effect.stage = stage_after(written);
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
        if written.prepared.is_some() || !written.inbox.is_empty() {
            for (row, before, after) in &written.rows {
                *self.outright.entry((database, *row)).or_default() += after.value - before.value;
            }
        }
        self.commit_events(database, written);
    }

    /// A prepared branch has ended.
    pub(crate) fn end_prepared(&mut self, branch: BranchKey, decision: Decision) {
        self.prepared.remove(&branch);
        match decision {
            Decision::Commit => self.prepared_ended.0 += 1,
            Decision::RollBack => self.prepared_ended.1 += 1,
        }
    }

    fn commit_events(&mut self, database: usize, written: &Written) {
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

/// An undo row goes together with its rows, or alone.
pub(crate) fn stage_after(written: &Written) -> Stage {
    if written.rows.is_empty() { Stage::Kept } else { Stage::Restored }
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

/// LOCK-OWNER: on commit the locks go with the decision, on rollback with each branch.
fn holds(state: GlobalState) -> bool {
    matches!(state, GlobalState::Active | GlobalState::RollingBack(_))
}

fn xid_of(change: &Change) -> Xid {
    match change {
        Change::Put(Record::Global(global)) => global.xid,
        Change::Put(Record::Branch(branch)) => branch.xid,
        Change::Put(Record::Saga(saga)) => saga.xid,
        Change::Put(Record::Lease(lease)) => lease.xid.unwrap_or_default(),
        Change::Delete(RecordKey::Lease(_)) => Xid::default(),
        Change::Delete(
            RecordKey::Global(xid) | RecordKey::Branch(xid, _) | RecordKey::Saga(xid),
        ) => *xid,
    }
}
