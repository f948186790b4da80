//! Fields and values that several messages share.
//!
//! Each `Option` of a message is set when it is written. An unset one is read as its default, as in
//! Java.

use prost::Message;

use crate::error::WireError;
use crate::message::{RequestFailure, TxResult};
use crate::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Typed {
    #[prost(int32, tag = "1")]
    pub(super) message_type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResultBase {
    #[prost(message, optional, tag = "1")]
    typed: Option<Typed>,
    #[prost(int32, tag = "2")]
    result_code: i32,
    #[prost(string, tag = "3")]
    msg: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "1")]
    typed: Option<Typed>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(message, optional, tag = "1")]
    result: Option<ResultBase>,
    #[prost(int32, tag = "2")]
    exception_code: i32,
}

impl Typed {
    pub(super) fn of(code: i16) -> Self {
        Self { message_type: i32::from(code) }
    }
}

impl Request {
    pub(super) fn of(code: i16) -> Option<Self> {
        Some(Self { typed: Some(Typed::of(code)) })
    }
}

impl ResultBase {
    pub(super) fn of(result: Result<(), &str>, code: i16) -> Self {
        let msg = result.err().unwrap_or_default().to_owned();
        Self { typed: Some(Typed::of(code)), result_code: i32::from(result.is_ok()), msg }
    }

    pub(super) fn into_result(self) -> Result<(), String> {
        match self.result_code {
            1 => Ok(()),
            _ => Err(self.msg),
        }
    }
}

impl Response {
    pub(super) fn of(result: &TxResult, code: i16) -> Option<Self> {
        let plain = result.as_ref().copied().map_err(|failure| failure.message.as_str());
        let exception = result.as_ref().err().map_or(ExceptionCode::Unknown, |it| it.code);
        let result = Some(ResultBase::of(plain, code));
        Some(Self { result, exception_code: i32::from(exception.protobuf_number()) })
    }

    pub(super) fn into_result(it: Option<Self>) -> TxResult {
        let it = it.unwrap_or_default();
        let code = ExceptionCode::from_protobuf_number(it.exception_code);
        let plain = it.result.unwrap_or_default().into_result();
        plain.map_err(|message| RequestFailure { message, code })
    }
}

/// Returns the number of a status. Protobuf has no statuses from 16 on.
pub(super) fn global_status_number(status: GlobalStatus) -> i32 {
    i32::from(status.before_1_5().number())
}

pub(super) fn global_status(number: i32) -> Result<GlobalStatus, WireError> {
    GlobalStatus::from_number(i64::from(number))
}

/// Returns the number of a status. Protobuf lacks two statuses, and has one only from 2.4 on.
pub(super) fn branch_status_number(status: BranchStatus) -> i32 {
    let known = match status {
        BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable => {
            BranchStatus::PhaseTwoCommitFailedRetryable
        }
        BranchStatus::PhaseTwoRollbackFailedXaerNotaRetryable => {
            BranchStatus::PhaseTwoRollbackFailedRetryable
        }
        BranchStatus::StopRetry => BranchStatus::Unknown,
        BranchStatus::Unknown
        | BranchStatus::Registered
        | BranchStatus::PhaseOneDone
        | BranchStatus::PhaseOneFailed
        | BranchStatus::PhaseOneTimeout
        | BranchStatus::PhaseTwoCommitted
        | BranchStatus::PhaseTwoCommitFailedRetryable
        | BranchStatus::PhaseTwoCommitFailedUnretryable
        | BranchStatus::PhaseTwoRollbacked
        | BranchStatus::PhaseTwoRollbackFailedRetryable
        | BranchStatus::PhaseTwoRollbackFailedUnretryable
        | BranchStatus::PhaseOneRdonly => status,
    };
    i32::from(known.number())
}

pub(super) fn branch_status(number: i32) -> Result<BranchStatus, WireError> {
    BranchStatus::from_number(i64::from(number))
}

/// Returns the number of a mode. Protobuf has only three modes.
pub(super) fn branch_type_number(kind: BranchType) -> Result<i32, WireError> {
    let refused = |what| Err(WireError::NoForm { what, serializer: "protobuf" });
    match kind {
        BranchType::At | BranchType::Tcc | BranchType::Saga => Ok(i32::from(kind.number())),
        BranchType::Xa => refused("an XA branch"),
        BranchType::SagaAnnotation => refused("a branch of an annotated saga"),
    }
}

pub(super) fn branch_type(number: i32) -> Result<BranchType, WireError> {
    BranchType::from_number(i64::from(number))
}
