//! Phase two on a model database: lanes as in `link/lanes.rs`, and the steps of `at/phase_two.rs`,
//! `at/rollback.rs` and `at/restore.rs`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, Mode, PhaseTwoBranch, PhaseTwoCall, Refused, Resource, Retryable,
};

use super::ClientProcess;
use super::at::{AtResource, number_of};
use crate::model::database::{DatabaseError, Local, Undo, UndoItem, UndoKey};

/// How often a guard row may lose the race against a local transaction that commits just then.
const RACES_MAX: usize = 3;

/// The calls of one resource that wait for those before them, commits beside rollbacks.
#[derive(Debug)]
pub(super) struct Lane {
    resource_id: String,
    mode: LaneMode,
    database: usize,
    commits: Mutex<Waiting>,
    rollbacks: Mutex<Waiting>,
}

/// What the calls of a lane are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneMode {
    At,
    Tcc,
    Saga,
    Xa,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: VecDeque<PhaseTwoCall>,
    busy: bool,
}

/// What came of one attempt to roll back.
enum Attempt {
    Done,
    /// The undo row came between the look and the guard.
    Raced,
    Refused(String),
}

impl Lane {
    pub(super) fn new(resource_id: String, mode: LaneMode, database: usize) -> Self {
        let (commits, rollbacks) = Default::default();
        Self { resource_id, mode, database, commits, rollbacks }
    }

    pub(super) fn mode(&self) -> LaneMode {
        self.mode
    }

    /// As it is registered.
    pub(super) fn resource(&self) -> Resource {
        let mode = match self.mode {
            LaneMode::At => Mode::At,
            LaneMode::Tcc => Mode::Tcc,
            LaneMode::Saga => Mode::Saga,
            LaneMode::Xa => Mode::Xa,
        };
        let (id, label) = (self.resource_id.clone(), self.resource_id.clone());
        Resource { id, mode: mode.into(), label }
    }

    fn of(&self, decision: Decision) -> MutexGuard<'_, Waiting> {
        let waiting = if decision == Decision::Commit { &self.commits } else { &self.rollbacks };
        waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientProcess {
    /// Runs a call behind those of its lane.
    pub(super) fn put_in_lane(self: &Arc<Self>, call: PhaseTwoCall) {
        let Some(at) = self.lanes.iter().position(|lane| lane.resource_id == call.resource_id)
        else {
            let name = &call.resource_id;
            return self.world.violate("total", format!("call for a foreign resource {name}"));
        };
        let decision = call.decision();
        let mut waiting = self.lanes[at].of(decision);
        waiting.calls.push_back(call);
        if !std::mem::replace(&mut waiting.busy, true) {
            self.world.spawn(self.owner(), Arc::clone(self).work_off(at, decision));
        }
    }

    async fn work_off(self: Arc<Self>, at: usize, decision: Decision) {
        loop {
            let call = {
                let mut waiting = self.lanes[at].of(decision);
                let next = waiting.calls.pop_front();
                waiting.busy = next.is_some();
                next
            };
            let Some(call) = call else { return };
            let (mode, at) = (self.lanes[at].mode, self.lanes[at].database);
            let outcomes = match (mode, decision) {
                (LaneMode::Xa, _) => self.finish_prepared(&self.cluster.databases[at], &call).await,
                (LaneMode::Tcc, _) => self.finish_tried(&self.cluster.databases[at], &call).await,
                (LaneMode::Saga, _) => {
                    self.carry_out_steps(&self.cluster.databases[at], &call).await
                }
                (LaneMode::At, Decision::Commit) => self.commit_branches(at, &call).await,
                (LaneMode::At, Decision::RollBack | Decision::Unspecified) => {
                    self.roll_back(at, &call).await
                }
            };
            self.finished(outcomes);
        }
    }

    async fn commit_branches(
        self: &Arc<Self>,
        at: usize,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let resource = &self.resources[at];
        let keys: Vec<UndoKey> = call.branches.iter().map(key_of).collect();
        let result = match delete_undo(resource, &keys).await {
            Ok(()) => Outcome::Done(Done {}),
            Err(error) => retryable(error),
        };
        let outcomes = call.branches.iter();
        outcomes.map(|branch| outcome(branch, Decision::Commit, result.clone())).collect()
    }

    /// One after the other, in the order given.
    async fn roll_back(self: &Arc<Self>, at: usize, call: &PhaseTwoCall) -> Vec<BranchOutcome> {
        let resource = Arc::clone(&self.resources[at]);
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = match self.roll_back_branch(&resource, key_of(branch)).await {
                Ok(Attempt::Done) => Outcome::Done(Done {}),
                Ok(Attempt::Raced) => Outcome::Retryable(Retryable { error: "raced".to_owned() }),
                Ok(Attempt::Refused(error)) => {
                    Outcome::Refused(Refused { error, ..Refused::default() })
                }
                Err(error) => retryable(error),
            };
            outcomes.push(outcome(branch, Decision::RollBack, result));
        }
        outcomes
    }

    async fn roll_back_branch(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        key: UndoKey,
    ) -> Result<Attempt, DatabaseError> {
        let mut attempt = Attempt::Raced;
        for _ in 0..RACES_MAX {
            attempt = self.attempt_to_roll_back(resource, key).await?;
            if !matches!(attempt, Attempt::Raced) {
                break;
            }
        }
        Ok(attempt)
    }

    async fn attempt_to_roll_back(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        key: UndoKey,
    ) -> Result<Attempt, DatabaseError> {
        // Before the look for its undo row: a branch that has ended by then has its row in place.
        let late = resource.may_come_late(key.1);
        let local = resource.database.begin().await?;
        let items = match local.find_undo(key).await? {
            Some(Undo::Guard) => return local.roll_back().await.map(|()| Attempt::Done),
            Some(Undo::Log(items)) => items,
            None if !late => return local.roll_back().await.map(|()| Attempt::Done),
            None => return self.put_guard(resource, local, key).await,
        };
        // HELD-UNDO: without its undo row an event would count as committed.
        if self.world.plan.modes.contains(&crate::plan::Mode::Outbox) {
            local.remove_held(key).await?;
        }
        match restore(&local, &items).await? {
            Some(dirty) => local.roll_back().await.map(|()| Attempt::Refused(dirty)),
            None => {
                local.delete_undo(key).await?;
                local.commit().await.map(|()| Attempt::Done)
            }
        }
    }

    /// Keeps a late local transaction out.
    async fn put_guard(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        local: Local,
        key: UndoKey,
    ) -> Result<Attempt, DatabaseError> {
        let guarded = local.insert_unless_there(key, Undo::Guard).await?;
        local.commit().await?;
        if !guarded {
            return Ok(Attempt::Raced);
        }
        if resource.guarded(key.1) {
            self.remove_guard(resource, key);
        }
        Ok(Attempt::Done)
    }

    /// Removes a guard row that bars nobody any more, once.
    pub(super) fn remove_guard(self: &Arc<Self>, resource: &Arc<AtResource>, key: UndoKey) {
        let (process, resource) = (Arc::clone(self), Arc::clone(resource));
        self.world.spawn(self.owner(), async move {
            if let Err(error) = delete_undo(&resource, &[key]).await {
                process.world.log(process.owner(), || format!("guard row stays: {error:?}"));
            }
        });
    }
}

/// Puts rows back that are as the branch left them; says which one is not.
async fn restore(local: &Local, items: &[UndoItem]) -> Result<Option<String>, DatabaseError> {
    // The newest change first: each item finds the rows as it left them.
    for item in items.iter().rev() {
        let current = local.lock_row(item.row).await?;
        if current.value == item.after.value {
            local.update(item.row, item.before).await?;
        } else if current.value != item.before.value {
            return Ok(Some(format!("dirty write: row {}", item.row.0)));
        }
    }
    Ok(None)
}

async fn delete_undo(resource: &AtResource, keys: &[UndoKey]) -> Result<(), DatabaseError> {
    let local = resource.database.begin().await?;
    for key in keys {
        local.delete_undo(*key).await?;
    }
    local.commit().await
}

pub(super) fn key_of(branch: &PhaseTwoBranch) -> UndoKey {
    (number_of(&branch.xid), BranchId(branch.branch_id))
}

pub(super) fn outcome(
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
