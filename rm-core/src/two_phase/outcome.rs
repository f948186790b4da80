//! The report to the coordinator about a branch after phase two.

use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{Decision, Done, Refused, Resolution, Retryable};

use super::branch_name::BranchName;
use super::verdict::TwoPhaseVerdict;

/// The end of one attempt to carry a decision out on a branch.
#[derive(Debug)]
pub struct Finished {
    /// Whether the decision is carried out.
    pub verdict: TwoPhaseVerdict,
    /// The database's message, if it did not report success.
    pub message: Option<String>,
}

/// A branch ended against the decision of its global, and not by Handfast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndedAgainstDecision {
    /// The global is committed, and the branch was rolled back.
    #[error(
        "{branch} was rolled back by another program although its global is committed ({})",
        self.code()
    )]
    RolledBack {
        /// The branch's name in the database.
        branch: String,
    },
    /// The global is rolled back, and the branch was committed.
    #[error(
        "{branch} was committed by another program although its global is rolled back ({})",
        self.code()
    )]
    Committed {
        /// The branch's name in the database.
        branch: String,
    },
}

impl EndedAgainstDecision {
    /// Returns the stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::RolledBack { .. } => "HF-XA-ROLLED-BACK-AGAINST",
            Self::Committed { .. } => "HF-XA-COMMITTED-AGAINST",
        }
    }
}

/// Returns the outcome that is sent to the coordinator.
#[must_use]
pub fn outcome(
    decision: Decision,
    resolution: Resolution,
    name: &BranchName,
    finished: Finished,
) -> Outcome {
    let branch = name.to_string();
    match (finished.verdict, decision) {
        (TwoPhaseVerdict::Done, _) => Outcome::Done(Done {}),
        (TwoPhaseVerdict::Against, Decision::RollBack)
            if resolution == Resolution::AcceptCurrent =>
        {
            Outcome::Done(Done {})
        }
        (TwoPhaseVerdict::Against, Decision::RollBack) => {
            let error = EndedAgainstDecision::Committed { branch }.to_string();
            Outcome::Refused(Refused { error, ..Refused::default() })
        }
        // A commit cannot be reversed, so the coordinator keeps calling, and operators see the
        // reason.
        (TwoPhaseVerdict::Against, Decision::Commit | Decision::Unspecified) => {
            let error = EndedAgainstDecision::RolledBack { branch }.to_string();
            Outcome::Retryable(Retryable { error })
        }
        (TwoPhaseVerdict::Again, _) => {
            let message = finished.message.unwrap_or_default();
            let error = format!("{branch} is open or prepared in another session: {message}");
            Outcome::Retryable(Retryable { error })
        }
    }
}
