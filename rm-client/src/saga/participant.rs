//! Runs steps: each with its action, behind the fence, in a local transaction.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use handfast_proto::v1::branch_outcome::Result as Ended;
use handfast_proto::v1::{
    self, BranchOutcome, Decision, Done, Given, PhaseTwoBranch, PhaseTwoCall, Refused, Retryable,
    SagaStepKind,
};
use sqlx::{Pool, Transaction};

use super::action::{SagaAction, SagaCall, StepError, from_json, to_json};
use super::settle;
use crate::at::{AtDatabase, crash_point};
use crate::connect::Handfast;
use crate::coordinator::{BranchHandler, Coordinator};
use crate::fence::{Fence, FenceError, Fenced, Operation};
use crate::limit;
use crate::xid::Xid;

/// A service as sagas see it: a resource with actions, on one database. Created by
/// [`Handfast::saga_participant`].
///
/// Several processes may register the same resource. A step goes to any of them.
#[must_use = "a participant takes part when it is registered"]
pub struct Participant<DB: AtDatabase> {
    coordinator: Coordinator,
    resource: String,
    steps: Steps<DB>,
}

/// The actions of a participant, and the database that they run on.
pub(super) struct Steps<DB: AtDatabase> {
    pub(super) pool: Pool<DB>,
    pub(super) settle_every: Duration,
    pub(super) settle_max: Duration,
    actions: BTreeMap<String, Arc<dyn Erased<DB>>>,
}

impl Handfast {
    /// Describes a service that takes part in sagas, under the name that their steps use. `pool` is
    /// the database that its actions change; [`Handfast::migrate`] must have been run on it.
    pub fn saga_participant<DB: AtDatabase>(
        &self,
        resource: impl Into<String>,
        pool: Pool<DB>,
    ) -> Participant<DB> {
        let (settle_every, settle_max) = (settle::SETTLE_EVERY, settle::SETTLE_MAX);
        Participant {
            coordinator: self.coordinator().clone(),
            resource: resource.into(),
            steps: Steps { pool, settle_every, settle_max, actions: BTreeMap::new() },
        }
    }
}

impl<DB: AtDatabase> Participant<DB> {
    /// Adds an action under the name that steps use. A second action of the same name replaces the
    /// first.
    pub fn action(mut self, name: impl Into<String>, action: impl SagaAction<DB>) -> Self {
        self.steps.actions.insert(name.into(), Arc::new(action));
        self
    }

    /// Sets how often the fences of steps whose saga has ended are settled, every 5 minutes unless
    /// set. Too short: the database and the coordinator are queried in vain. Too long: the
    /// coordinator has forgotten the saga, and the fence stays.
    pub fn settle_every(mut self, every: Duration) -> Self {
        self.steps.settle_every = every.max(Duration::from_millis(1));
        self
    }

    /// Sets how long one settling may take, 5 minutes unless set. After that it is cut off and left
    /// to the next one. Too short: a large number of fences is never settled completely. Too long:
    /// a database that has stopped answering delays the next settling.
    pub fn settle_max(mut self, limit: Duration) -> Self {
        self.steps.settle_max = limit.max(Duration::from_millis(1));
        self
    }

    /// Registers the participant, now and again after every reconnect, for as long as a clone of
    /// the connection lives. A background task settles the fences of steps whose saga has ended,
    /// and removes them a week later.
    pub fn register(self) {
        let resource = v1::Resource {
            id: self.resource,
            mode: v1::Mode::Saga.into(),
            label: label_of(self.steps.actions.len()),
        };
        let steps = Arc::new(self.steps);
        self.coordinator.register_resource(resource, Arc::clone(&steps) as Arc<dyn BranchHandler>);
        settle::start(&self.coordinator, &steps);
    }
}

impl<DB: AtDatabase> fmt::Debug for Participant<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<_> = self.steps.actions.keys().collect();
        f.debug_struct("Participant")
            .field("resource", &self.resource)
            .field("actions", &actions)
            .finish_non_exhaustive()
    }
}

/// An action with its types erased.
#[async_trait]
trait Erased<DB: AtDatabase>: Send + Sync {
    fn time_limit(&self) -> Duration;

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &[u8],
        call: &SagaCall,
    ) -> Result<Vec<u8>, StepError>;

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &[u8],
        call: &SagaCall,
    ) -> Result<(), StepError>;
}

#[async_trait]
impl<DB: AtDatabase, A: SagaAction<DB>> Erased<DB> for A {
    fn time_limit(&self) -> Duration {
        A::TIME_LIMIT
    }

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &[u8],
        call: &SagaCall,
    ) -> Result<Vec<u8>, StepError> {
        let input = from_json(input)?;
        to_json(&SagaAction::act(self, local, &input, call).await?)
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &[u8],
        call: &SagaCall,
    ) -> Result<(), StepError> {
        SagaAction::compensate(self, local, &from_json(input)?, call).await
    }
}

#[async_trait]
impl<DB: AtDatabase> BranchHandler for Steps<DB> {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let carried_out = call.branches.iter().map(async |branch| BranchOutcome {
            xid: branch.xid.clone(),
            branch_id: branch.branch_id,
            decision: decision.into(),
            question: v1::Question::None.into(),
            result: Some(self.carry_out(decision, branch).await),
        });
        futures::future::join_all(carried_out).await
    }
}

impl<DB: AtDatabase> Steps<DB> {
    async fn carry_out(&self, decision: Decision, branch: &PhaseTwoBranch) -> Ended {
        let ended = self.attempt(decision, branch).await;
        ended.unwrap_or_else(|error| {
            let (xid, step) = (&branch.xid, branch.branch_id);
            tracing::info!(xid, step, %error, "step not carried out");
            failed(&error)
        })
    }

    /// Runs one attempt within the action's time limit, so that an action that hangs or panics
    /// delays its own step alone. Cutting it off is safe, during COMMIT too: the fence shows the
    /// next attempt whether the work took effect.
    async fn attempt(
        &self,
        decision: Decision,
        branch: &PhaseTwoBranch,
    ) -> Result<Ended, StepError> {
        let (fence, call) = read(branch)?;
        let action = self.action(&call)?;
        let (operation, attempt) = match decision {
            Decision::Commit => {
                (Operation::Action, self.act(action, &fence, &call, branch).boxed())
            }
            Decision::RollBack => {
                (Operation::Compensation, self.compensate(action, &fence, &call, branch).boxed())
            }
            Decision::Unspecified => return Err(StepError::fail("the call has no decision")),
        };
        let ended = limit::within(action.time_limit(), attempt).await;
        ended.unwrap_or_else(|cut_off| Err(StepError::fail(format!("{operation}: {cut_off}"))))
    }

    async fn act(
        &self,
        action: &dyn Erased<DB>,
        fence: &Fence,
        call: &SagaCall,
        branch: &PhaseTwoBranch,
    ) -> Result<Ended, StepError> {
        crash_point("before-step");
        let ran = fence.run(&self.pool, Operation::Action, async |mut local| {
            run_action(action, fence, call, &branch.application_data, &mut local).await
        });
        let ended = match ran.await {
            Ok(Fenced::Ran(output)) => given(output),
            // The answer of the first call may be lost, and later steps need its output.
            Ok(Fenced::AlreadyDone | Fenced::Empty) => given(self.left(fence).await?),
            Err(StepError::Refused { reason }) if is_pivot(call) => {
                self.refuse_for_good(fence, reason).await?
            }
            Err(error) => return Err(error),
        };
        crash_point("after-step-commit");
        Ok(ended)
    }

    async fn compensate(
        &self,
        action: &dyn Erased<DB>,
        fence: &Fence,
        call: &SagaCall,
        branch: &PhaseTwoBranch,
    ) -> Result<Ended, StepError> {
        let ran = fence.run(&self.pool, Operation::Compensation, async |mut local| {
            run_compensation(action, call, &branch.application_data, &mut local).await
        });
        let (Fenced::Ran(()) | Fenced::AlreadyDone | Fenced::Empty) = ran.await?;
        crash_point("after-compensation-commit");
        Ok(Ended::Done(Done {}))
    }

    /// Makes the refusal of a pivot final. A pivot has no compensation that would bar a late
    /// attempt of its action, so the refusal bars it: the saga is compensated because of this
    /// answer, and no later attempt may contradict it. An attempt that has been committed meanwhile
    /// wins.
    async fn refuse_for_good(&self, fence: &Fence, reason: String) -> Result<Ended, StepError> {
        let barred = fence.run(&self.pool, Operation::Compensation, async |_| {
            Err::<(), _>(StepError::fail("done meanwhile"))
        });
        match barred.await {
            Ok(Fenced::Ran(()) | Fenced::AlreadyDone | Fenced::Empty) => {
                Ok(Ended::Refused(Refused { error: reason, ..Refused::default() }))
            }
            Err(StepError::Failed { .. }) => Ok(given(self.left(fence).await?)),
            Err(error) => Err(error),
        }
    }

    /// Returns the output that the action stored with its fence.
    async fn left(&self, fence: &Fence) -> Result<Vec<u8>, StepError> {
        let mut local = DB::begin(&self.pool).await?;
        Ok(fence.left(&mut local).await?.unwrap_or_default())
    }

    fn action(&self, call: &SagaCall) -> Result<&dyn Erased<DB>, StepError> {
        let name = &call.step.action;
        let unknown = || StepError::fail(format!("this process knows no action {name}"));
        self.actions.get(name).map(|action| &**action).ok_or_else(unknown)
    }
}

async fn run_action<DB: AtDatabase>(
    action: &dyn Erased<DB>,
    fence: &Fence,
    call: &SagaCall,
    input: &[u8],
    local: &mut Transaction<'_, DB>,
) -> Result<Vec<u8>, StepError> {
    let output = action.act(local, input, call).await?;
    // Stored in the transaction of the work, so that a later attempt that finds the work done can
    // return its output.
    if let Err(error) = fence.leave(local, &output).await {
        // The output would be as large the next time, so the error lasts.
        let is_lasting = matches!(error, FenceError::ContextTooLarge { .. });
        return Err(if is_lasting { StepError::refuse(error.to_string()) } else { error.into() });
    }
    crash_point("in-step-before-commit");
    Ok(output)
}

async fn run_compensation<DB: AtDatabase>(
    action: &dyn Erased<DB>,
    call: &SagaCall,
    input: &[u8],
    local: &mut Transaction<'_, DB>,
) -> Result<(), StepError> {
    action.compensate(local, input, call).await?;
    crash_point("in-compensation-before-commit");
    Ok(())
}

fn read(branch: &PhaseTwoBranch) -> Result<(Fence, SagaCall), StepError> {
    let step = branch.step.clone().ok_or_else(|| StepError::fail("the call is of no step"))?;
    let xid = Xid::new(&branch.xid).map_err(|error| StepError::fail(error.to_string()))?;
    let fence = Fence::new(&xid, branch.branch_id, &step.action)?;
    Ok((fence, SagaCall { xid, branch: branch.branch_id, step }))
}

fn is_pivot(call: &SagaCall) -> bool {
    call.step.kind() == SagaStepKind::Pivot
}

/// The number of actions, for operators.
fn label_of(actions: usize) -> String {
    if actions == 1 { "1 action".to_owned() } else { format!("{actions} actions") }
}

fn given(output: Vec<u8>) -> Ended {
    Ended::Given(Given { output })
}

/// Converts an error into the answer to the coordinator, which says whether trying again can help.
fn failed(error: &StepError) -> Ended {
    match error {
        // Once a fence bars an action it does so for ever, so another call would be answered alike.
        StepError::Refused { .. } | StepError::Fence(FenceError::Barred { .. }) => {
            Ended::Refused(Refused { error: error.to_string(), ..Refused::default() })
        }
        StepError::Failed { .. } | StepError::Database(_) | StepError::Fence(_) => {
            Ended::Retryable(Retryable { error: error.to_string() })
        }
    }
}
