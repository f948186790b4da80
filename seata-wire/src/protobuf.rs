//! The `protobuf` serializer: the message's full name, then the message.
//!
//! Java maps most values by their names, so a value without a name in protobuf cannot be sent: XA
//! branches, and every status and exception code that was added later. A value with a near
//! equivalent is sent as that; the others are an error. Source:
//! `serializer/seata-serializer-protobuf/.../*.proto` and the `convertor` classes beside them.

use prost::Message as _;

use crate::bytes::{Reader, cut};
use crate::error::WireError;
use crate::limits::Limits;
use crate::message::{Message, MessageType};
use crate::serializer::Package;

mod branch;
mod common;
mod global;
mod merged;
mod phase_two;
mod registration;

use MessageType as Type;

/// The longest name that is read.
const NAME_BYTES_MAX: usize = 256;

/// Reads a body. Also returns the package of its name.
pub(crate) fn read(body: &[u8], limits: &Limits) -> Result<(Message, Package), WireError> {
    let mut reader = Reader::new(body);
    let length = reader.i32("name length")?;
    let length = usize::try_from(length).ok().filter(|&length| length <= NAME_BYTES_MAX);
    let length = length.ok_or(WireError::Truncated { field: "name" })?;
    let name = reader.text(length, "name")?;
    let (kind, package) = by_name(&name)?;
    let content = reader.take(reader.remaining(), "message")?;
    Ok((read_content(kind, content, limits)?, package))
}

/// Writes a body.
pub(crate) fn write(message: &Message, package: Package) -> Result<Vec<u8>, WireError> {
    let name = full_name(message, package)?;
    let length = i32::try_from(name.len()).expect("the names in the table are short");
    let mut body = length.to_be_bytes().to_vec();
    body.extend(name.bytes());
    body.extend(write_content(message, package)?);
    Ok(body)
}

fn full_name(message: &Message, package: Package) -> Result<String, WireError> {
    let kind =
        message.kind().ok_or(WireError::NoForm { what: "a heartbeat", serializer: "protobuf" })?;
    Ok(format!("{}{}Proto", package.prefix(), kind.protobuf_name()))
}

fn by_name(name: &str) -> Result<(MessageType, Package), WireError> {
    let found = [Package::OrgApacheSeata, Package::IoSeata].into_iter().find_map(|package| {
        let short = name.strip_prefix(package.prefix())?.strip_suffix("Proto")?;
        Some((MessageType::from_protobuf_name(short)?, package))
    });
    found.ok_or_else(|| WireError::UnknownName { name: cut(name, 100).to_owned() })
}

fn parse<T: prost::Message + Default>(content: &[u8]) -> Result<T, WireError> {
    T::decode(content).map_err(|error| WireError::Protobuf { what: error.to_string() })
}

fn read_content(kind: MessageType, from: &[u8], limits: &Limits) -> Result<Message, WireError> {
    Ok(match kind {
        Type::GlobalBegin => Message::GlobalBegin(parse::<global::Begin>(from)?.into()),
        Type::GlobalBeginResult => Message::GlobalBeginResult(parse::<global::Begun>(from)?.into()),
        Type::GlobalCommit => Message::GlobalCommit(parse::<global::End>(from)?.into()),
        Type::GlobalCommitResult => {
            Message::GlobalCommitResult(parse::<global::StatusAnswer>(from)?.try_into()?)
        }
        Type::GlobalRollback => Message::GlobalRollback(parse::<global::End>(from)?.into()),
        Type::GlobalRollbackResult => {
            Message::GlobalRollbackResult(parse::<global::StatusAnswer>(from)?.try_into()?)
        }
        Type::GlobalStatus => Message::GlobalStatus(parse::<global::End>(from)?.into()),
        Type::GlobalStatusResult => {
            Message::GlobalStatusResult(parse::<global::StatusAnswer>(from)?.try_into()?)
        }
        Type::GlobalReport => Message::GlobalReport(parse::<global::Report>(from)?.try_into()?),
        Type::GlobalReportResult => {
            Message::GlobalReportResult(parse::<global::StatusAnswer>(from)?.try_into()?)
        }
        Type::BranchRegister => {
            Message::BranchRegister(parse::<branch::Register>(from)?.try_into()?)
        }
        Type::BranchRegisterResult => {
            Message::BranchRegisterResult(parse::<branch::Registered>(from)?.into())
        }
        Type::BranchReport => Message::BranchReport(parse::<branch::Report>(from)?.try_into()?),
        Type::BranchReportResult => {
            Message::BranchReportResult(parse::<branch::Reported>(from)?.into())
        }
        Type::GlobalLockQuery => {
            Message::GlobalLockQuery(parse::<branch::Query>(from)?.try_into()?)
        }
        Type::GlobalLockQueryResult => {
            Message::GlobalLockQueryResult(parse::<branch::Queried>(from)?.into())
        }
        Type::BranchCommit => Message::BranchCommit(parse::<phase_two::End>(from)?.try_into()?),
        Type::BranchCommitResult => {
            Message::BranchCommitResult(parse::<phase_two::Ended>(from)?.try_into()?)
        }
        Type::BranchRollback => Message::BranchRollback(parse::<phase_two::End>(from)?.try_into()?),
        Type::BranchRollbackResult => {
            Message::BranchRollbackResult(parse::<phase_two::Ended>(from)?.try_into()?)
        }
        Type::UndoLogDelete => {
            Message::UndoLogDelete(parse::<phase_two::UndoDelete>(from)?.try_into()?)
        }
        Type::RegisterTm => Message::RegisterTm(parse::<registration::Tm>(from)?.into()),
        Type::RegisterTmResult => {
            Message::RegisterTmResult(parse::<registration::Answer>(from)?.into())
        }
        Type::RegisterRm => Message::RegisterRm(parse::<registration::Rm>(from)?.into()),
        Type::RegisterRmResult => {
            Message::RegisterRmResult(parse::<registration::Answer>(from)?.into())
        }
        Type::UnregisterRm => Message::UnregisterRm(parse::<registration::Rm>(from)?.into()),
        Type::UnregisterRmResult => {
            Message::UnregisterRmResult(parse::<registration::Answer>(from)?.into())
        }
        Type::MergedWarp => Message::MergedWarp(merged::read_warp(from, limits)?),
        Type::MergeResult => Message::MergeResult(merged::read_result(from, limits)?),
        Type::BatchResult => Message::BatchResult(merged::read_batch(from, limits)?),
    })
}

fn write_content(message: &Message, package: Package) -> Result<Vec<u8>, WireError> {
    let code = message.kind().map_or(0, MessageType::code);
    Ok(match message {
        Message::Ping | Message::Pong => {
            return Err(WireError::NoForm { what: "a heartbeat", serializer: "protobuf" });
        }
        Message::GlobalBegin(it) => global::Begin::of(it, code).encode_to_vec(),
        Message::GlobalBeginResult(it) => global::Begun::of(it, code).encode_to_vec(),
        Message::GlobalCommit(it) | Message::GlobalRollback(it) | Message::GlobalStatus(it) => {
            global::End::of(it, code).encode_to_vec()
        }
        Message::GlobalCommitResult(it)
        | Message::GlobalRollbackResult(it)
        | Message::GlobalStatusResult(it)
        | Message::GlobalReportResult(it) => global::StatusAnswer::of(it, code).encode_to_vec(),
        Message::GlobalReport(it) => global::Report::of(it, code).encode_to_vec(),
        Message::BranchRegister(it) => branch::Register::of(it, code)?.encode_to_vec(),
        Message::BranchRegisterResult(it) => branch::Registered::of(it, code).encode_to_vec(),
        Message::BranchReport(it) => branch::Report::of(it, code)?.encode_to_vec(),
        Message::BranchReportResult(it) => branch::Reported::of(it, code).encode_to_vec(),
        Message::GlobalLockQuery(it) => branch::Query::of(it, code)?.encode_to_vec(),
        Message::GlobalLockQueryResult(it) => branch::Queried::of(it, code).encode_to_vec(),
        Message::BranchCommit(it) | Message::BranchRollback(it) => {
            phase_two::End::of(it, code)?.encode_to_vec()
        }
        Message::BranchCommitResult(it) | Message::BranchRollbackResult(it) => {
            phase_two::Ended::of(it, code).encode_to_vec()
        }
        Message::UndoLogDelete(it) => phase_two::UndoDelete::of(it, code)?.encode_to_vec(),
        Message::RegisterTm(it) => registration::Tm::of(it, code).encode_to_vec(),
        Message::RegisterRm(it) | Message::UnregisterRm(it) => {
            registration::Rm::of(it, code).encode_to_vec()
        }
        Message::RegisterTmResult(it)
        | Message::RegisterRmResult(it)
        | Message::UnregisterRmResult(it) => registration::Answer::of(it, code).encode_to_vec(),
        Message::MergedWarp(it) => merged::write_warp(it, code, package)?,
        Message::MergeResult(it) => merged::write_result(it, code, package)?,
        Message::BatchResult(it) => merged::write_batch(it, code, package)?,
    })
}
