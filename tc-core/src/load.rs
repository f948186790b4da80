//! Making a coordinator from its records (RECORDED).
//!
//! Nothing is decided here: locks, deadlines and counts follow from the records. Records that
//! contradict each other stop the load, since a coordinator that guesses would lose a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::collections::interner::{Names, Origin};
use crate::contract::{
    Asker, BranchRecord, BranchState, ClientId, EPOCH_MAX, Epoch, GlobalRecord, GlobalState,
    LeaseId, LeaseRecord, Limits, LoadError, Record, RecordKey, Timestamp,
};
use crate::coordinator::Coordinator;
use crate::deadlock_log::DeadlockLog;
use crate::decision_context::Environment;
use crate::global::begin_keys::BeginKeys;
use crate::global::branch::Branch;
use crate::global::branches::Branches;
use crate::global::departed::DepartedClients;
use crate::global::finished::FinishedGlobal;
use crate::global::history::History;
use crate::global::label_index::LabelIndex;
use crate::global::loans::LoanTable;
use crate::global::state::{Global, GlobalExtras, Phase};
use crate::global::table::GlobalTable;
use crate::global::trace::KnownTrace;
use crate::global::voting::Votings;
use crate::id_generator::IdGenerator;
use crate::named_lock::table::LeaseTable;
use crate::restart::Restart;
use crate::row_lock::row_locks::RowLocks;
use crate::row_lock::table::Holder;
use crate::saga::table::SagaTable;
use crate::waiting::WaitingRequests;

impl Coordinator {
    /// Makes the coordinator that wrote the records, to lead under a later epoch. Without records
    /// it is an empty one.
    ///
    /// `address` is the address part of the text form of XIDs that it will hand out; globals from
    /// before keep theirs.
    ///
    /// # Errors
    /// The records contradict each other. A server must stop then, and not serve from a guess.
    pub fn load(
        epoch: Epoch,
        address: Arc<str>,
        limits: Limits,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, LoadError> {
        let mut records: Vec<Record> = records.into_iter().collect();
        records.sort_unstable_by_key(Record::place_to_load);
        Self::load_in_order(epoch, address, limits, records)
    }

    /// Loads as [`Coordinator::load`] does, without holding the records: they must be in the order
    /// of [`Record::place_to_load`], or at least those of the branches of each global behind its
    /// own.
    ///
    /// # Errors
    /// As [`Coordinator::load`]. A branch in another place counts as one without a global.
    pub fn load_in_order(
        epoch: Epoch,
        address: Arc<str>,
        limits: Limits,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, LoadError> {
        let mut loading = Loading::begin(epoch, address, limits)?;
        let mut records = records.into_iter();
        // Where there are many records, most are of unfinished globals with two branches of one row
        // each. A wrong guess costs some bytes, or some time.
        let count = records.size_hint().1.unwrap_or_default();
        let Coordinator { rows, environment, .. } = &mut loading.coordinator;
        rows.table.reserve((count / 3 * 2).min(environment.limits.locks_max));
        records.try_for_each(|record| loading.take(record))?;
        loading.finish()
    }

    /// Sets the time at which a loaded coordinator continues. Must be called before anything is
    /// decided. Ids begin at the time at which the epoch was taken from the clock: at a later one
    /// its minute may be over. Each lease gets its whole length again from `now` on, even beyond
    /// its longest hold, since its holder relies on it however far the clock has jumped; etcd's
    /// leases do the same after an election. Every other timeout has its grace, and a finished
    /// global is remembered as if it had finished at `now` (GRACE).
    pub fn resume(&mut self, epoch_taken_at: Timestamp, now: Timestamp) {
        self.environment.ids.begin(epoch_taken_at);
        self.leases.resume(now);
        self.environment.restart = Restart::new(now, self.environment.limits.restart_grace_ms);
        self.globals.resume(self.environment.restart);
        self.history.resume(self.environment.restart);
        self.sagas.resume(self.environment.restart);
    }

    /// Restores a global with its branches, in any order.
    fn restore(
        &mut self,
        epoch: Epoch,
        record: GlobalRecord,
        branches: &mut Vec<BranchRecord>,
    ) -> Result<(), LoadError> {
        let xid = record.xid;
        if self.globals.get(xid).is_some() || self.history.get(xid).is_some() {
            return Err(LoadError::RecordTwice(RecordKey::Global(xid)));
        }
        // The counter of this epoch would draw the same XID again.
        if xid.epoch() >= epoch {
            return Err(LoadError::XidOfLaterEpoch(xid));
        }
        self.labels.insert(&record.labels, xid);
        self.keys.insert(&record.application, record.key.as_ref(), xid);
        let Some(phase) = phase_of(record.state) else {
            // The batch that ends a global deletes the records of its branches as well.
            self.history.add(FinishedGlobal::restore(&mut self.environment.names, record));
            return branches.first().map_or(Ok(()), |branch| Err(orphan(branch)));
        };
        let mut global = restore_global(&mut self.environment.names, record, phase);
        branches.sort_unstable_by_key(|branch| branch.sequence);
        for branch in branches.drain(..) {
            self.restore_branch(&mut global, branch)?;
        }
        // The last branch and the global end in one batch, so that no batch leaves this behind. No
        // answer of a branch could end such a global.
        if phase != Phase::Active && global.unfinished == 0 {
            return Err(LoadError::NothingLeftToDo(xid));
        }
        self.globals.insert(global);
        Ok(())
    }

    fn restore_branch(
        &mut self,
        global: &mut Global,
        mut record: BranchRecord,
    ) -> Result<(), LoadError> {
        let xid = global.xid;
        let is_there =
            global.branch(record.id).is_some() || global.branch_at(record.sequence).is_some();
        if !fits(&record.state, global.phase) || is_there {
            return Err(LoadError::BranchMisfit { xid, branch: record.id });
        }
        let site = self.environment.names.site(&record.resource, record.registered_by.as_ref());
        // A commit releases the locks with the decision, and does not rewrite the branches.
        let released = global.phase == Phase::Committing;
        let rows = if released { Vec::new() } else { std::mem::take(&mut record.rows) };
        let sequence = record.sequence;
        let refused = matches!(record.state, BranchState::Refused(..));
        let mut branch = Branch::restore(site, record);
        for row in rows {
            let space = self.environment.names.space(branch.resource(), &row.table);
            let lock = self.rows.table.find_or_insert(&space, &row.key);
            let holder = self.rows.table.conflicting_holders(lock, Some(xid), row.mode).next();
            if let Some(holder) = holder {
                let (first, second) = (holder.xid, xid);
                return Err(LoadError::RowHeldTwice { table: row.table, first, second });
            }
            // A row that the record names twice is held once, in a mode that allows both.
            if self.rows.table.hold(lock, Holder { xid, sequence, mode: row.mode }) {
                continue;
            }
            branch.add_lock(lock);
        }
        let finished = branch.is_finished();
        global.add(branch);
        // `add` has counted the branch as unfinished.
        global.unfinished -= u32::from(finished);
        global.refused += u32::from(refused);
        Ok(())
    }
}

/// A coordinator that takes its records.
struct Loading {
    coordinator: Coordinator,
    epoch: Epoch,
    /// The global whose branches may still come.
    global: Option<GlobalRecord>,
    branches: Vec<BranchRecord>,
    /// They come last: globals own some of them.
    leases: BTreeMap<LeaseId, LeaseRecord>,
}

impl Loading {
    fn begin(epoch: Epoch, address: Arc<str>, limits: Limits) -> Result<Self, LoadError> {
        if epoch.0 > EPOCH_MAX {
            return Err(LoadError::EpochTooLarge(epoch));
        }
        let coordinator = Coordinator {
            environment: Environment {
                address,
                limits,
                restart: Restart::default(),
                ids: IdGenerator::new(epoch),
                names: Names::new(),
                asker: Asker::default(),
                trace: None,
            },
            globals: GlobalTable::default(),
            rows: RowLocks::new(),
            waiting: WaitingRequests::default(),
            votings: Votings::new(),
            history: History::default(),
            labels: LabelIndex::default(),
            keys: BeginKeys::default(),
            loans: LoanTable::default(),
            sagas: SagaTable::default(),
            leases: LeaseTable::default(),
            departed: DepartedClients::default(),
            deadlocks: DeadlockLog::default(),
        };
        let (branches, leases) = (Vec::new(), BTreeMap::new());
        Ok(Self { coordinator, epoch, global: None, branches, leases })
    }

    fn take(&mut self, record: Record) -> Result<(), LoadError> {
        match record {
            Record::Global(global) => {
                self.end_global()?;
                self.global = Some(global);
            }
            Record::Branch(branch) => {
                if self.global.as_ref().is_none_or(|global| global.xid != branch.xid) {
                    return Err(orphan(&branch));
                }
                self.branches.push(branch);
            }
            Record::Saga(saga) => {
                if self.coordinator.sagas.get(saga.xid).is_some() {
                    return Err(LoadError::RecordTwice(RecordKey::Saga(saga.xid)));
                }
                let Coordinator { sagas, environment, .. } = &mut self.coordinator;
                sagas.restore(&mut environment.names, self.epoch, saga)?;
            }
            Record::Lease(lease) => {
                let key = RecordKey::Lease(lease.id);
                if self.leases.insert(lease.id, lease).is_some() {
                    return Err(LoadError::RecordTwice(key));
                }
            }
            Record::Closure(closure) => return Err(LoadError::Closed(closure)),
        }
        Ok(())
    }

    /// Restores the global of which every branch has come.
    fn end_global(&mut self) -> Result<(), LoadError> {
        self.global.take().map_or(Ok(()), |global| {
            self.coordinator.restore(self.epoch, global, &mut self.branches)
        })
    }

    fn finish(mut self) -> Result<Coordinator, LoadError> {
        self.end_global()?;
        let mut coordinator = self.coordinator;
        for lease in self.leases.into_values() {
            let Coordinator { leases, environment, globals, .. } = &mut coordinator;
            leases.restore(&mut environment.names, globals, self.epoch, lease)?;
        }
        // They were added in the order of their records, and are forgotten in that in which they
        // finished.
        coordinator.history.put_in_order();
        Ok(coordinator)
    }
}

fn orphan(branch: &BranchRecord) -> LoadError {
    LoadError::BranchWithoutGlobal { xid: branch.xid, branch: branch.id }
}

fn phase_of(state: GlobalState) -> Option<Phase> {
    match state {
        GlobalState::Active => Some(Phase::Active),
        GlobalState::Committing => Some(Phase::Committing),
        GlobalState::RollingBack(reason) => Some(Phase::RollingBack(reason)),
        GlobalState::Committed(Timestamp(_)) | GlobalState::RolledBack(..) => None,
    }
}

fn fits(state: &BranchState, phase: Phase) -> bool {
    match state {
        BranchState::Registered | BranchState::Deciding | BranchState::PhaseOneDone => true,
        BranchState::Finished(_) => phase != Phase::Active,
        BranchState::Refused(..) | BranchState::Resolved(_) => {
            matches!(phase, Phase::RollingBack(_))
        }
    }
}

fn restore_global(names: &mut Names, record: GlobalRecord, phase: Phase) -> Global {
    let GlobalRecord { address, application, name, .. } = record;
    let extras = GlobalExtras {
        events: record.events,
        labels: record.labels,
        key: record.key,
        trace: record.trace.as_deref().map(KnownTrace::restored),
        paused: record.paused,
        rollback_only: record.rollback_only,
    };
    Global {
        xid: record.xid,
        origin: names.origin(&Origin { address, application, name, client: ClientId::default() }),
        begun_at: record.begun_at,
        // The record has the deadline that was set at the begin, so this is the whole length
        // (GRACE).
        timeout_ms: record.deadline.0.saturating_sub(record.begun_at.0),
        deadline: record.deadline,
        phase,
        asks_its_last: false,
        stored: true,
        rows: 0,
        unfinished: 0,
        refused: 0,
        branches: Branches::default(),
        extras: extras.boxed(),
    }
}
