//! DURABLE-FIRST: what leaves a coordinator rests on what is stored, and what was promised is kept
//! to the end.

use std::collections::BTreeMap;

use handfast_core::{BranchId, Decision, SagaState, StepState, Xid, XidText};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, GlobalStatus, RegisterBranchRequest};

use super::Invariant;
use crate::judge::ledger::{Ledger, is_finished};
use crate::judge::oracle::{Observation, Told, Verdict, branch_of};

/// The invariant, with what launchers were told.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    told: BTreeMap<Xid, Told>,
}

impl Invariant for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Answered { ask, answer } => check_answer(ledger, *ask, answer, verdict),
            Observation::Told { xid, told } => drop(self.told.insert(*xid, *told)),
            Observation::Ended { .. } => self.check_told(ledger, verdict),
            Observation::Asked { .. }
            | Observation::Stored { .. }
            | Observation::Booked { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::CommittedRead { .. } => {}
        }
    }
}

impl Acknowledged {
    fn check_told(&self, ledger: &Ledger, verdict: &mut Verdict) {
        for (xid, told) in &self.told {
            let due = match told {
                Told::Committed => Decision::Commit,
                Told::RolledBack | Told::RollingBack | Told::NeedsOperator => Decision::RollBack,
                Told::Unknown => continue,
            };
            let decision = ledger.decision(*xid);
            verdict.require(decision == Some(due), || {
                format!("{xid} was told to be {told:?} and is decided {decision:?}")
            });
        }
    }
}

fn check_answer(ledger: &Ledger, ask: Option<&Ask>, answer: &Answer, verdict: &mut Verdict) {
    match (ask, answer) {
        (Some(Ask::RegisterBranch(request)), Answer::RegisterBranch(_)) => {
            check_registered(ledger, request, verdict);
        }
        (Some(Ask::End(request)), Answer::End(reply)) => {
            check_status(ledger, &request.xid, reply.status(), verdict);
        }
        (Some(Ask::GetStatus(request)), Answer::GetStatus(reply)) => {
            check_status(ledger, &request.xid, reply.status(), verdict);
        }
        (_, Answer::PhaseTwo(call)) if call.mode() == v1::Mode::Saga => {
            check_steps(ledger, call, verdict);
        }
        (_, Answer::PhaseTwo(call)) => check_call(ledger, call, verdict),
        _ => {}
    }
}

fn check_registered(ledger: &Ledger, request: &RegisterBranchRequest, verdict: &mut Verdict) {
    let Some(key) = branch_of(&request.xid, request.branch_id) else { return };
    verdict.require(ledger.registered.contains(&key), || {
        format!("branch {}/{} is said to be registered and is not stored", key.0, key.1)
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
        format!("{xid} is said to be {status:?} and is stored as {state:?}")
    });
    verdict.require(!finished || state.is_some_and(is_finished), || {
        format!("{xid} is said to be finished and is stored as {state:?}")
    });
}

fn check_call(ledger: &Ledger, call: &v1::PhaseTwoCall, verdict: &mut Verdict) {
    let due = match call.decision() {
        v1::Decision::Commit => Decision::Commit,
        v1::Decision::RollBack | v1::Decision::Unspecified => Decision::RollBack,
    };
    for branch in &call.branches {
        let Some((xid, BranchId(id))) = branch_of(&branch.xid, branch.branch_id) else { continue };
        let decision = ledger.decision(xid);
        verdict.require(decision == Some(due), || {
            format!("branch {xid}/{id} is told {due:?}, stored is {decision:?}")
        });
    }
}

/// A step's action is called when it is stored as begun, its compensation when the saga is stored
/// as turned back. The answer may have come before a call that is repeated.
fn check_steps(ledger: &Ledger, call: &v1::PhaseTwoCall, verdict: &mut Verdict) {
    for branch in &call.branches {
        let Some((xid, BranchId(id))) = branch_of(&branch.xid, branch.branch_id) else { continue };
        let saga = ledger.sagas.get(&xid);
        let step = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let state = saga.zip(step).and_then(|(saga, at)| saga.steps.get(at)).map(|it| it.state);
        let stands = saga.map(|saga| saga.state);
        let due = match call.decision() {
            v1::Decision::Commit => state.is_some_and(|state| state != StepState::Waiting),
            v1::Decision::RollBack | v1::Decision::Unspecified => {
                matches!(stands, Some(SagaState::Compensating(_) | SagaState::Compensated(..)))
            }
        };
        verdict.require(due, || {
            let decision = call.decision();
            format!("step {xid}/{id} is told {decision:?}, stored is {state:?} in {stands:?}")
        });
    }
}
