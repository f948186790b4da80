//! Sagas on model databases: the steps of `saga/participant.rs`, with the product's decision table
//! of the fence, and whoever starts sagas and waits for them.
//!
//! Left out: outputs that mean anything, time limits, and settling the fences of ended sagas.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{
    BranchOutcome, CancelSagaRequest, Decision, Done, GetSagaRequest, Given, PhaseTwoBranch,
    PhaseTwoCall, Refused, ReplyWhen, Retryable, SagaDefinition, SagaStepKind, StartSagaRequest,
};
use handfast_rm_core::fence::{Operation, Pass, Refusal};

use super::ClientProcess;
use super::fenced::{NotDone, fenced};
use super::phase_two::{key_of, outcome};
use crate::database::{Database, UndoKey};
use crate::saga::StepWork;
use crate::world::{MS, SECOND};

/// How often a start that had no answer is repeated.
const STARTS_MAX: u32 = 5;
/// How long a launcher waits for the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of the steps of a database, as the coordinator knows it.
pub(crate) fn saga_resource_of(database: usize) -> String {
    format!("steps-{database}")
}

impl ClientProcess {
    /// Calls the actions or compensations of a call, beside each other.
    pub(super) async fn carry_out_steps(
        self: &Arc<Self>,
        database: &Arc<Database>,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let carried_out = call.branches.iter().map(async |branch| {
            let result = self.carry_out_step(database, branch, decision).await;
            outcome(branch, decision, result)
        });
        join_all(carried_out).await
    }

    async fn carry_out_step(
        self: &Arc<Self>,
        database: &Arc<Database>,
        branch: &PhaseTwoBranch,
        decision: Decision,
    ) -> Outcome {
        let (key, kind) = (key_of(branch), branch.step.as_ref().map(|step| step.kind()));
        let (Some(work), Some(kind)) = (StepWork::from_bytes(&branch.application_data), kind)
        else {
            let what = format!("{}/{} came without its step", branch.xid, branch.branch_id);
            self.world.violate("total", what);
            return Outcome::Retryable(Retryable { error: "no step".to_owned() });
        };
        let ended = match decision {
            Decision::Commit => act(database, key, work, kind).await,
            Decision::RollBack | Decision::Unspecified => compensate(database, key, work).await,
        };
        self.world
            .log(self.owner(), || format!("step {}/{} {decision:?}: {ended:?}", key.0, key.1));
        ended.unwrap_or_else(|error| failed(&error))
    }

    /// Starts sagas while there are any.
    pub(super) async fn run_sagas(self: Arc<Self>) {
        let shop = Arc::clone(&self.cluster.shop);
        self.world.sleep(self.world.between(MS, 2 * SECOND)).await;
        while let Some(number) = shop.next_saga() {
            let databases = self.cluster.databases.len();
            let rows = self.world.plan.rows;
            let definition = self.world.draw(|random| crate::saga::draw(random, databases, rows));
            let business = self.cluster.enter();
            self.run_saga(format!("saga-{number}"), definition).await;
            drop(business);
            self.world.sleep(self.world.between(MS, 3 * SECOND)).await;
        }
    }

    async fn run_saga(self: &Arc<Self>, key: String, definition: SagaDefinition) {
        let application = format!("service-{}", self.index);
        let request = StartSagaRequest { application, key, definition: Some(definition) };
        let Some(xid) = self.start_saga(request).await else { return };
        if self.world.draw(|random| random.happens(150)) {
            self.world.sleep(self.world.between(MS, 3 * SECOND)).await;
            let request = CancelSagaRequest { xid: xid.clone(), reason: "mind".to_owned() };
            let cancelled = self.ask("cancel_saga", Ask::CancelSaga(request), Duration::ZERO).await;
            self.world
                .log(self.owner(), || format!("saga {xid}: cancelled: {:?}", cancelled.err()));
        }
        let request = GetSagaRequest { xid: xid.clone(), reply_when: ReplyWhen::Finished.into() };
        let ended = self.ask("get_saga", Ask::GetSaga(request), PATIENCE).await;
        self.world.log(self.owner(), || match ended {
            Ok(Answer::Saga(reply)) => format!("saga {xid}: told {:?}", reply.status()),
            other => format!("saga {xid}: told nothing: {other:?}"),
        });
    }

    /// Started again under its key, a saga is found.
    async fn start_saga(self: &Arc<Self>, request: StartSagaRequest) -> Option<String> {
        for _ in 0..STARTS_MAX {
            let ask = Ask::StartSaga(request.clone());
            match self.ask("start_saga", ask, Duration::ZERO).await {
                Ok(Answer::Saga(reply)) => return Some(reply.xid),
                other => self.world.log(self.owner(), || format!("saga not started: {other:?}")),
            }
            self.world.sleep(self.world.between(10 * MS, SECOND)).await;
        }
        None
    }
}

async fn act(
    database: &Arc<Database>,
    key: UndoKey,
    work: StepWork,
    kind: SagaStepKind,
) -> Result<Outcome, NotDone> {
    let edits = work.edits(Operation::Action);
    match fenced(database, key, Operation::Action, &edits, work.refuses).await {
        Ok(_) => Ok(given()),
        Err(NotDone::Business) if kind == SagaStepKind::Pivot => {
            refuse_for_good(database, key).await
        }
        Err(error) => Err(error),
    }
}

/// A pivot's refusal bars its late attempts; one that was done meanwhile wins.
async fn refuse_for_good(database: &Arc<Database>, key: UndoKey) -> Result<Outcome, NotDone> {
    match fenced(database, key, Operation::Compensation, &[], true).await {
        Ok(_) => Ok(refused("on purpose")),
        Err(NotDone::Business) => Ok(given()),
        Err(error) => Err(error),
    }
}

async fn compensate(
    database: &Arc<Database>,
    key: UndoKey,
    work: StepWork,
) -> Result<Outcome, NotDone> {
    let edits = work.edits(Operation::Compensation);
    let (Pass::Run | Pass::AlreadyDone | Pass::Empty) =
        fenced(database, key, Operation::Compensation, &edits, false).await?;
    Ok(Outcome::Done(Done {}))
}

fn given() -> Outcome {
    Outcome::Given(Given { output: b"null".to_vec() })
}

fn refused(error: &str) -> Outcome {
    Outcome::Refused(Refused { error: error.to_owned(), ..Refused::default() })
}

fn failed(error: &NotDone) -> Outcome {
    match error {
        NotDone::Business => refused("on purpose"),
        NotDone::Fence(Refusal::Barred) => refused("barred"),
        NotDone::Database(_) | NotDone::Fence(Refusal::NotTried | Refusal::Contradicted) => {
            Outcome::Retryable(Retryable { error: format!("{error:?}") })
        }
    }
}
