//! Phase two of a resource: carries the coordinator's decisions out on the database.

use std::sync::Arc;

use async_trait::async_trait;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, PhaseTwoBranch, PhaseTwoCall, Refused, Retryable,
};
use handfast_rm_core::two_phase::{BranchName, TwoPhaseVerdict, outcome, read};

use super::database::XaDatabase;
use super::finish::Finisher;
use super::state::XaState;
use crate::at::crash_point;
use crate::coordinator::BranchHandler;

/// Phase two of one resource.
#[derive(Debug)]
pub(super) struct XaBranchHandler<DB: XaDatabase> {
    shared: Arc<XaState<DB>>,
}

impl<DB: XaDatabase> XaBranchHandler<DB> {
    pub(super) fn new(shared: Arc<XaState<DB>>) -> Self {
        Self { shared }
    }
}

#[async_trait]
impl<DB: XaDatabase> BranchHandler for XaBranchHandler<DB> {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let mut finisher = Finisher::new(Arc::clone(&self.shared));
        let mut outcomes = Vec::with_capacity(call.branches.len());
        // In the order given, which for a rollback is the reverse of their registration.
        for branch in &call.branches {
            let result = finish(&mut finisher, call.decision(), branch).await;
            outcomes.push(BranchOutcome {
                xid: branch.xid.clone(),
                branch_id: branch.branch_id,
                decision: call.decision,
                result: Some(result),
                ..BranchOutcome::default()
            });
        }
        outcomes
    }
}

async fn finish<DB: XaDatabase>(
    finisher: &mut Finisher<DB>,
    decision: Decision,
    branch: &PhaseTwoBranch,
) -> Outcome {
    let (name, number) = match read(branch) {
        Ok(read) => read,
        Err(error) => return Outcome::Retryable(Retryable { error }),
    };
    crash_point("xa-before-phase-two");
    let finished = finisher.finish(decision, &name, number.as_deref()).await;
    crash_point("xa-after-phase-two");
    let verdict = finished.verdict;
    let outcome = outcome(decision, branch.resolution(), &name, finished);
    log(&name, verdict, &outcome);
    outcome
}

/// Logs a branch that ended against the decision as an error, a retry for debugging.
fn log(name: &BranchName, verdict: TwoPhaseVerdict, outcome: &Outcome) {
    let (Outcome::Refused(Refused { error, .. }) | Outcome::Retryable(Retryable { error })) =
        outcome
    else {
        return;
    };
    match verdict {
        TwoPhaseVerdict::Against => tracing::error!(xid = %name.xid, branch = name.branch, error),
        TwoPhaseVerdict::Again | TwoPhaseVerdict::Done => {
            tracing::debug!(xid = %name.xid, branch = name.branch, error, "to be tried again");
        }
    }
}
