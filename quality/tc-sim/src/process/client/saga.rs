//! Sagas on model databases: the steps of `saga/participant.rs`, with the product's decision table
//! of the fence, and the caller, which starts sagas and waits for them.
//!
//! Not modelled: meaningful outputs, time limits, and the settling of the fences of ended sagas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{
    BranchOutcome, CancelSagaRequest, Decision, Done, GetSagaRequest, Given, PhaseTwoBranch,
    PhaseTwoCall, Refused, ReplyWhen, Retryable, SagaDefinition, SagaStepKind, StartSagaRequest,
};
use handfast_rm_core::fence::{FenceRefusal, Operation, Pass};

use super::ClientProcess;
use super::fenced::{OperationError, run_fenced};
use super::phase_two::{branch_key, branch_outcome};
use crate::model::database::Database;
use crate::model::values::UndoKey;
use crate::workload::saga::{self, StepWork};
use crate::world::{MS, SECOND};

/// How often a saga is started, if the start has no reply.
const STARTS_MAX: u32 = 5;
/// How long a caller waits for a saga's end.
const END_WAIT: Duration = Duration::from_secs(5);

impl ClientProcess {
    /// Runs the actions or compensations of a call, concurrently.
    pub(super) async fn run_saga_steps(
        self: &Arc<Self>,
        database: &Arc<Database>,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let steps = call.branches.iter().map(async |branch| {
            let result = self.run_saga_step(database, branch, decision).await;
            branch_outcome(branch, decision, result)
        });
        join_all(steps).await
    }

    async fn run_saga_step(
        self: &Arc<Self>,
        database: &Arc<Database>,
        branch: &PhaseTwoBranch,
        decision: Decision,
    ) -> Outcome {
        let (key, kind) = (branch_key(branch), branch.step.as_ref().map(|step| step.kind()));
        let (Some(work), Some(kind)) = (StepWork::from_bytes(&branch.application_data), kind)
        else {
            let what = format!("{}/{} came without its step", branch.xid, branch.branch_id);
            self.judge.report("total", what);
            return Outcome::Retryable(Retryable { error: "no step".to_owned() });
        };
        let ended = match decision {
            Decision::Commit => run_action(database, key, work, kind).await,
            Decision::RollBack | Decision::Unspecified => compensate(database, key, work).await,
        };
        self.world
            .log(self.owner(), || format!("step {}/{} {decision:?}: {ended:?}", key.0, key.1));
        ended.unwrap_or_else(|error| failed(&error))
    }

    /// Starts sagas while there are any.
    pub(super) async fn run_sagas(self: Arc<Self>) {
        let workload = Arc::clone(&self.installation.workload);
        self.world.sleep(self.world.between(MS, 2 * SECOND)).await;
        while let Some(number) = workload.take_saga() {
            let databases = self.installation.databases.len();
            let rows = self.world.plan.rows;
            let definition = self.world.draw(|random| saga::draw(random, databases, rows));
            let in_progress = workload.begin_work();
            self.run_saga(format!("saga-{number}"), definition).await;
            drop(in_progress);
            self.world.sleep(self.world.between(MS, 3 * SECOND)).await;
        }
    }

    async fn run_saga(self: &Arc<Self>, key: String, definition: SagaDefinition) {
        let application = format!("service-{}", self.index);
        let (definition, labels) = (Some(definition), BTreeMap::new());
        let traceparent = String::new();
        let request = StartSagaRequest { application, key, definition, traceparent, labels };
        let Some(xid) = self.start_saga(request).await else { return };
        if self.world.draw(|random| random.happens(150)) {
            self.world.sleep(self.world.between(MS, 3 * SECOND)).await;
            let request = CancelSagaRequest {
                xid: xid.clone(),
                reason: "mind".to_owned(),
                ..CancelSagaRequest::default()
            };
            let cancelled =
                self.request("cancel_saga", ClientBody::CancelSaga(request), Duration::ZERO).await;
            self.world
                .log(self.owner(), || format!("saga {xid}: cancelled: {:?}", cancelled.err()));
        }
        let request = GetSagaRequest { xid: xid.clone(), reply_when: ReplyWhen::Finished.into() };
        let ended = self.request("get_saga", ClientBody::GetSaga(request), END_WAIT).await;
        self.world.log(self.owner(), || match ended {
            Ok(ServerBody::Saga(reply)) => format!("saga {xid}: reported {:?}", reply.status()),
            other => format!("saga {xid}: no report: {other:?}"),
        });
    }

    /// Starts a saga, and repeats a start without a reply: under its key a started saga is found.
    async fn start_saga(self: &Arc<Self>, request: StartSagaRequest) -> Option<String> {
        for _ in 0..STARTS_MAX {
            let body = ClientBody::StartSaga(request.clone());
            match self.request("start_saga", body, Duration::ZERO).await {
                Ok(ServerBody::Saga(reply)) => return Some(reply.xid),
                other => self.world.log(self.owner(), || format!("saga not started: {other:?}")),
            }
            self.world.sleep(self.world.between(10 * MS, SECOND)).await;
        }
        None
    }
}

async fn run_action(
    database: &Arc<Database>,
    key: UndoKey,
    work: StepWork,
    kind: SagaStepKind,
) -> Result<Outcome, OperationError> {
    let edits = work.edits(Operation::Action);
    match run_fenced(database, key, Operation::Action, &edits, work.refuses).await {
        Ok(_) => Ok(given()),
        Err(OperationError::Refused) if kind == SagaStepKind::Pivot => {
            refuse_for_good(database, key).await
        }
        Err(error) => Err(error),
    }
}

/// Refuses a pivot, and bars its late attempts. An attempt that has succeeded meanwhile wins.
async fn refuse_for_good(
    database: &Arc<Database>,
    key: UndoKey,
) -> Result<Outcome, OperationError> {
    // A compensation with nothing to run moves the fence to barred. One that would run, because an
    // attempt has succeeded, is compensated by `refuses`.
    match run_fenced(database, key, Operation::Compensation, &[], true).await {
        Ok(_) => Ok(refused("on purpose")),
        Err(OperationError::Refused) => Ok(given()),
        Err(error) => Err(error),
    }
}

async fn compensate(
    database: &Arc<Database>,
    key: UndoKey,
    work: StepWork,
) -> Result<Outcome, OperationError> {
    let edits = work.edits(Operation::Compensation);
    let (Pass::Run | Pass::AlreadyDone | Pass::Empty) =
        run_fenced(database, key, Operation::Compensation, &edits, false).await?;
    Ok(Outcome::Done(Done {}))
}

fn given() -> Outcome {
    Outcome::Given(Given { output: b"null".to_vec() })
}

fn refused(error: &str) -> Outcome {
    Outcome::Refused(Refused { error: error.to_owned(), ..Refused::default() })
}

fn failed(error: &OperationError) -> Outcome {
    match error {
        OperationError::Refused => refused("on purpose"),
        OperationError::Fence(FenceRefusal::Barred) => refused("barred"),
        OperationError::Database(_)
        | OperationError::Fence(FenceRefusal::NotTried | FenceRefusal::Contradicted) => {
            Outcome::Retryable(Retryable { error: format!("{error:?}") })
        }
    }
}
