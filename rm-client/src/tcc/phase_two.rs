//! Phase two of an action: confirm after a commit, cancel after a rollback.
//!
//! It answers with the outcome of one attempt. The coordinator decides when the next one is made.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, PhaseTwoBranch, PhaseTwoCall, Refused, Resolution, Retryable,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::TccError;
use super::resource::Shared;
use super::{Tcc, TccBranch};
use crate::at::{crash_point, with_causes};
use crate::coordinator::BranchHandler;
use crate::fence::{FenceError, Operation, purge};
use crate::limit;
use crate::xid::Xid;

/// How many branches of one call are finished concurrently (BOUNDED). Branches whose order matters
/// are never in one call: the coordinator has the later one cancelled first.
const AT_A_TIME: usize = 8;
/// How often fences of finished branches are purged.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// How long one purge may take: a database whose host has vanished never answers.
const SWEEP_MAX: Duration = Duration::from_secs(300);
/// How long the fence of a finished branch is kept: longer than any caller repeats an operation.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The most rows that one purge removes.
const SWEPT_MAX: u64 = 100_000;

/// Phase two of one resource.
pub(super) struct TccPhaseTwo<T: Tcc> {
    shared: Arc<Shared<T>>,
    /// When fences of finished branches are purged next.
    sweep_due: Mutex<Instant>,
}

impl<T: Tcc> TccPhaseTwo<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared, sweep_due: Mutex::new(Instant::now()) }
    }

    async fn finish_branch(&self, branch: PhaseTwoBranch, decision: Decision) -> BranchOutcome {
        let operation = match decision {
            Decision::Commit => Operation::Confirm,
            Decision::RollBack | Decision::Unspecified => Operation::Cancel,
        };
        let result = match TccBranch::of(&branch, &self.shared.name) {
            Ok(named) => self.attempt_within_limits(operation, &branch, &named).await,
            Err(error) => Outcome::Retryable(Retryable { error }),
        };
        crash_point("tcc-after-phase-two");
        self.log(&branch, operation, &result);
        BranchOutcome {
            xid: branch.xid,
            branch_id: branch.branch_id,
            decision: decision.into(),
            result: Some(result),
            ..BranchOutcome::default()
        }
    }

    /// Runs one attempt within the action's time limit, so that an action that hangs or panics
    /// delays its own branch alone. Cutting it off is safe, during COMMIT too: the fence shows the
    /// next attempt whether the operation took effect.
    async fn attempt_within_limits(
        &self,
        operation: Operation,
        branch: &PhaseTwoBranch,
        named: &TccBranch,
    ) -> Outcome {
        let attempt = self.attempt(operation, branch, named);
        limit::within(T::TIME_LIMIT, attempt).await.unwrap_or_else(|cut_off| {
            Outcome::Retryable(Retryable { error: format!("{operation}: {cut_off}") })
        })
    }

    async fn attempt(
        &self,
        operation: Operation,
        branch: &PhaseTwoBranch,
        named: &TccBranch,
    ) -> Outcome {
        // Before the input is read: an operator can also end a branch whose input no version reads.
        let ended = if branch.resolution() == Resolution::AcceptCurrent {
            self.shared.accept(named).await
        } else {
            let input = match serde_json::from_slice(&branch.application_data) {
                Ok(input) => input,
                Err(error) => return unreadable(&self.shared.name, &error),
            };
            self.shared.run(operation, &input, named).await
        };
        match ended {
            Ok(()) => Outcome::Done(Done {}),
            Err(error) => self.unfinished(operation, &error),
        }
    }

    /// Returns the outcome of a failed attempt. A confirm is never refused: the global is
    /// committed.
    fn unfinished(&self, operation: Operation, error: &TccError<T::Error>) -> Outcome {
        let is_final = match error {
            TccError::Action(error) => self.shared.action.is_hopeless(error),
            TccError::Fence(FenceError::Contradicted { .. }) => true,
            TccError::Fence(_)
            | TccError::Coordinator(_)
            | TccError::Input { .. }
            | TccError::InputTooLarge { .. } => false,
        };
        let code = error.code();
        let error = format!("{operation}: {} ({code})", with_causes(error));
        if is_final && operation == Operation::Cancel {
            return Outcome::Refused(Refused { error, ..Refused::default() });
        }
        Outcome::Retryable(Retryable { error })
    }

    fn log(&self, branch: &PhaseTwoBranch, operation: Operation, outcome: &Outcome) {
        let (xid, id, resource) = (&branch.xid, branch.branch_id, &self.shared.name);
        match outcome {
            Outcome::Done(_) | Outcome::Given(_) => {
                tracing::debug!(xid, branch = id, resource, %operation, "done");
            }
            Outcome::Retryable(Retryable { error }) => tracing::warn!(
                xid, branch = id, resource, %operation, error,
                "branch not finished, to be tried again"
            ),
            Outcome::Refused(Refused { error, .. }) => tracing::error!(
                xid, branch = id, resource, %operation, error,
                "branch waits for an operator"
            ),
        }
    }

    /// Removes the fences of branches that finished long ago, in the background, if that is due.
    fn sweep(&self) {
        // Another call is deciding about the same sweep, and no outcome waits for it.
        let Ok(mut sweep_due) = self.sweep_due.try_lock() else { return };
        if *sweep_due > Instant::now() {
            return;
        }
        // Before the work, so that a database that fails is not swept again with every call.
        *sweep_due = Instant::now() + SWEEP_EVERY;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let resource = &shared.name;
            match tokio::time::timeout(SWEEP_MAX, purge(&shared.pool, KEPT, SWEPT_MAX)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, resource, "fences left to the next sweep");
                }
                Err(_) => tracing::warn!(resource, "a sweep of fences took too long"),
            }
        });
    }
}

impl TccBranch {
    /// Returns the branch that a call concerns.
    fn of(branch: &PhaseTwoBranch, resource: &str) -> Result<Self, String> {
        let xid = Xid::new(&branch.xid).map_err(|error| error.to_string())?;
        Self::new(xid, branch.branch_id, resource).map_err(|error| error.to_string())
    }
}

/// Returns the outcome for an input that is not readable. Another version of the service may be
/// able to read it, so the coordinator should try again.
fn unreadable(resource: &str, error: &serde_json::Error) -> Outcome {
    let error = format!("the input is not of this version of {resource}: {error}");
    Outcome::Retryable(Retryable { error })
}

#[async_trait]
impl<T: Tcc> BranchHandler for TccPhaseTwo<T> {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let decision = call.decision();
        if decision == Decision::Unspecified {
            // A decision of a later version: nothing is done, and no outcome is reported.
            return Vec::new();
        }
        let finishing = call.branches.into_iter().map(|b| self.finish_branch(b, decision));
        let outcomes = stream::iter(finishing).buffer_unordered(AT_A_TIME).collect().await;
        self.sweep();
        outcomes
    }
}
