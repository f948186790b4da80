//! Every message of the protocol, independent of its encoding.
//!
//! Null and empty texts are the same: the `seata` serializer cannot distinguish them. Sources:
//! `core/.../protocol/MessageType.java`, `core/.../protocol/transaction/*.java`.

use crate::error::WireError;
use crate::value::ExceptionCode;

mod branch;
mod global;
mod merged;
mod phase_two;
mod registration;

pub use branch::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, GlobalLockQueried,
};
pub use global::{GlobalBegin, GlobalBegun, GlobalEnd, GlobalReport, GlobalStatusAnswer};
pub use merged::{BatchResult, MergeResult, MergedWarp};
pub use phase_two::{BranchEnd, BranchEnded, UndoLogDelete};
pub use registration::{Register, RegisterResources, Registered};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A heartbeat's request.
    Ping,
    /// A heartbeat's answer.
    Pong,
    /// TM: begin a global.
    GlobalBegin(GlobalBegin),
    /// Its answer.
    GlobalBeginResult(GlobalBegun),
    /// TC to RM: commit a branch.
    BranchCommit(BranchEnd),
    /// Its answer.
    BranchCommitResult(BranchEnded),
    /// TC to RM: roll a branch back.
    BranchRollback(BranchEnd),
    /// Its answer.
    BranchRollbackResult(BranchEnded),
    /// TM: commit a global.
    GlobalCommit(GlobalEnd),
    /// Its answer.
    GlobalCommitResult(GlobalStatusAnswer),
    /// TM: roll a global back.
    GlobalRollback(GlobalEnd),
    /// Its answer.
    GlobalRollbackResult(GlobalStatusAnswer),
    /// RM: register a branch.
    BranchRegister(BranchRegister),
    /// Its answer.
    BranchRegisterResult(BranchRegistered),
    /// RM: phase one of a branch ended.
    BranchReport(BranchReport),
    /// Its answer.
    BranchReportResult(BranchReported),
    /// TM: query the status of a global.
    GlobalStatus(GlobalEnd),
    /// Its answer.
    GlobalStatusResult(GlobalStatusAnswer),
    /// TM of a Saga: report how its state machine ended.
    GlobalReport(GlobalReport),
    /// Its answer.
    GlobalReportResult(GlobalStatusAnswer),
    /// RM: query whether this global could lock these rows.
    GlobalLockQuery(BranchRegister),
    /// Its answer.
    GlobalLockQueryResult(GlobalLockQueried),
    /// Several requests in one.
    MergedWarp(MergedWarp),
    /// Their answers, by position.
    MergeResult(MergeResult),
    /// A TM registers.
    RegisterTm(Register),
    /// The answer.
    RegisterTmResult(Registered),
    /// An RM registers itself and its resources.
    RegisterRm(RegisterResources),
    /// The answer.
    RegisterRmResult(Registered),
    /// An RM unregisters resources.
    UnregisterRm(RegisterResources),
    /// The answer.
    UnregisterRmResult(Registered),
    /// TC to RM: delete old undo logs. It has no answer.
    UndoLogDelete(UndoLogDelete),
    /// Answers to several requests, by id.
    BatchResult(BatchResult),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// The message for display.
    pub message: String,
    /// The code for the client.
    pub code: ExceptionCode,
}

/// The result of a request about a transaction. A failed answer has all other fields too.
pub type TxResult = Result<(), RequestFailure>;

/// The type of a message that has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are those of `Message`")]
#[repr(i16)]
pub enum MessageType {
    GlobalBegin = 1,
    GlobalBeginResult = 2,
    BranchCommit = 3,
    BranchCommitResult = 4,
    BranchRollback = 5,
    BranchRollbackResult = 6,
    GlobalCommit = 7,
    GlobalCommitResult = 8,
    GlobalRollback = 9,
    GlobalRollbackResult = 10,
    BranchRegister = 11,
    BranchRegisterResult = 12,
    BranchReport = 13,
    BranchReportResult = 14,
    GlobalStatus = 15,
    GlobalStatusResult = 16,
    GlobalReport = 17,
    GlobalReportResult = 18,
    GlobalLockQuery = 21,
    GlobalLockQueryResult = 22,
    MergedWarp = 59,
    MergeResult = 60,
    RegisterTm = 101,
    RegisterTmResult = 102,
    RegisterRm = 103,
    RegisterRmResult = 104,
    UnregisterRm = 105,
    UnregisterRmResult = 106,
    UndoLogDelete = 111,
    BatchResult = 121,
}

use MessageType as Type;

/// Each type with its name in protobuf, without the package and the suffix `Proto`.
const TYPES: [(Type, &str); 30] = [
    (Type::GlobalBegin, "GlobalBeginRequest"),
    (Type::GlobalBeginResult, "GlobalBeginResponse"),
    (Type::BranchCommit, "BranchCommitRequest"),
    (Type::BranchCommitResult, "BranchCommitResponse"),
    (Type::BranchRollback, "BranchRollbackRequest"),
    (Type::BranchRollbackResult, "BranchRollbackResponse"),
    (Type::GlobalCommit, "GlobalCommitRequest"),
    (Type::GlobalCommitResult, "GlobalCommitResponse"),
    (Type::GlobalRollback, "GlobalRollbackRequest"),
    (Type::GlobalRollbackResult, "GlobalRollbackResponse"),
    (Type::BranchRegister, "BranchRegisterRequest"),
    (Type::BranchRegisterResult, "BranchRegisterResponse"),
    (Type::BranchReport, "BranchReportRequest"),
    (Type::BranchReportResult, "BranchReportResponse"),
    (Type::GlobalStatus, "GlobalStatusRequest"),
    (Type::GlobalStatusResult, "GlobalStatusResponse"),
    (Type::GlobalReport, "GlobalReportRequest"),
    (Type::GlobalReportResult, "GlobalReportResponse"),
    (Type::GlobalLockQuery, "GlobalLockQueryRequest"),
    (Type::GlobalLockQueryResult, "GlobalLockQueryResponse"),
    (Type::MergedWarp, "MergedWarpMessage"),
    (Type::MergeResult, "MergedResultMessage"),
    (Type::RegisterTm, "RegisterTMRequest"),
    (Type::RegisterTmResult, "RegisterTMResponse"),
    (Type::RegisterRm, "RegisterRMRequest"),
    (Type::RegisterRmResult, "RegisterRMResponse"),
    (Type::UnregisterRm, "UnregisterRMRequest"),
    (Type::UnregisterRmResult, "UnregisterRMResponse"),
    (Type::UndoLogDelete, "UndoLogDeleteRequest"),
    (Type::BatchResult, "BatchResultMessage"),
];

impl MessageType {
    /// Every type.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.iter().map(|&(kind, _)| kind)
    }

    /// Returns its number.
    #[must_use]
    pub fn code(self) -> i16 {
        self as i16
    }

    pub(crate) fn from_code(code: i64) -> Result<Self, WireError> {
        Self::all()
            .find(|kind| i64::from(kind.code()) == code)
            .ok_or(WireError::UnknownMessage { code })
    }

    pub(crate) fn protobuf_name(self) -> &'static str {
        TYPES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn from_protobuf_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|(_, it)| *it == name).map(|&(kind, _)| kind)
    }

    /// Returns whether it carries other messages, and so cannot be a part itself.
    pub(crate) fn is_merged(self) -> bool {
        matches!(self, Type::MergedWarp | Type::MergeResult | Type::BatchResult)
    }
}

impl Message {
    /// Returns its type, or `None` for heartbeats, which have no body.
    #[must_use]
    pub fn kind(&self) -> Option<MessageType> {
        Some(match self {
            Self::Ping | Self::Pong => return None,
            Self::GlobalBegin(_) => Type::GlobalBegin,
            Self::GlobalBeginResult(_) => Type::GlobalBeginResult,
            Self::BranchCommit(_) => Type::BranchCommit,
            Self::BranchCommitResult(_) => Type::BranchCommitResult,
            Self::BranchRollback(_) => Type::BranchRollback,
            Self::BranchRollbackResult(_) => Type::BranchRollbackResult,
            Self::GlobalCommit(_) => Type::GlobalCommit,
            Self::GlobalCommitResult(_) => Type::GlobalCommitResult,
            Self::GlobalRollback(_) => Type::GlobalRollback,
            Self::GlobalRollbackResult(_) => Type::GlobalRollbackResult,
            Self::BranchRegister(_) => Type::BranchRegister,
            Self::BranchRegisterResult(_) => Type::BranchRegisterResult,
            Self::BranchReport(_) => Type::BranchReport,
            Self::BranchReportResult(_) => Type::BranchReportResult,
            Self::GlobalStatus(_) => Type::GlobalStatus,
            Self::GlobalStatusResult(_) => Type::GlobalStatusResult,
            Self::GlobalReport(_) => Type::GlobalReport,
            Self::GlobalReportResult(_) => Type::GlobalReportResult,
            Self::GlobalLockQuery(_) => Type::GlobalLockQuery,
            Self::GlobalLockQueryResult(_) => Type::GlobalLockQueryResult,
            Self::MergedWarp(_) => Type::MergedWarp,
            Self::MergeResult(_) => Type::MergeResult,
            Self::RegisterTm(_) => Type::RegisterTm,
            Self::RegisterTmResult(_) => Type::RegisterTmResult,
            Self::RegisterRm(_) => Type::RegisterRm,
            Self::RegisterRmResult(_) => Type::RegisterRmResult,
            Self::UnregisterRm(_) => Type::UnregisterRm,
            Self::UnregisterRmResult(_) => Type::UnregisterRmResult,
            Self::UndoLogDelete(_) => Type::UndoLogDelete,
            Self::BatchResult(_) => Type::BatchResult,
        })
    }
}
