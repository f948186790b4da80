//! What one request asks of the engine, and what the reply says to its client.
//!
//! It asks nobody itself and waits for nothing. Nearly every request is one question; those that
//! take several are in `answer` and `end`.

use std::sync::Arc;

use handfast_core::{
    BranchId, DecidedBy, Decision, GlobalStatus as Status, LockWait, Mode, NewBranch,
    PhaseOneOutcome, Rejection, Reply, ReplyWhen, Rounds, What, Xid, XidText,
};
use handfast_seata_wire::Dialect;
use handfast_seata_wire::message::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, Failure, GlobalBegin,
    GlobalBegun, GlobalEnd, GlobalStanding, Message, TxResult,
};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus as Word};

use super::client::Client;
use super::resource::{is_database, mode_of};
use super::rows::rows;
use super::status;
use crate::engine::{Answered, EngineError};

/// The one branch that stands for a whole saga: its state machine lives in the client, and is asked
/// as a whole.
pub(super) const SAGA: BranchId = BranchId(1);

/// What the name of a saga begins with.
pub(super) const SAGA_NAME: &str = "$Saga_";

/// Said by a client that opened its local transaction itself.
const OPENED_BY_APPLICATION: &str = r#""autoCommit":false"#;

/// Why a branch that is asked within its application is refused.
pub(super) const NO_APPLICATION: &str = "the client has not said of which application it is";

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Step {
    /// It is this question.
    Ask(What, Question),
    /// It is answered without one.
    Say(Message),
    /// It takes several, or is none.
    Course(Message),
}

/// What is asked, as far as its answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Begin,
    Branch { id: i64, is_saga: bool, holds_rows: bool },
    Report,
    End { xid: Xid, decision: Decision },
}

/// What is granted to every request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// For locks. The client's local transaction is open while it waits.
    pub(super) wait: LockWait,
    /// Rows that one lock key may name.
    pub(super) rows_max: usize,
}

/// What the request of this client comes to.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are told apart in `answer`")]
pub(super) fn step_of(request: Message, client: &Client, terms: Terms) -> Step {
    match request {
        Message::GlobalBegin(it) if !it.name.starts_with(SAGA_NAME) => {
            Step::Ask(beginning(it, client), Question::Begin)
        }
        Message::BranchRegister(it) => registering(&it, client, terms)
            .unwrap_or_else(|failure| Step::Say(registered(Err(failure)))),
        Message::BranchReport(it) => reporting(it),
        Message::GlobalCommit(it) => end(&it, Decision::Commit),
        Message::GlobalRollback(it) => end(&it, Decision::RollBack),
        other => Step::Course(other),
    }
}

impl Question {
    /// What the reply says; nothing where a wrong word would do harm: then the client asks again.
    pub(super) fn answer(self, answered: Answered, dialect: &Dialect) -> Option<Message> {
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

pub(super) fn beginning(it: GlobalBegin, client: &Client) -> What {
    What::Begin {
        application: Arc::clone(&client.application),
        name: it.name.into(),
        timeout_ms: u64::try_from(it.timeout_ms).ok().filter(|&timeout_ms| timeout_ms > 0),
    }
}

/// The xid, and as the client is told it.
pub(super) fn begun_of(answered: Answered) -> Result<(Xid, String), Failure> {
    match answered {
        Ok(Reply::Begun { xid, address, .. }) => {
            Ok((xid, XidText { address: &address, xid }.to_string()))
        }
        other => Err(refused(other, ExceptionCode::BeginFailed)),
    }
}

pub(super) fn begun(begun: Result<String, Failure>) -> Message {
    let (result, xid) = begun.map_or_else(|why| (Err(why), String::new()), |xid| (Ok(()), xid));
    Message::GlobalBeginResult(GlobalBegun { result, xid, extra_data: String::new() })
}

/// The branch of a saga: its state machine.
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

fn registering(it: &BranchRegister, client: &Client, terms: Terms) -> Result<Step, Failure> {
    let xid = parse(&it.xid).ok_or_else(|| unknown_xid(&it.xid))?;
    if let Some(why) = why_unaskable(it, client) {
        return Err(failed(&why, ExceptionCode::BranchRegisterFailed));
    }
    let id = new_branch_id();
    let is_saga = it.branch_type == BranchType::Saga;
    let branch = match is_saga {
        true => machine(client, it.application_data.as_bytes().into()),
        false => branch(BranchId(id.cast_unsigned()), it, client, terms)?,
    };
    let holds_rows = it.application_data.contains(OPENED_BY_APPLICATION);
    let question = Question::Branch { id, is_saga, holds_rows };
    Ok(Step::Ask(What::RegisterBranch { xid, branch, wait: terms.wait }, question))
}

/// Why nobody could ever be asked to end the branch.
fn why_unaskable(it: &BranchRegister, client: &Client) -> Option<&'static str> {
    match it.branch_type {
        BranchType::Tcc | BranchType::Saga | BranchType::SagaAnnotation
            if !client.is_registered =>
        {
            Some(NO_APPLICATION)
        }
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
    terms: Terms,
) -> Result<NewBranch, Failure> {
    let locked = if it.branch_type == BranchType::At { it.lock_key.as_str() } else { "" };
    let rows =
        rows(locked, terms.rows_max).map_err(|why| failed(&why, status::code_of_key(&why)))?;
    Ok(NewBranch {
        id,
        resource: client.name_of(it.branch_type, &it.resource_id),
        mode: mode_of(it.branch_type),
        rows,
        application_data: it.application_data.as_bytes().into(),
        registered_by: client.registers_as(),
    })
}

fn registered_of(answered: Answered, is_saga: bool, holds_rows: bool) -> TxResult {
    match answered {
        Ok(Reply::Registered { .. }) => Ok(()),
        // A saga goes on after its decision, and in other services than the one that began it: what
        // it does there is a part of the same branch.
        Ok(Reply::Rejected(
            Rejection::AlreadyDecided { .. } | Rejection::BranchMismatch { .. },
        )) if is_saga => Ok(()),
        Ok(Reply::Rejected(why)) => Err(failed(&why, status::code_of(&why, holds_rows))),
        other => Err(refused(other, ExceptionCode::BranchRegisterFailed)),
    }
}

fn registered(registered: Result<i64, Failure>) -> Message {
    let (result, branch_id) = match registered {
        Ok(branch_id) => (Ok(()), branch_id),
        Err(failure) => (Err(failure), 0),
    };
    Message::BranchRegisterResult(BranchRegistered { result, branch_id })
}

fn reporting(it: BranchReport) -> Step {
    let Some(xid) = parse(&it.xid) else {
        return Step::Say(reported(Err(unknown_xid(&it.xid))));
    };
    // The steps of a saga are one branch, which ends with its state machine.
    if it.branch_type == BranchType::Saga {
        return Step::Say(reported(Ok(())));
    }
    let branch = BranchId(it.branch_id.cast_unsigned());
    let outcome = phase_one_outcome(it.status);
    let application_data = it.application_data.into_bytes().into();
    Step::Ask(What::ReportBranch { xid, branch, outcome, application_data }, Question::Report)
}

fn reported_of(answered: Answered) -> TxResult {
    match answered {
        Ok(Reply::Reported) => Ok(()),
        Ok(Reply::Rejected(why)) => Err(failed(&why, status::code_of(&why, false))),
        other => Err(refused(other, ExceptionCode::BranchReportFailed)),
    }
}

fn reported(result: TxResult) -> Message {
    Message::BranchReportResult(BranchReported { result })
}

/// How phase one ended, if the status speaks of that.
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

fn end(it: &GlobalEnd, decision: Decision) -> Step {
    let Some(xid) = parse(&it.xid) else {
        return Step::Say(standing_after(decision, Word::Finished));
    };
    Step::Ask(ending(xid, decision, reply_when(decision)), Question::End { xid, decision })
}

/// Branches of AT have committed already when a commit is decided; the others are waited for, so
/// that who goes on after it finds them committed.
pub(super) fn reply_when(decision: Decision) -> ReplyWhen {
    match decision {
        Decision::Commit => ReplyWhen::Effective,
        Decision::RollBack => ReplyWhen::Finished,
    }
}

pub(super) fn ending(xid: Xid, decision: Decision, reply_when: ReplyWhen) -> What {
    let (by, reason, rounds) = (DecidedBy::Client, Arc::from(""), Rounds::default());
    What::End { xid, decision, by, reason, reply_when, rounds }
}

/// How the global stands after the decision was asked for; nothing if that is not known.
pub(super) fn status_of_end(xid: Xid, decision: Decision, answered: Answered) -> Option<Status> {
    match answered {
        Ok(Reply::Ended(status)) => Some(status),
        Ok(Reply::Rejected(Rejection::AlreadyDecided { status, .. })) => Some(status),
        Ok(Reply::Rejected(Rejection::UnknownXid(_))) => Some(Status::Unknown),
        other => {
            tracing::warn!(xid = xid.0, ?decision, ?other, "a decision is not answered");
            None
        }
    }
}

/// The answer to a decision after which the global stands so.
pub(super) fn ended(decision: Decision, status: Status, dialect: &Dialect) -> Message {
    let word = match decision {
        Decision::Commit => status::of_commit(status, dialect),
        Decision::RollBack => status::of_rollback(status),
    };
    standing_after(decision, word)
}

fn standing_after(decision: Decision, word: Word) -> Message {
    match decision {
        Decision::Commit => Message::GlobalCommitResult(standing(word)),
        Decision::RollBack => Message::GlobalRollbackResult(standing(word)),
    }
}

pub(super) fn standing(status: Word) -> GlobalStanding {
    GlobalStanding { result: Ok(()), status }
}

pub(super) fn parse(xid: &str) -> Option<Xid> {
    XidText::parse(xid).ok().map(|text| text.xid)
}

/// Positive, since it is a number with a sign in Java, and never that of a saga.
fn new_branch_id() -> i64 {
    (rand::random::<i64>() & i64::MAX) | (1 << 61)
}

pub(super) fn failed(why: &dyn std::fmt::Display, code: ExceptionCode) -> Failure {
    Failure { message: format!("TransactionException[{why}]"), code }
}

fn unknown_xid(xid: &str) -> Failure {
    let cut: String = xid.chars().take(100).collect();
    failed(
        &format!("{cut:?} is no xid of this coordinator"),
        ExceptionCode::GlobalTransactionNotExist,
    )
}

/// Why something was not done, where no better code is known.
pub(super) fn refused(reply: Result<Reply, EngineError>, code: ExceptionCode) -> Failure {
    match reply {
        Ok(Reply::Rejected(why)) => failed(&why, code),
        Ok(other) => failed(&format!("unexpected reply {other:?}"), code),
        Err(why) => failed(&why, code),
    }
}
