//! Common code of the core's tests: a store of records, and the comparison of two coordinators.

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    Change, Coordinator, Epoch, GlobalFilter, GlobalStatus, GlobalView, LeaseRecord, Limits,
    LoadError, LockFilter, LockView, PageBounds, Record, RecordKey, SagaRecord,
};

/// Records as a store keeps them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) records: BTreeMap<RecordKey, Record>,
}

impl Store {
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(record) => drop(self.records.insert(record.key(), record.clone())),
                Change::Delete(key) => drop(self.records.remove(key)),
            }
        }
    }

    pub(crate) fn load(&self, epoch: u64, limits: &Limits) -> Result<Coordinator, LoadError> {
        let records = self.records.values().cloned();
        Coordinator::load(Epoch(epoch), Arc::from("tc"), limits.clone(), records)
    }
}

/// RECORDED: what a coordinator made from the records must have in common with the one that wrote
/// them. Globals without a branch are never written, and queues are in memory alone.
pub(crate) fn recorded(
    coordinator: &Coordinator,
) -> (Vec<GlobalView>, Vec<LockView>, Vec<SagaRecord>, Vec<LeaseRecord>) {
    let is_recorded = |view: &GlobalView| {
        view.status != GlobalStatus::Active
            || !view.branches.is_empty()
            || view.record.rollback_only
    };
    let globals = views(coordinator).into_iter().filter(is_recorded).collect();
    let leases = coordinator.named_locks(None, PageBounds::NONE).items;
    let leases = leases.into_iter().flat_map(|lock| lock.held).collect();
    (globals, held(coordinator), coordinator.sagas(None).cloned().collect(), leases)
}

pub(crate) fn views(coordinator: &Coordinator) -> Vec<GlobalView> {
    let all = coordinator.globals(&GlobalFilter::default(), None, PageBounds::NONE).items;
    let view = |summary: &handfast_core::GlobalSummary| coordinator.global(summary.record.xid);
    all.iter().filter_map(view).collect()
}

/// The locks that are held, without their queues.
pub(crate) fn held(coordinator: &Coordinator) -> Vec<LockView> {
    let mut locks = coordinator.locks(&LockFilter::default(), None, PageBounds::NONE).items;
    for lock in &mut locks {
        (lock.queue, lock.waiting) = (Vec::new(), 0);
    }
    locks
}
