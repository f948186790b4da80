//! Passes the coordinator's questions and decisions to a participant.

use std::fmt::Display;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    BranchOutcome, Decision, Done, PhaseTwoBranch, PhaseTwoCall, Question, Refused, Retryable,
};

use super::resource::Shared;
use super::{Branch, Participant, Vote};
use crate::at::crash_point::crash_point;
use crate::coordinator::BranchHandler;
use crate::limit;
use crate::xid::Xid;

/// How many branches of one call are asked at a time (BOUNDED).
const BRANCHES_AT_A_TIME: usize = 16;

/// Answers the coordinator's calls for one participant.
pub(super) struct Voter<P> {
    shared: Arc<Shared<P>>,
}

impl<P: Participant> Voter<P> {
    pub(super) fn new(shared: Arc<Shared<P>>) -> Self {
        Self { shared }
    }

    /// Asks within the participant's time limit, so that an operation that hangs or panics delays
    /// its own branch alone. Cutting it off is as safe as a crash, which a participant must
    /// survive: it is asked again.
    async fn answer(&self, ask: Ask, branch: &PhaseTwoBranch) -> Outcome {
        let branch = match read::<P>(branch) {
            Ok(branch) => branch,
            Err(error) => return Outcome::Retryable(Retryable { error }),
        };
        let answered = limit::within(P::TIME_LIMIT, self.ask(ask, &branch)).await;
        answered.unwrap_or_else(|cut_off| {
            let (xid, branch, participant) = (&branch.xid, branch.id, &self.shared.name);
            tracing::warn!(%xid, branch, participant, ?ask, %cut_off, "to be asked again");
            Outcome::Retryable(Retryable { error: format!("the participant {cut_off}") })
        })
    }

    async fn ask(&self, ask: Ask, branch: &Branch<P::Input>) -> Outcome {
        let participant = &self.shared.participant;
        match ask {
            Ask::CanCommit => voted(participant.can_commit(branch).await),
            Ask::Prepare => {
                crash_point("participant-before-prepare");
                let prepared = participant.prepare(branch).await;
                crash_point("participant-after-prepare");
                voted(prepared)
            }
            Ask::Commit => {
                crash_point("participant-before-commit");
                let committed = participant.commit(branch).await;
                crash_point("participant-after-commit");
                done(committed)
            }
            Ask::RollBack => done(participant.roll_back(branch).await),
        }
    }
}

/// The operation that a call asks for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    CanCommit,
    Prepare,
    Commit,
    RollBack,
}

#[async_trait]
impl<P: Participant> BranchHandler for Voter<P> {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let (ask, at_a_time) = match (call.question(), call.decision()) {
            (Question::CanCommit, _) => (Ask::CanCommit, BRANCHES_AT_A_TIME),
            (Question::Prepare, _) => (Ask::Prepare, BRANCHES_AT_A_TIME),
            (Question::None, Decision::Commit) => (Ask::Commit, BRANCHES_AT_A_TIME),
            // One after the other, in the order given, which is the reverse of the registrations.
            (Question::None, Decision::RollBack) => (Ask::RollBack, 1),
            // The caller answers `Retryable` for every branch without an outcome.
            (Question::None, Decision::Unspecified) | (Question::Settle, _) => return Vec::new(),
        };
        let answers: Vec<BoxFuture<'_, Outcome>> =
            call.branches.iter().map(|branch| self.answer(ask, branch).boxed()).collect();
        let answers: Vec<Outcome> = stream::iter(answers).buffered(at_a_time).collect().await;
        let outcome = |(branch, result): (&PhaseTwoBranch, Outcome)| BranchOutcome {
            xid: branch.xid.clone(),
            branch_id: branch.branch_id,
            decision: call.decision,
            question: call.question,
            result: Some(result),
        };
        call.branches.iter().zip(answers).map(outcome).collect()
    }
}

fn read<P: Participant>(branch: &PhaseTwoBranch) -> Result<Branch<P::Input>, String> {
    let input = serde_json::from_slice(&branch.application_data)
        .map_err(|error| format!("the input was written by another version: {error}"))?;
    let xid = Xid::new(&branch.xid).map_err(|error| error.to_string())?;
    Ok(Branch { xid, id: branch.branch_id, input })
}

fn voted<E: Display>(vote: Result<Vote, E>) -> Outcome {
    match vote {
        Ok(Vote::Yes) => Outcome::Done(Done {}),
        Ok(Vote::No(error)) => Outcome::Refused(Refused { error, ..Refused::default() }),
        Err(error) => Outcome::Retryable(Retryable { error: error.to_string() }),
    }
}

fn done<E: Display>(carried_out: Result<(), E>) -> Outcome {
    match carried_out {
        Ok(()) => Outcome::Done(Done {}),
        Err(error) => Outcome::Retryable(Retryable { error: error.to_string() }),
    }
}
