//! Phase two on a model database: a queue of calls for each resource as in
//! `link/resource_queues.rs`, and the steps of `at/phase_two/mod.rs`, `phase_two/rollback.rs` and
//! `phase_two/restore.rs`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, Mode, PhaseTwoBranch, PhaseTwoCall, Refused, Resource, Retryable,
};

use super::ClientProcess;
use super::at::{AtResource, parse_xid};
use crate::model::database::{DatabaseError, LocalTransaction};
use crate::model::values::{RowVersion, Undo, UndoItem, UndoKey, UndoWay, WriterMark};
use crate::plan;

/// How often a rollback is attempted when a local transaction commits between its search for the
/// undo row and its guard row.
const RACES_MAX: usize = 3;

/// The calls of one resource, run one after the other. Commits do not wait for rollbacks.
#[derive(Debug)]
pub(super) struct CallQueue {
    resource_id: String,
    mode: ResourceMode,
    database: usize,
    commits: Mutex<Pending>,
    rollbacks: Mutex<Pending>,
}

/// The mode of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceMode {
    At,
    Tcc,
    Saga,
    Xa,
}

#[derive(Debug, Default)]
struct Pending {
    calls: VecDeque<PhaseTwoCall>,
    /// Whether a task runs the calls.
    running: bool,
}

/// The result of one attempt to roll back.
enum RollbackAttempt {
    Done,
    /// The undo row appeared between the search and the guard row.
    Raced,
    /// A row has changed since (dirty write).
    Refused(String),
}

impl CallQueue {
    pub(super) fn new(resource_id: String, mode: ResourceMode, database: usize) -> Self {
        let (commits, rollbacks) = Default::default();
        Self { resource_id, mode, database, commits, rollbacks }
    }

    pub(super) fn mode(&self) -> ResourceMode {
        self.mode
    }

    /// Returns the resource as it is registered.
    pub(super) fn resource(&self) -> Resource {
        let mode = match self.mode {
            ResourceMode::At => Mode::At,
            ResourceMode::Tcc => Mode::Tcc,
            ResourceMode::Saga => Mode::Saga,
            ResourceMode::Xa => Mode::Xa,
        };
        let (id, label) = (self.resource_id.clone(), self.resource_id.clone());
        Resource { id, mode: mode.into(), label }
    }

    fn pending(&self, decision: Decision) -> MutexGuard<'_, Pending> {
        let pending = if decision == Decision::Commit { &self.commits } else { &self.rollbacks };
        pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientProcess {
    /// Queues a call, and starts a task for its queue unless one runs.
    pub(super) fn enqueue_call(self: &Arc<Self>, call: PhaseTwoCall) {
        let is_of = |queue: &CallQueue| queue.resource_id == call.resource_id;
        let Some(at) = self.call_queues.iter().position(is_of) else {
            let name = &call.resource_id;
            return self.judge.report("total", format!("call for a foreign resource {name}"));
        };
        let decision = call.decision();
        let mut pending = self.call_queues[at].pending(decision);
        pending.calls.push_back(call);
        if !std::mem::replace(&mut pending.running, true) {
            self.world.spawn(self.owner(), Arc::clone(self).run_calls(at, decision));
        }
    }

    async fn run_calls(self: Arc<Self>, at: usize, decision: Decision) {
        loop {
            let call = {
                let mut pending = self.call_queues[at].pending(decision);
                let next = pending.calls.pop_front();
                // Under one lock with the look: a call that comes behind it starts a task again.
                pending.running = next.is_some();
                next
            };
            let Some(call) = call else { return };
            let (mode, at) = (self.call_queues[at].mode, self.call_queues[at].database);
            let database = &self.installation.databases[at];
            // A question waits in the queue of the rollbacks.
            let outcomes = match (mode, call.decision()) {
                (ResourceMode::Xa, _) => self.finish_xa_branches(database, &call).await,
                (ResourceMode::Tcc, _) => self.finish_tcc_branches(database, &call).await,
                (ResourceMode::Saga, _) => self.run_saga_steps(database, &call).await,
                (ResourceMode::At, Decision::Commit) => self.commit_branches(at, &call).await,
                (ResourceMode::At, Decision::RollBack) => self.roll_back_branches(at, &call).await,
                (ResourceMode::At, Decision::Unspecified) => self.settle_branches(at, &call).await,
            };
            self.report_outcomes(outcomes);
        }
    }

    /// Deletes the undo rows of branches, in one local transaction.
    async fn commit_branches(
        self: &Arc<Self>,
        at: usize,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let resource = &self.resources[at];
        let keys: Vec<UndoKey> = call.branches.iter().map(branch_key).collect();
        let result = match delete_undo(resource, &keys).await {
            Ok(()) => {
                self.release_guarded(resource, keys);
                self.sweep_guarded(resource).await;
                Outcome::Done(Done {})
            }
            Err(error) => retryable(error),
        };
        let outcomes = call.branches.iter();
        outcomes.map(|branch| branch_outcome(branch, Decision::Commit, result.clone())).collect()
    }

    /// Says of branches that decide their globals whether they have committed.
    async fn settle_branches(
        self: &Arc<Self>,
        at: usize,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let resource = Arc::clone(&self.resources[at]);
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = match self.settle_branch(&resource, branch_key(branch)).await {
                Ok(Some(true)) => Outcome::Done(Done {}),
                Ok(Some(false)) => Outcome::Refused(Refused::default()),
                Ok(None) => Outcome::Retryable(Retryable { error: "raced".to_owned() }),
                Err(error) => retryable(error),
            };
            let outcome = branch_outcome(branch, Decision::Unspecified, result);
            outcomes.push(BranchOutcome { question: call.question, ..outcome });
        }
        outcomes
    }

    /// Returns whether a branch has committed; `None` if it did so just now.
    async fn settle_branch(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        key: UndoKey,
    ) -> Result<Option<bool>, DatabaseError> {
        let may_still_commit = resource.may_still_commit(key.1);
        let local = resource.database.begin_in(&resource.connections).await?;
        let has_committed = match local.find_undo(key).await? {
            Some(Undo::Log(_)) => true,
            Some(Undo::Guard) => false,
            None if !may_still_commit => false,
            None => {
                let guarded = self.insert_guard(resource, local, key).await?;
                return Ok(matches!(guarded, RollbackAttempt::Done).then_some(false));
            }
        };
        local.roll_back().await?;
        Ok(Some(has_committed))
    }

    /// Rolls branches back, one after the other in the order given.
    async fn roll_back_branches(
        self: &Arc<Self>,
        at: usize,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let resource = Arc::clone(&self.resources[at]);
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = match self.roll_back_branch(&resource, branch_key(branch)).await {
                Ok(RollbackAttempt::Done) => Outcome::Done(Done {}),
                Ok(RollbackAttempt::Raced) => {
                    Outcome::Retryable(Retryable { error: "raced".to_owned() })
                }
                Ok(RollbackAttempt::Refused(error)) => {
                    Outcome::Refused(Refused { error, ..Refused::default() })
                }
                Err(error) => retryable(error),
            };
            outcomes.push(branch_outcome(branch, Decision::RollBack, result));
        }
        outcomes
    }

    async fn roll_back_branch(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        key: UndoKey,
    ) -> Result<RollbackAttempt, DatabaseError> {
        let mut attempt = RollbackAttempt::Raced;
        for _ in 0..RACES_MAX {
            attempt = self.attempt_to_roll_back(resource, key).await?;
            if !matches!(attempt, RollbackAttempt::Raced) {
                break;
            }
        }
        Ok(attempt)
    }

    async fn attempt_to_roll_back(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        key: UndoKey,
    ) -> Result<RollbackAttempt, DatabaseError> {
        // This is read before the undo row is searched for: a branch that has ended by now has its
        // undo row in place.
        let may_still_commit = resource.may_still_commit(key.1);
        let local = resource.database.begin_in(&resource.connections).await?;
        let items = match local.find_undo(key).await? {
            Some(Undo::Guard) => return local.roll_back().await.map(|()| RollbackAttempt::Done),
            Some(Undo::Log(items)) => items,
            None if !may_still_commit => {
                return local.roll_back().await.map(|()| RollbackAttempt::Done);
            }
            None => return self.insert_guard(resource, local, key).await,
        };
        // HELD-UNDO: without its undo row an event would count as committed.
        if self.world.plan.modes.contains(&plan::Mode::Outbox) {
            local.delete_held_events(key).await?;
        }
        let marked = resource.is_guarded_now(&self.world, &local).await?;
        if marked {
            local.mark(WriterMark::Pass).await?;
        }
        if let Some(dirty) = restore(&local, key, &items).await? {
            return local.roll_back().await.map(|()| RollbackAttempt::Refused(dirty));
        }
        if marked {
            local.unmark().await?;
        }
        local.delete_undo(key).await?;
        local.commit().await?;
        self.release_guarded(resource, vec![key]);
        Ok(RollbackAttempt::Done)
    }

    /// Inserts a guard row, on which a late local transaction fails.
    async fn insert_guard(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        local: LocalTransaction,
        key: UndoKey,
    ) -> Result<RollbackAttempt, DatabaseError> {
        let guarded = local.insert_undo_if_absent(key, Undo::Guard).await?;
        local.commit().await?;
        if !guarded {
            return Ok(RollbackAttempt::Raced);
        }
        if resource.mark_guarded(key.1) {
            self.delete_undo_row(resource, key);
        }
        Ok(RollbackAttempt::Done)
    }

    /// Starts to delete a guard row that bars no branch any more, or the undo row of a branch that
    /// the coordinator has lost. It is not repeated on failure.
    pub(super) fn delete_undo_row(self: &Arc<Self>, resource: &Arc<AtResource>, key: UndoKey) {
        let (process, resource) = (Arc::clone(self), Arc::clone(resource));
        self.world.spawn(self.owner(), async move {
            if let Err(error) = delete_undo(&resource, &[key]).await {
                process.world.log(process.owner(), || format!("undo row stays: {error:?}"));
            }
        });
    }
}

/// Restores the rows that are as the branch left them, and gives back what it has added to
/// counters. Returns the reason if a row is not as it was left.
async fn restore(
    local: &LocalTransaction,
    branch: UndoKey,
    items: &[UndoItem],
) -> Result<Option<String>, DatabaseError> {
    // The last change first, so that each item finds the rows as it left them.
    for item in items.iter().rev() {
        let current = local.lock_row(item.row).await?;
        if item.way == UndoWay::Sum {
            let value = current.value + item.before.value - item.after.value;
            let writer = current.writer.filter(|writer| *writer != branch);
            local.update(item.row, RowVersion { value, writer }).await?;
        } else if current.value == item.after.value {
            local.update(item.row, item.before).await?;
        } else if current.value != item.before.value {
            return Ok(Some(format!("dirty write: row {}", item.row.0)));
        }
    }
    Ok(None)
}

async fn delete_undo(resource: &AtResource, keys: &[UndoKey]) -> Result<(), DatabaseError> {
    let local = resource.database.begin_in(&resource.connections).await?;
    for key in keys {
        local.delete_undo(*key).await?;
    }
    local.commit().await
}

pub(super) fn branch_key(branch: &PhaseTwoBranch) -> UndoKey {
    (parse_xid(&branch.xid), BranchId(branch.branch_id))
}

pub(super) fn branch_outcome(
    branch: &PhaseTwoBranch,
    decision: Decision,
    result: Outcome,
) -> BranchOutcome {
    BranchOutcome {
        xid: branch.xid.clone(),
        branch_id: branch.branch_id,
        decision: decision.into(),
        result: Some(result),
        ..BranchOutcome::default()
    }
}

fn retryable(error: DatabaseError) -> Outcome {
    Outcome::Retryable(Retryable { error: format!("{error:?}") })
}
