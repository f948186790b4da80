//! Replies and phase-two calls to wire messages.

use handfast_core::{
    Decision, GlobalStatus, Mode, Reply, Resolution, RollbackReason, VoteRequest, Xid, XidLoan,
    XidText,
};
use handfast_proto::v1 as wire;
use handfast_proto::v1::server_message::Body;

use super::{lock, refusal, saga};
use crate::dispatch::{Ask, Call, CallBatch};
use crate::engine::EngineResult;
use crate::spans::format_traceparent;

/// The body of a stream's answer.
pub(super) fn body(answered: EngineResult) -> Body {
    let reply = match answered {
        Ok(reply) => reply,
        Err(error) => return Body::Rejected(refusal::of_engine(error)),
    };
    match reply {
        Reply::Rejected(rejection) => Body::Rejected(refusal::of_core(&rejection)),
        Reply::Begun { xid, address, timeout_ms, found, loan } => {
            // A global that is found has a status that is known.
            let (found, rollback_reason) =
                status_and_reason(found.unwrap_or(GlobalStatus::Unknown));
            let xid = xid_text(&address, xid);
            let loan = loan.map(xid_loan);
            Body::Begin(wire::BeginReply { xid, timeout_ms, found, rollback_reason, loan })
        }
        Reply::Registered { token, decides, may_be_lost: _ } => {
            Body::RegisterBranch(wire::RegisterBranchReply { fencing_token: token.0, decides })
        }
        Reply::Reported | Reply::LastReported => Body::ReportBranch(wire::ReportBranchReply {}),
        Reply::Unlocked => Body::CheckLocks(wire::CheckLocksReply {}),
        Reply::Ended(status) => {
            let (status, rollback_reason) = status_and_reason(status);
            Body::End(wire::EndReply { status, rollback_reason })
        }
        Reply::Status(status) => {
            let (status, rollback_reason) = status_and_reason(status);
            Body::GetStatus(wire::GetStatusReply { status, rollback_reason })
        }
        Reply::Saga(saga) => Body::Saga(saga::reply(&saga)),
        Reply::LockFound { holder } => Body::FindLock(lock::found(holder)),
        Reply::LockBusy { holder } => Body::AcquireLock(lock::busy(holder)),
        Reply::LockGranted { fence, waited_ms } => {
            Body::AcquireLock(lock::granted(fence, waited_ms))
        }
        Reply::LocksRenewed { held } => Body::RenewLocks(wire::RenewLocksReply { held }),
        Reply::LockFreed => Body::ReleaseLock(lock::freed()),
        Reply::LockNotHeld { current } => Body::ReleaseLock(lock::not_held(current)),
        Reply::Operated(_) | Reply::LockBroken { .. } => {
            unreachable!("no operator's action comes over this API")
        }
    }
}

/// A batch of calls as one message.
pub(super) fn phase_two_call(batch: CallBatch) -> wire::PhaseTwoCall {
    wire::PhaseTwoCall {
        resource_id: batch.resource.id.as_ref().to_owned(),
        mode: mode(batch.resource.mode).into(),
        decision: decision(batch.ask).into(),
        branches: batch.calls.into_iter().map(branch).collect(),
        question: question(batch.ask).into(),
    }
}

fn xid_loan(loan: XidLoan) -> wire::XidLoan {
    let XidLoan { first, count, timeout_ms_default, timeout_ms_max } = loan;
    wire::XidLoan { first: first.0, count, timeout_ms_default, timeout_ms_max }
}

pub(super) fn xid_text(address: &str, xid: Xid) -> String {
    XidText { address, xid }.to_string()
}

/// The numbers of a status and of its reason.
pub(super) fn status_and_reason(status: GlobalStatus) -> (i32, i32) {
    let none = wire::RollbackReason::Unspecified;
    let (status, reason) = match status {
        GlobalStatus::Unknown => (wire::GlobalStatus::Unknown, none),
        GlobalStatus::Active => (wire::GlobalStatus::Active, none),
        GlobalStatus::Committing => (wire::GlobalStatus::Committing, none),
        GlobalStatus::Committed => (wire::GlobalStatus::Committed, none),
        GlobalStatus::RollingBack(why) => (wire::GlobalStatus::RollingBack, reason(why)),
        GlobalStatus::RolledBack(why) => (wire::GlobalStatus::RolledBack, reason(why)),
        GlobalStatus::NeedsOperator(why) => (wire::GlobalStatus::NeedsOperator, reason(why)),
    };
    (status.into(), reason.into())
}

fn reason(reason: RollbackReason) -> wire::RollbackReason {
    match reason {
        RollbackReason::Requested => wire::RollbackReason::Requested,
        RollbackReason::Timeout => wire::RollbackReason::Timeout,
        RollbackReason::BranchUnknown => wire::RollbackReason::BranchUnknown,
        RollbackReason::Operator => wire::RollbackReason::Operator,
        RollbackReason::Refused => wire::RollbackReason::Refused,
    }
}

fn branch(call: Call) -> wire::PhaseTwoBranch {
    let resolution = match call.resolution {
        None => wire::Resolution::None,
        Some(Resolution::RestoreClean) => wire::Resolution::RestoreClean,
        Some(Resolution::AcceptCurrent) => wire::Resolution::AcceptCurrent,
        Some(Resolution::ForceBefore) => wire::Resolution::ForceBefore,
    };
    let registration = call.trace.as_ref().and_then(|trace| trace.registration);
    let registration = registration.map(|registration| registration.client);
    wire::PhaseTwoBranch {
        xid: xid_text(&call.address, call.xid),
        branch_id: call.branch.0,
        application_data: call.application_data.into_vec(),
        resolution: resolution.into(),
        step: call.step.map(|step| saga::call(&step)),
        traceparent: call.span.map(format_traceparent).unwrap_or_default(),
        branch_traceparent: registration.map(format_traceparent).unwrap_or_default(),
    }
}

fn mode(mode: Mode) -> wire::Mode {
    match mode {
        Mode::At => wire::Mode::At,
        Mode::Tcc => wire::Mode::Tcc,
        Mode::Xa => wire::Mode::Xa,
        Mode::Saga => wire::Mode::Saga,
        Mode::TwoPhase => wire::Mode::TwoPhase,
    }
}

fn decision(ask: Ask) -> wire::Decision {
    match ask {
        Ask::Vote(VoteRequest::CanCommit | VoteRequest::Prepare | VoteRequest::Settle) => {
            wire::Decision::Unspecified
        }
        Ask::Finish(Decision::Commit) => wire::Decision::Commit,
        Ask::Finish(Decision::RollBack) => wire::Decision::RollBack,
    }
}

fn question(ask: Ask) -> wire::Question {
    match ask {
        Ask::Vote(VoteRequest::CanCommit) => wire::Question::CanCommit,
        Ask::Vote(VoteRequest::Prepare) => wire::Question::Prepare,
        Ask::Vote(VoteRequest::Settle) => wire::Question::Settle,
        Ask::Finish(Decision::Commit | Decision::RollBack) => wire::Question::None,
    }
}
