//! Refusals: as a message on the stream, as a gRPC status for a unary call.

use handfast_core::Rejection;
use handfast_proto::v1 as wire;
use handfast_proto::v1::rejection::Detail;
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::bounds::BadRequest;
use super::to_wire::{status_and_reason, xid_text};
use crate::engine::EngineError;

const CODE_KEY: &str = "handfast-code";
const REJECTION_KEY: &str = "handfast-rejection-bin";

/// Returns the message of a refusal by the core.
pub(super) fn of_core(rejection: &Rejection) -> wire::Rejection {
    wire::Rejection {
        code: rejection.code().to_owned(),
        message: rejection.to_string(),
        detail: detail(rejection),
    }
}

/// Returns the message of an engine that cannot answer.
pub(super) fn of_engine(error: EngineError) -> wire::Rejection {
    wire::Rejection { code: error.code().to_owned(), message: error.to_string(), detail: None }
}

/// Returns the message of a request that cannot be read.
pub(super) fn of_request(error: &BadRequest) -> wire::Rejection {
    wire::Rejection { code: error.code().to_owned(), message: error.to_string(), detail: None }
}

/// A unary call's status for what the core refused.
pub(super) fn status_of_core(rejection: &Rejection) -> Status {
    let code = match rejection {
        Rejection::UnknownXid(_)
        | Rejection::UnknownBranch { .. }
        | Rejection::LockNotHeld { .. } => Code::NotFound,
        Rejection::AlreadyDecided { .. }
        | Rejection::XidNotLent(_)
        | Rejection::NotApplicable { .. }
        | Rejection::UnknownSignal { .. }
        | Rejection::PastPivot { .. }
        | Rejection::Voting(_) => Code::FailedPrecondition,
        Rejection::SagaInvalid { .. } => Code::InvalidArgument,
        Rejection::RowLocked { .. }
        | Rejection::RowNeedsOperator { .. }
        | Rejection::Deadlock { .. }
        | Rejection::LockRollingBack { .. } => Code::Aborted,
        Rejection::BranchMismatch { .. }
        | Rejection::SagaMismatch { .. }
        | Rejection::LockParts { .. }
        | Rejection::LockTokenTaken { .. } => Code::AlreadyExists,
        Rejection::LimitReached { .. } | Rejection::ShareReached { .. } => Code::ResourceExhausted,
    };
    status(code, &of_core(rejection), rejection.code())
}

/// Returns the status for a request that the engine could not answer, and that may be sent again:
/// to the leader, if the engine does not lead.
pub(super) fn status_of_engine(error: EngineError, leader: wire::NotLeading) -> Status {
    let detail = match error {
        EngineError::NotLeading => Some(Detail::NotLeading(leader)),
        EngineError::Busy | EngineError::Stopping => None,
    };
    let rejection = wire::Rejection { detail, ..of_engine(error) };
    status(Code::Unavailable, &rejection, error.code())
}

/// A status for what could not be understood.
pub(super) fn status_of_request(error: &BadRequest) -> Status {
    status(Code::InvalidArgument, &of_request(error), error.code())
}

/// The status that ends the stream of a client that does not read.
pub(super) fn status_of_slow_reader(queued_max: usize) -> Status {
    let code = "HF-TC-SLOW-READER";
    let message = format!("more than {queued_max} messages were waiting to be read: reconnect");
    let rejection = wire::Rejection { code: code.to_owned(), message, detail: None };
    status(Code::ResourceExhausted, &rejection, code)
}

fn status(code: Code, rejection: &wire::Rejection, stable: &'static str) -> Status {
    let mut status = Status::new(code, rejection.message.clone());
    let metadata = status.metadata_mut();
    metadata.insert(CODE_KEY, MetadataValue::from_static(stable));
    metadata.insert_bin(REJECTION_KEY, MetadataValue::from_bytes(&rejection.encode_to_vec()));
    status
}

fn detail(rejection: &Rejection) -> Option<Detail> {
    match rejection {
        Rejection::RowLocked { table, key, by, by_address, holder_rolling_back } => {
            Some(Detail::RowLocked(wire::RowLocked {
                table: table.as_ref().to_owned(),
                key: key.to_vec(),
                xid: xid_text(by_address, *by),
                holder_rolling_back: *holder_rolling_back,
            }))
        }
        Rejection::RowNeedsOperator { table, key, by, by_address } => {
            Some(Detail::RowNeedsOperator(wire::RowNeedsOperator {
                table: table.as_ref().to_owned(),
                key: key.to_vec(),
                xid: xid_text(by_address, *by),
            }))
        }
        Rejection::Deadlock { cycle } => Some(Detail::Deadlock(wire::Deadlock {
            xids: cycle.iter().map(|(xid, address)| xid_text(address, *xid)).collect(),
        })),
        Rejection::AlreadyDecided { status, .. } => {
            let (status, rollback_reason) = status_and_reason(*status);
            Some(Detail::AlreadyDecided(wire::AlreadyDecided { status, rollback_reason }))
        }
        Rejection::UnknownXid(_)
        | Rejection::XidNotLent(_)
        | Rejection::Voting(_)
        | Rejection::UnknownBranch { .. }
        | Rejection::BranchMismatch { .. }
        | Rejection::NotApplicable { .. }
        | Rejection::SagaInvalid { .. }
        | Rejection::SagaMismatch { .. }
        | Rejection::UnknownSignal { .. }
        | Rejection::PastPivot { .. }
        | Rejection::LockParts { .. }
        | Rejection::LockTokenTaken { .. }
        | Rejection::LockRollingBack { .. }
        | Rejection::LockNotHeld { .. }
        | Rejection::ShareReached { .. }
        | Rejection::LimitReached { .. } => None,
    }
}
