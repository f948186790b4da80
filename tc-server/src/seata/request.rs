//! Translates a client's request to a call to the engine, and the reply to an answer.
//!
//! Pure: it neither calls the engine nor waits. Nearly every request is one call. Those that take
//! several are in `request_handler` and `end`.

use std::sync::Arc;

use handfast_core::{
    BranchId, Command, DecidedBy, Decision, GlobalStatus as Status, LoanTerms, LockWait, Mode,
    NewBranch, PhaseOneOutcome, Rejection, Reply, ReplyWhen, VotingRounds, Xid, XidText,
};
use handfast_seata_wire::Dialect;
use handfast_seata_wire::message::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, GlobalBegin, GlobalBegun,
    GlobalEnd, GlobalStatusAnswer, Message, RequestFailure, TxResult,
};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus as Word};

use super::client::Client;
use super::labels;
use super::resource::{is_database, mode_of};
use super::rows::rows;
use super::status;
use crate::engine::{EngineError, EngineResult};

/// The one branch that stands for a whole saga. The saga's state machine lives in the client and is
/// called as a whole.
pub(super) const SAGA: BranchId = BranchId(1);

/// The prefix of a saga's name.
pub(super) const SAGA_NAME: &str = "$Saga_";

/// Sent by a client that opened its local transaction itself.
const OPENED_BY_APPLICATION: &str = r#""autoCommit":false"#;

/// The reason for refusing a branch whose resource is named within an application.
pub(super) const NO_APPLICATION: &str = "the client has not said of which application it is";

/// How a request is handled.
#[derive(Debug)]
pub(super) enum RequestPlan {
    /// By one call to the engine.
    Single(Command, ReplyContext),
    /// By an answer that needs no call.
    Answered(Message),
    /// By several calls, or not at all if it is no request.
    MultiStep(Message),
}

/// The parts of a request on which the form of its answer depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyContext {
    Begin,
    Branch { id: i64, is_saga: bool, holds_rows: bool },
    Report,
    End { xid: Xid, decision: Decision },
}

/// The limits of every request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLimits {
    /// The wait for locks. The client's local transaction is open meanwhile.
    pub(super) wait: LockWait,
    /// Rows that one lock key may name.
    pub(super) rows_max: usize,
}

/// Returns how a request of this client is handled.
#[expect(clippy::wildcard_enum_match_arm, reason = "`RequestHandler` matches all others")]
pub(super) fn plan_of(request: Message, client: &Client, limits: RequestLimits) -> RequestPlan {
    match request {
        Message::GlobalBegin(it) if !it.name.starts_with(SAGA_NAME) => {
            RequestPlan::Single(beginning(it, client), ReplyContext::Begin)
        }
        Message::BranchRegister(it) => registering(&it, client, limits)
            .unwrap_or_else(|failure| RequestPlan::Answered(registered(Err(failure)))),
        Message::BranchReport(it) => reporting(it),
        Message::GlobalCommit(it) => end(&it, Decision::Commit),
        Message::GlobalRollback(it) => end(&it, Decision::RollBack),
        other => RequestPlan::MultiStep(other),
    }
}

impl ReplyContext {
    /// Translates the engine's reply. Returns `None` if the outcome is unknown and a wrong answer
    /// would do harm: the client asks again then.
    pub(super) fn answer(self, answered: EngineResult, dialect: &Dialect) -> Option<Message> {
        match self {
            Self::Begin => Some(begun(begun_of(answered).map(|(_, text)| text))),
            Self::Branch { id, is_saga, holds_rows } => {
                Some(registered(registered_of(answered, is_saga, holds_rows).map(|()| id)))
            }
            Self::Report => Some(reported(reported_of(answered))),
            Self::End { xid, decision } => {
                let status = status_of_end(xid, decision, answered)?;
                Some(ended(decision, status, dialect))
            }
        }
    }
}

pub(super) fn beginning(it: GlobalBegin, client: &Client) -> Command {
    Command::Begin {
        application: Arc::clone(&client.application),
        labels: labels::at_the_end_of(&it.name),
        name: it.name.into(),
        timeout_ms: u64::try_from(it.timeout_ms).ok().filter(|&timeout_ms| timeout_ms > 0),
        key: None,
        loan: LoanTerms::default(),
    }
}

/// Returns the XID, and its text for the client.
pub(super) fn begun_of(answered: EngineResult) -> Result<(Xid, String), RequestFailure> {
    match answered {
        Ok(Reply::Begun { xid, address, .. }) => {
            Ok((xid, XidText { address: &address, xid }.to_string()))
        }
        other => Err(refused(other, ExceptionCode::BeginFailed)),
    }
}

pub(super) fn begun(begun: Result<String, RequestFailure>) -> Message {
    let (result, xid) = begun.map_or_else(|why| (Err(why), String::new()), |xid| (Ok(()), xid));
    Message::GlobalBeginResult(GlobalBegun { result, xid, extra_data: String::new() })
}

/// Returns the branch of a saga, which stands for its state machine.
pub(super) fn machine(client: &Client, application_data: Box<[u8]>) -> NewBranch {
    NewBranch {
        id: SAGA,
        resource: format!("{}#{}", client.application, client.group).into(),
        mode: Mode::Saga,
        rows: Vec::new(),
        application_data,
        registered_by: client.registers_as(),
    }
}

fn registering(
    it: &BranchRegister,
    client: &Client,
    limits: RequestLimits,
) -> Result<RequestPlan, RequestFailure> {
    let xid = parse(&it.xid).ok_or_else(|| unknown_xid(&it.xid))?;
    if let Some(why) = why_unaskable(it, client) {
        return Err(failed(&why, ExceptionCode::BranchRegisterFailed));
    }
    let id = new_branch_id();
    let is_saga = it.branch_type == BranchType::Saga;
    let branch = match is_saga {
        true => machine(client, it.application_data.as_bytes().into()),
        false => branch(BranchId(id.cast_unsigned()), it, client, limits)?,
    };
    let holds_rows = it.application_data.contains(OPENED_BY_APPLICATION);
    let context = ReplyContext::Branch { id, is_saga, holds_rows };
    Ok(RequestPlan::Single(Command::RegisterBranch { xid, branch, wait: limits.wait }, context))
}

/// Returns why no process could be called to end the branch, if that is so.
fn why_unaskable(it: &BranchRegister, client: &Client) -> Option<&'static str> {
    if !client.is_registered {
        return Some(NO_APPLICATION);
    }
    match it.branch_type {
        BranchType::Tcc | BranchType::SagaAnnotation if is_database(&it.resource_id) => {
            Some("it names a database, which is no action")
        }
        BranchType::Saga => None,
        BranchType::At | BranchType::Xa | BranchType::Tcc | BranchType::SagaAnnotation => {
            it.resource_id.is_empty().then_some("it names no resource")
        }
    }
}

fn branch(
    id: BranchId,
    it: &BranchRegister,
    client: &Client,
    limits: RequestLimits,
) -> Result<NewBranch, RequestFailure> {
    let locked = if it.branch_type == BranchType::At { it.lock_key.as_str() } else { "" };
    let rows =
        rows(locked, limits.rows_max).map_err(|why| failed(&why, status::code_of_key(&why)))?;
    Ok(NewBranch {
        id,
        resource: client.name_of(it.branch_type, &it.resource_id),
        mode: mode_of(it.branch_type),
        rows,
        application_data: it.application_data.as_bytes().into(),
        registered_by: client.registers_as(),
    })
}

fn registered_of(answered: EngineResult, is_saga: bool, holds_rows: bool) -> TxResult {
    match answered {
        Ok(Reply::Registered { .. }) => Ok(()),
        // A saga continues after its decision, and in other services than the one that began it.
        // Its work there is a part of the same branch.
        Ok(Reply::Rejected(
            Rejection::AlreadyDecided { .. } | Rejection::BranchMismatch { .. },
        )) if is_saga => Ok(()),
        Ok(Reply::Rejected(why)) => Err(failed(&why, status::code_of(&why, holds_rows))),
        other => Err(refused(other, ExceptionCode::BranchRegisterFailed)),
    }
}

fn registered(registered: Result<i64, RequestFailure>) -> Message {
    let (result, branch_id) = match registered {
        Ok(branch_id) => (Ok(()), branch_id),
        Err(failure) => (Err(failure), 0),
    };
    Message::BranchRegisterResult(BranchRegistered { result, branch_id })
}

fn reporting(it: BranchReport) -> RequestPlan {
    let Some(xid) = parse(&it.xid) else {
        return RequestPlan::Answered(reported(Err(unknown_xid(&it.xid))));
    };
    // The steps of a saga are one branch, which ends with its state machine.
    if it.branch_type == BranchType::Saga {
        return RequestPlan::Answered(reported(Ok(())));
    }
    let branch = BranchId(it.branch_id.cast_unsigned());
    let outcome = phase_one_outcome(it.status);
    let application_data = it.application_data.into_bytes().into();
    RequestPlan::Single(
        Command::ReportBranch { xid, branch, outcome, application_data },
        ReplyContext::Report,
    )
}

fn reported_of(answered: EngineResult) -> TxResult {
    match answered {
        Ok(Reply::Reported | Reply::LastReported) => Ok(()),
        Ok(Reply::Rejected(why)) => Err(failed(&why, status::code_of(&why, false))),
        other => Err(refused(other, ExceptionCode::BranchReportFailed)),
    }
}

fn reported(result: TxResult) -> Message {
    Message::BranchReportResult(BranchReported { result })
}

/// Returns how phase one ended, if the status is about phase one.
fn phase_one_outcome(status: BranchStatus) -> Option<PhaseOneOutcome> {
    match status {
        BranchStatus::PhaseOneDone => Some(PhaseOneOutcome::Done),
        // A branch that only read has nothing to commit or to roll back.
        BranchStatus::PhaseOneFailed | BranchStatus::PhaseOneRdonly => {
            Some(PhaseOneOutcome::Failed)
        }
        BranchStatus::PhaseOneTimeout => Some(PhaseOneOutcome::Unknown),
        BranchStatus::Unknown
        | BranchStatus::Registered
        | BranchStatus::PhaseTwoCommitted
        | BranchStatus::PhaseTwoCommitFailedRetryable
        | BranchStatus::PhaseTwoCommitFailedUnretryable
        | BranchStatus::PhaseTwoRollbacked
        | BranchStatus::PhaseTwoRollbackFailedRetryable
        | BranchStatus::PhaseTwoRollbackFailedUnretryable
        | BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable
        | BranchStatus::PhaseTwoRollbackFailedXaerNotaRetryable
        | BranchStatus::StopRetry => None,
    }
}

fn end(it: &GlobalEnd, decision: Decision) -> RequestPlan {
    let Some(xid) = parse(&it.xid) else {
        return RequestPlan::Answered(answer_after(decision, Word::Finished));
    };
    RequestPlan::Single(
        ending(xid, decision, reply_when(decision)),
        ReplyContext::End { xid, decision },
    )
}

/// Returns what a decision waits for. AT branches have committed when a commit is decided. The
/// other branches are waited for, so that the client finds them committed after the answer.
pub(super) fn reply_when(decision: Decision) -> ReplyWhen {
    match decision {
        Decision::Commit => ReplyWhen::Effective,
        Decision::RollBack => ReplyWhen::Finished,
    }
}

pub(super) fn ending(xid: Xid, decision: Decision, reply_when: ReplyWhen) -> Command {
    let (by, reason, rounds) = (DecidedBy::Client, Arc::from(""), VotingRounds::default());
    Command::End { xid, decision, by, reason, reply_when, rounds }
}

/// Returns the status of the global after the decision was requested, or `None` if it is unknown.
pub(super) fn status_of_end(
    xid: Xid,
    decision: Decision,
    answered: EngineResult,
) -> Option<Status> {
    match answered {
        Ok(Reply::Ended(status)) => Some(status),
        Ok(Reply::Rejected(Rejection::AlreadyDecided { status, .. })) => Some(status),
        Ok(Reply::Rejected(Rejection::UnknownXid(_))) => Some(Status::Unknown),
        other => {
            tracing::warn!(xid = xid.0, ?decision, ?other, "a decision is left unanswered");
            None
        }
    }
}

/// Returns the answer to a decision after which the global has this status.
pub(super) fn ended(decision: Decision, status: Status, dialect: &Dialect) -> Message {
    let word = match decision {
        Decision::Commit => status::of_commit(status, dialect),
        Decision::RollBack => status::of_rollback(status),
    };
    answer_after(decision, word)
}

fn answer_after(decision: Decision, word: Word) -> Message {
    match decision {
        Decision::Commit => Message::GlobalCommitResult(status_answer(word)),
        Decision::RollBack => Message::GlobalRollbackResult(status_answer(word)),
    }
}

pub(super) fn status_answer(status: Word) -> GlobalStatusAnswer {
    GlobalStatusAnswer { result: Ok(()), status }
}

pub(super) fn parse(xid: &str) -> Option<Xid> {
    XidText::parse(xid).ok().map(|text| text.xid)
}

/// Draws a branch id. It is positive, since Java reads it as a signed number, and never the id of a
/// saga's branch.
fn new_branch_id() -> i64 {
    (rand::random::<i64>() & i64::MAX) | (1 << 61)
}

pub(super) fn failed(why: &dyn std::fmt::Display, code: ExceptionCode) -> RequestFailure {
    RequestFailure { message: format!("TransactionException[{why}]"), code }
}

fn unknown_xid(xid: &str) -> RequestFailure {
    let cut: String = xid.chars().take(100).collect();
    failed(
        &format!("{cut:?} is no xid of this coordinator"),
        ExceptionCode::GlobalTransactionNotExist,
    )
}

/// Returns the failure for a reply that has no more specific code.
pub(super) fn refused(reply: Result<Reply, EngineError>, code: ExceptionCode) -> RequestFailure {
    match reply {
        Ok(Reply::Rejected(why)) => failed(&why, code),
        Ok(other) => failed(&format!("unexpected reply {other:?}"), code),
        Err(why) => failed(&why, code),
    }
}
