//! Phase two of a resource: undo rows go away after a commit, rows go back after a rollback.

mod counters;
mod dirty_row;
mod last_branch;
mod load_table;
mod obstacle;
mod put_back;
mod referring;
mod report;
mod restore;
mod rollback;
mod settle;
mod survey;
mod whole_rows;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, PhaseTwoBranch, PhaseTwoCall, Question, Refused, Retryable,
};
use sqlx::Pool;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use last_branch::{LocalOutcome, local_outcome};
use rollback::{Restored, roll_back};

use crate::at::crash_point::crash_point;
use crate::at::database::AtDatabase;
use crate::at::database::begin::acquire;
use crate::at::error::with_causes;
use crate::at::guarded;
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::StaleGuard;
use crate::at::undo::table as undo_table;
use crate::coordinator::BranchHandler;

/// How often old guard rows are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// Phase two of one resource.
#[derive(Debug)]
pub(crate) struct AtBranchHandler<DB: AtDatabase> {
    shared: Arc<ResourceState<DB>>,
    /// One DELETE at a time: a second one would only wait for the first one's locks. Holds when to
    /// look for old guard rows next.
    sweep_due: Mutex<Instant>,
}

impl<DB: AtDatabase> AtBranchHandler<DB> {
    pub(crate) fn new(shared: Arc<ResourceState<DB>>) -> Self {
        Self { shared, sweep_due: Mutex::new(Instant::now()) }
    }

    /// Deletes the undo rows of branches, and answers only when they are gone: an answer given
    /// before would leave rows behind when this process dies.
    async fn commit(&self, branches: &[PhaseTwoBranch]) -> Result<(), sqlx::Error> {
        let mut sweep_due = self.sweep_due.lock().await;
        let mut connection = acquire(&self.shared.pool).await?;
        let names: Vec<(&str, u64)> =
            branches.iter().map(|branch| (branch.xid.as_str(), branch.branch_id)).collect();
        crash_point("in-phase-two-before-commit");
        // Each chunk commits by itself. Cut off in between, the call is repeated and finds the
        // first rows gone (EFFECTS-REPEAT).
        for chunk in names.chunks(undo_table::DELETE_MAX) {
            undo_table::delete_many::<DB>(&mut connection, chunk).await?;
        }
        crash_point("after-phase-two-commit");
        if self.shared.catalogue.knows_guards() {
            names.iter().for_each(|(xid, id)| self.shared.guarded_leftovers.delete(xid, *id));
        }
        if *sweep_due <= Instant::now() {
            // The branches are done. A sweep that fails is tried at the next interval, and must not
            // make the coordinator repeat the call.
            *sweep_due = Instant::now() + SWEEP_EVERY;
            match undo_table::delete_old_guards::<DB>(&mut connection).await {
                // There may be more.
                Ok(deleted) if deleted >= undo_table::DELETE_MAX as u64 => {
                    *sweep_due = Instant::now()
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "old guard rows not deleted"),
            }
            if let Err(error) = guarded::sweep::<DB>(&mut connection).await {
                tracing::warn!(%error, "guarded rows of ended branches not deleted");
            }
        }
        Ok(())
    }

    /// Says whether a branch that decides its global has committed (LAST-BRANCH).
    async fn settle(&self, branch: &PhaseTwoBranch) -> Outcome {
        match local_outcome(&self.shared, branch).await {
            Ok(LocalOutcome::Committed) => Outcome::Done(Done {}),
            Ok(LocalOutcome::RolledBack) => {
                let error = "not committed locally, and barred from it".to_owned();
                Outcome::Refused(Refused { error, ..Refused::default() })
            }
            Err(error) => {
                let (xid, branch) = (&branch.xid, branch.branch_id);
                tracing::warn!(xid, branch, %error, "not known whether the branch has committed");
                retryable(&error)
            }
        }
    }

    async fn roll_back(&self, branch: &PhaseTwoBranch) -> Outcome {
        match roll_back(&self.shared, branch).await {
            Ok(Restored::Done) => Outcome::Done(Done {}),
            Ok(Restored::Refused(refused)) => Outcome::Refused(refused),
            Err(error) => {
                tracing::warn!(
                    xid = branch.xid, branch = branch.branch_id, %error,
                    "branch not rolled back, to be tried again"
                );
                retryable(&error)
            }
        }
    }
}

#[async_trait]
impl<DB: AtDatabase> BranchHandler for AtBranchHandler<DB> {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let mut outcomes = Vec::with_capacity(call.branches.len());
        if call.question() == Question::Settle {
            for branch in &call.branches {
                let result = Some(self.settle(branch).await);
                let question = Question::Settle.into();
                outcomes.push(BranchOutcome { question, result, ..outcome_of(branch) });
            }
        } else if decision == Decision::RollBack {
            // In the order given, which is the reverse of their registration.
            for branch in &call.branches {
                let result = self.roll_back(branch).await;
                outcomes.push(outcome(branch, decision, result));
            }
        } else if decision == Decision::Commit {
            let result = match self.commit(&call.branches).await {
                Ok(()) => Outcome::Done(Done {}),
                Err(error) => retryable(&error),
            };
            let finished = call.branches.iter();
            outcomes.extend(finished.map(|branch| outcome(branch, decision, result.clone())));
        }
        // A later version's decision leaves every branch without an outcome, which counts as
        // retryable.
        outcomes
    }
}

/// Removes guard rows that bar no branch any more, until the resource is gone.
pub(crate) async fn remove_stale_guards<DB: AtDatabase>(
    pool: Pool<DB>,
    mut stale_guards: mpsc::Receiver<StaleGuard>,
) {
    let mut guards = Vec::new();
    while stale_guards.recv_many(&mut guards, undo_table::DELETE_MAX).await > 0 {
        let names: Vec<(&str, u64)> =
            guards.iter().map(|(xid, branch)| (xid.as_str(), *branch)).collect();
        let removed = match pool.acquire().await {
            Ok(mut connection) => undo_table::delete_many::<DB>(&mut connection, &names).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, guards = names.len(), "guard rows left to the daily sweep");
        }
        guards.clear();
    }
}

fn outcome(branch: &PhaseTwoBranch, decision: Decision, result: Outcome) -> BranchOutcome {
    BranchOutcome { decision: decision.into(), result: Some(result), ..outcome_of(branch) }
}

fn outcome_of(branch: &PhaseTwoBranch) -> BranchOutcome {
    let (xid, branch_id) = (branch.xid.clone(), branch.branch_id);
    BranchOutcome { xid, branch_id, ..BranchOutcome::default() }
}

fn retryable(error: &sqlx::Error) -> Outcome {
    Outcome::Retryable(Retryable { error: with_causes(error) })
}
