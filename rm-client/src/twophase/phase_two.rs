//! Phase two of a resource: what the coordinator has decided is told to the database.

use std::sync::Arc;

use async_trait::async_trait;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, PhaseTwoBranch, PhaseTwoCall, Refused, Resolution, Retryable,
};

use super::database::XaDatabase;
use super::error::XaError;
use super::finish::{Finished, Finisher};
use super::name::BranchName;
use super::note::read;
use super::resource::Shared;
use super::verdict::Verdict;
use crate::at::crash_point::crash_point;
use crate::coordinator::PhaseTwo;

/// Phase two of one resource.
#[derive(Debug)]
pub(super) struct XaPhaseTwo<DB: XaDatabase> {
    shared: Arc<Shared<DB>>,
}

impl<DB: XaDatabase> XaPhaseTwo<DB> {
    pub(super) fn new(shared: Arc<Shared<DB>>) -> Self {
        Self { shared }
    }
}

#[async_trait]
impl<DB: XaDatabase> PhaseTwo for XaPhaseTwo<DB> {
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
    outcome(decision, branch.resolution(), &name, finished)
}

/// What the coordinator is told.
#[must_use]
pub fn outcome(
    decision: Decision,
    resolution: Resolution,
    name: &BranchName,
    finished: Finished,
) -> Outcome {
    let branch = name.to_string();
    match (finished.verdict, decision) {
        (Verdict::Done, _) => Outcome::Done(Done {}),
        (Verdict::Against, Decision::RollBack) if resolution == Resolution::AcceptCurrent => {
            Outcome::Done(Done {})
        }
        (Verdict::Against, Decision::RollBack) => {
            let error = XaError::CommittedAgainst { branch }.to_string();
            tracing::error!(xid = %name.xid, branch = name.branch, error);
            Outcome::Refused(Refused { error, ..Refused::default() })
        }
        (Verdict::Against, Decision::Commit | Decision::Unspecified) => {
            let error = XaError::RolledBackAgainst { branch }.to_string();
            tracing::error!(xid = %name.xid, branch = name.branch, error);
            Outcome::Retryable(Retryable { error })
        }
        (Verdict::Again, _) => {
            let said = finished.said.unwrap_or_default();
            let error = format!("{branch} is open or prepared in another session: {said}");
            tracing::debug!(xid = %name.xid, branch = name.branch, error, "to be tried again");
            Outcome::Retryable(Retryable { error })
        }
    }
}
