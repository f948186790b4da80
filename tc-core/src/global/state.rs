//! An unfinished global, as held in memory.
//!
//! ```text
//! Active ─▶ Committing  ─▶ finished: committed
//!    └────▶ RollingBack ─▶ finished: rolled back
//! ```
//!
//! The phase changes once (DECIDED-ONCE). A finished global is a record in `history`.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::branch::{Branch, BranchStage};
use super::branches::Branches;
use super::trace::KnownTrace;
use crate::collections::interner::Origin;
use crate::contract::{
    Asker, BranchId, ClientId, Counted, Decision, Event, GlobalRecord, GlobalState, GlobalStatus,
    Labels, PhaseTwoCall, RollbackReason, Timestamp, Xid, noted,
};
use crate::row_lock::table::LockId;

/// Millions of these may be open, so what few globals have is boxed.
#[derive(Clone, Debug)]
pub(crate) struct Global {
    pub(crate) xid: Xid,
    pub(crate) origin: Arc<Origin>,
    pub(crate) begun_at: Timestamp,
    pub(crate) timeout_ms: u64,
    /// By the clock of this process. The record has the deadline that was set at the begin.
    pub(crate) deadline: Timestamp,
    pub(crate) phase: Phase,
    /// Its time is over, and its last branch is asked whether it has committed (LAST-BRANCH).
    pub(crate) asks_its_last: bool,
    /// Whether there is a record of it.
    pub(crate) stored: bool,
    /// Branches that are not finished, and those of them that are refused.
    pub(crate) unfinished: u32,
    pub(crate) refused: u32,
    /// Rows that its branches hold. Counted along, since a global may have many branches and each
    /// change of it asks.
    pub(crate) rows: u32,
    pub(crate) branches: Branches,
    pub(crate) extras: Option<Box<GlobalExtras>>,
}

/// Parts that few undecided globals have: a course, labels, a key, a trace, what forbids a commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalExtras {
    /// Shared with its records.
    pub(crate) events: Arc<[Event]>,
    pub(crate) labels: Labels,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) trace: Option<Box<KnownTrace>>,
    pub(crate) paused: bool,
    pub(crate) rollback_only: bool,
}

impl GlobalExtras {
    /// Returns them boxed, unless there are none.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        let Self { events, labels, key, trace, paused, rollback_only } = &self;
        let has_none = events.is_empty() && labels.is_empty() && key.is_none() && trace.is_none();
        (!has_none || *paused || *rollback_only).then(|| Box::new(self))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    Committing,
    RollingBack(RollbackReason),
}

impl Phase {
    /// Returns whether a request to commit is answered with this phase, and not refused because
    /// another request has decided.
    pub(crate) fn answers_a_commit(self) -> bool {
        match self {
            Self::Active | Self::Committing => true,
            Self::RollingBack(reason) => follows_from_a_commit(reason),
        }
    }
}

/// Returns whether a request to commit may lead to a rollback of this kind.
pub(crate) fn follows_from_a_commit(reason: RollbackReason) -> bool {
    match reason {
        RollbackReason::BranchUnknown | RollbackReason::Refused => true,
        RollbackReason::Requested | RollbackReason::Timeout | RollbackReason::Operator => false,
    }
}

/// Branches whose turn it is in phase two.
pub(crate) type NextBranches<'a> = SmallVec<[&'a Branch; 4]>;

impl Global {
    pub(crate) fn status(&self) -> GlobalStatus {
        match self.phase {
            Phase::Active => GlobalStatus::Active,
            Phase::Committing => GlobalStatus::Committing,
            Phase::RollingBack(reason) if self.refused > 0 => GlobalStatus::NeedsOperator(reason),
            Phase::RollingBack(reason) => GlobalStatus::RollingBack(reason),
        }
    }

    pub(crate) fn needs_operator(&self) -> bool {
        self.refused > 0 && self.is_rolling_back()
    }

    /// Returns what it adds to the counts.
    pub(crate) fn counted(&self) -> Counted {
        let pending = match self.phase {
            Phase::Active => usize::from(self.asks_its_last && self.deciding().is_some()),
            // A refused branch waits for a person: no call of phase two is owed to it.
            Phase::Committing | Phase::RollingBack(_) => (self.unfinished - self.refused) as usize,
        };
        Counted { status: self.status().kind(), pending }
    }

    /// The connection that began it; none since a restart.
    pub(crate) fn client(&self) -> ClientId {
        self.origin.client
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.paused)
    }

    pub(crate) fn is_rollback_only(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.rollback_only)
    }

    pub(crate) fn events(&self) -> &[Event] {
        self.extras.as_ref().map_or(&[], |extras| &extras.events)
    }

    pub(crate) fn labels(&self) -> &Labels {
        self.extras.as_ref().map_or(&Labels::NONE, |extras| &extras.labels)
    }

    /// The key by which a second begin finds it.
    pub(crate) fn key(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.key.as_ref()
    }

    pub(crate) fn trace(&self) -> Option<&KnownTrace> {
        self.extras.as_ref()?.trace.as_deref()
    }

    pub(crate) fn extras_mut(&mut self) -> &mut GlobalExtras {
        self.extras.get_or_insert_default()
    }

    pub(crate) fn decision(&self) -> Option<Decision> {
        match self.phase {
            Phase::Active => None,
            Phase::Committing => Some(Decision::Commit),
            Phase::RollingBack(_) => Some(Decision::RollBack),
        }
    }

    pub(crate) fn is_rolling_back(&self) -> bool {
        matches!(self.phase, Phase::RollingBack(_))
    }

    pub(crate) fn branch(&self, id: BranchId) -> Option<&Branch> {
        self.branches.get(id)
    }

    pub(crate) fn branch_mut(&mut self, id: BranchId) -> Option<&mut Branch> {
        self.branches.get_mut(id)
    }

    /// Returns the branch whose local commit decides this undecided global. Nothing joins after it,
    /// so it is the last one.
    pub(crate) fn deciding(&self) -> Option<&Branch> {
        let last = self.branches.last().filter(|_| self.phase == Phase::Active);
        last.filter(|branch| branch.stage == BranchStage::Deciding)
    }

    pub(crate) fn branch_at(&self, sequence: u32) -> Option<&Branch> {
        self.branches.at(sequence)
    }

    /// The locks of all branches, in the order of these.
    pub(crate) fn locks(&self) -> impl Iterator<Item = LockId> + '_ {
        self.branches.iter().flat_map(Branch::locks).copied()
    }

    /// The client and the application that it belongs to.
    pub(crate) fn owner(&self) -> Asker {
        Asker { client: self.client(), application: self.origin.application.clone() }
    }

    /// The locks that stay for as long as this refused branch is not rolled back: its own, and
    /// those of the branches that are rolled back after it.
    pub(crate) fn locks_behind(&self, refused: BranchId) -> Vec<LockId> {
        let Some(refused) = self.branch(refused) else { return Vec::new() };
        let behind = self
            .branches
            .iter()
            .filter(|branch| branch.rollback_order() == refused.rollback_order());
        behind.flat_map(Branch::locks).copied().collect()
    }

    /// Returns whether the rows of the branch with this sequence number are released only after an
    /// operator has acted.
    pub(crate) fn is_stuck(&self, sequence: u32) -> bool {
        let Some(branch) = self.branch_at(sequence).filter(|_| self.refused > 0) else {
            return false;
        };
        let mut same =
            self.branches.iter().filter(|other| other.rollback_order() == branch.rollback_order());
        same.any(|other| other.stage == BranchStage::Refused)
    }

    /// Returns the sequence number of the next branch, above that of every branch there is.
    pub(crate) fn next_sequence(&self) -> Option<u32> {
        self.branches.last().map_or(Some(0), |branch| branch.sequence.checked_add(1))
    }

    pub(crate) fn add(&mut self, branch: Branch) {
        self.unfinished += 1;
        self.rows += row_count(branch.locks().len());
        self.branches.push(branch);
    }

    /// Adds to the timeline. Beyond the limit the first entry stays, and the oldest of the others
    /// are dropped (BOUNDED).
    pub(crate) fn note(&mut self, event: Event, events_max: usize) {
        let extras = self.extras_mut();
        extras.events = noted(&extras.events, event, events_max);
    }

    /// The deadline that was set at the begin.
    pub(crate) fn record_deadline(&self) -> Timestamp {
        self.begun_at.after_ms(self.timeout_ms)
    }

    pub(crate) fn record(&self) -> GlobalRecord {
        let state = match self.phase {
            Phase::Active => GlobalState::Active,
            Phase::Committing => GlobalState::Committing,
            Phase::RollingBack(reason) => GlobalState::RollingBack(reason),
        };
        let extras = self.extras.as_deref();
        GlobalRecord {
            xid: self.xid,
            address: self.origin.address.clone(),
            application: self.origin.application.clone(),
            name: self.origin.name.clone(),
            begun_at: self.begun_at,
            deadline: self.record_deadline(),
            state,
            paused: self.is_paused(),
            rollback_only: self.is_rollback_only(),
            events: extras.map(|extras| extras.events.clone()).unwrap_or_default(),
            labels: self.labels().clone(),
            key: self.key().cloned(),
            trace: self.trace().map(|trace| Box::new(trace.places)),
            finished_branches: Arc::default(),
        }
    }

    /// Returns the record for operators, with the deadline in force.
    pub(crate) fn shown(&self) -> GlobalRecord {
        let record = self.record();
        let deadline = if self.phase == Phase::Active { self.deadline } else { record.deadline };
        GlobalRecord { deadline, ..record }
    }

    // ---- phase two ----

    /// Returns whether phase two of the branch may be called, and its answer counts: on a commit
    /// any branch, on a rollback the last unfinished one in its `RollbackOrder`.
    pub(crate) fn is_next(&self, branch: &Branch) -> bool {
        let later = |other: &Branch| {
            other.sequence > branch.sequence
                && other.rollback_order() == branch.rollback_order()
                && !other.is_finished()
        };
        !branch.is_finished()
            && (self.phase == Phase::Committing || !self.branches.iter().any(later))
    }

    /// The branches whose phase two may be called, refused ones included, in calling order.
    pub(crate) fn next_branches(&self) -> NextBranches<'_> {
        let unfinished = self.branches.iter().filter(|branch| !branch.is_finished());
        match self.phase {
            Phase::Active => NextBranches::new(),
            Phase::Committing => unfinished.collect(),
            Phase::RollingBack(_) => {
                // Decision 0003: each order is called from its end, and orders do not wait for one
                // another.
                let mut orders = BTreeSet::new();
                unfinished.rev().filter(|branch| orders.insert(branch.rollback_order())).collect()
            }
        }
    }

    /// The calls that phase two owes: none while an operator holds it back.
    pub(crate) fn due(&self) -> impl Iterator<Item = PhaseTwoCall> + '_ {
        let branches = if self.is_paused() { NextBranches::new() } else { self.next_branches() };
        let due = branches.into_iter().filter(|branch| branch.stage != BranchStage::Refused);
        due.filter_map(|branch| self.call(branch))
    }

    pub(crate) fn call(&self, branch: &Branch) -> Option<PhaseTwoCall> {
        Some(PhaseTwoCall {
            xid: self.xid,
            address: self.origin.address.clone(),
            branch: branch.id,
            resource: branch.resource().clone(),
            mode: branch.mode,
            decision: self.decision()?,
            resolution: branch.resolution(),
            application_data: branch.application_data(),
            attempts: branch.attempts(),
            step: None,
            registered_by: branch.registered_by(),
            trace: self.call_trace(branch),
        })
    }
}

/// Rows as they are counted for one global.
pub(crate) fn row_count(rows: usize) -> u32 {
    u32::try_from(rows).expect("BOUNDED: locks_max fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million open globals are held in memory.
    #[test]
    fn a_global_stays_small() {
        assert_eq!(size_of::<Branch>(), 64);
        assert!(size_of::<Global>() <= 192, "{}", size_of::<Global>());
    }
}
