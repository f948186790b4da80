//! DURABLE-FIRST: what leaves a coordinator rests on what is stored, and an outcome that was
//! reported to a caller is true at the end.

use std::collections::BTreeMap;

use handfast_core::{BranchId, Decision, SagaState, StepState, Xid, XidText};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{self, GlobalStatus, RegisterBranchRequest};

use super::Invariant;
use crate::judge::ledger::{Ledger, branch_key, is_finished};
use crate::judge::verdict::Verdict;
use crate::model::observation::{Observation, ReportedOutcome};

/// The invariant, with the outcomes that were reported to callers.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    reported: BTreeMap<Xid, ReportedOutcome>,
}

impl Invariant for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::ReplySent { request, reply, .. } => {
                check_reply(ledger, request.map(|request| request.body), reply, verdict);
            }
            Observation::OutcomeReported { xid, outcome } => {
                self.reported.insert(*xid, *outcome);
            }
            Observation::Ended { .. } => self.check_reported(ledger, verdict),
            Observation::RequestArrived { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. } => {}
        }
    }
}

impl Acknowledged {
    fn check_reported(&self, ledger: &Ledger, verdict: &mut Verdict) {
        for (xid, outcome) in &self.reported {
            let due = match outcome {
                ReportedOutcome::Committed => Decision::Commit,
                ReportedOutcome::RolledBack
                | ReportedOutcome::RollingBack
                | ReportedOutcome::NeedsOperator => Decision::RollBack,
                ReportedOutcome::Unknown => continue,
            };
            let decision = ledger.decision(*xid);
            let is_due = match due {
                Decision::Commit => ledger.is_committed(*xid),
                Decision::RollBack => decision == Some(due),
            };
            verdict.require(is_due, || {
                format!("{xid} was reported as {outcome:?} and is decided {decision:?}")
            });
        }
    }
}

fn check_reply(
    ledger: &Ledger,
    request: Option<&ClientBody>,
    reply: &ServerBody,
    verdict: &mut Verdict,
) {
    match (request, reply) {
        (Some(ClientBody::RegisterBranch(request)), ServerBody::RegisterBranch(reply)) => {
            check_registered(ledger, request, reply.decides, verdict);
        }
        (Some(ClientBody::End(request)), ServerBody::End(reply)) => {
            check_status(ledger, &request.xid, reply.status(), verdict);
        }
        (Some(ClientBody::GetStatus(request)), ServerBody::GetStatus(reply)) => {
            check_status(ledger, &request.xid, reply.status(), verdict);
        }
        (_, ServerBody::PhaseTwo(call)) if call.mode() == v1::Mode::Saga => {
            check_steps(ledger, call, verdict);
        }
        (_, ServerBody::PhaseTwo(call)) if call.question() == v1::Question::None => {
            check_call(ledger, call, verdict);
        }
        _ => {}
    }
}

/// The only branch of a global may be told before it is stored that it decides, if its rows are
/// locked in its database.
fn check_registered(
    ledger: &Ledger,
    request: &RegisterBranchRequest,
    decides: bool,
    verdict: &mut Verdict,
) {
    let Some(key) = branch_key(&request.xid, request.branch_id) else { return };
    let may_be_lost = decides && request.may_be_lost && !ledger.globals.contains_key(&key.0);
    verdict.require(may_be_lost || ledger.registered.contains(&key), || {
        format!("branch {}/{} was reported as registered and is not stored", key.0, key.1)
    });
}

fn check_status(ledger: &Ledger, xid: &str, status: GlobalStatus, verdict: &mut Verdict) {
    let Ok(XidText { xid, .. }) = XidText::parse(xid) else { return };
    let (due, finished) = match status {
        GlobalStatus::Committing => (Decision::Commit, false),
        GlobalStatus::Committed => (Decision::Commit, true),
        GlobalStatus::RollingBack | GlobalStatus::NeedsOperator => (Decision::RollBack, false),
        GlobalStatus::RolledBack => (Decision::RollBack, true),
        GlobalStatus::Unknown | GlobalStatus::Active => return,
    };
    let state = ledger.globals.get(&xid).map(|global| global.state);
    verdict.require(ledger.decision(xid) == Some(due), || {
        format!("{xid} was reported as {status:?} and is stored as {state:?}")
    });
    verdict.require(!finished || state.is_some_and(is_finished), || {
        format!("{xid} was reported as finished and is stored as {state:?}")
    });
}

fn check_call(ledger: &Ledger, call: &v1::PhaseTwoCall, verdict: &mut Verdict) {
    let due = match call.decision() {
        v1::Decision::Commit => Decision::Commit,
        v1::Decision::RollBack | v1::Decision::Unspecified => Decision::RollBack,
    };
    for branch in &call.branches {
        let Some((xid, BranchId(id))) = branch_key(&branch.xid, branch.branch_id) else { continue };
        let decision = ledger.decision(xid);
        verdict.require(decision == Some(due), || {
            format!("branch {xid}/{id} is called for {due:?}, stored is {decision:?}")
        });
    }
}

/// A step's action may be called once the step is stored as begun, its compensation once the saga
/// is stored as compensating. A repeated call may come after its step has ended.
fn check_steps(ledger: &Ledger, call: &v1::PhaseTwoCall, verdict: &mut Verdict) {
    for branch in &call.branches {
        let Some((xid, BranchId(id))) = branch_key(&branch.xid, branch.branch_id) else { continue };
        let saga = ledger.sagas.get(&xid);
        let step = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let state = saga.zip(step).and_then(|(saga, at)| saga.steps.get(at)).map(|it| it.state);
        let saga_state = saga.map(|saga| saga.state);
        let due = match call.decision() {
            v1::Decision::Commit => state.is_some_and(|state| state != StepState::Waiting),
            v1::Decision::RollBack | v1::Decision::Unspecified => {
                matches!(saga_state, Some(SagaState::Compensating(_) | SagaState::Compensated(..)))
            }
        };
        verdict.require(due, || {
            let decision = call.decision();
            format!(
                "step {xid}/{id} is called for {decision:?}, stored is {state:?} in {saga_state:?}"
            )
        });
    }
}
