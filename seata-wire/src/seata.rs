//! The `seata` serializer: the fields of each message one after the other, without tags.
//!
//! There is one module per family of messages, with reading beside writing. A body may be longer
//! than its message: a later version may have more fields. Source:
//! `serializer/seata-serializer-seata/.../protocol/**/*Codec.java`.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::limits::Limits;
use crate::message::{Message, MessageType};
use crate::version::Dialect;

mod branch;
mod global;
pub(crate) mod merged;
mod phase_two;
mod registration;
mod result;

use MessageType as Type;

/// Reads a body: the type and the fields.
pub(crate) fn read(body: &[u8], dialect: &Dialect, limits: &Limits) -> Result<Message, WireError> {
    let mut reader = Reader::new(body);
    let kind = MessageType::from_code(i64::from(reader.i16("typeCode")?))?;
    read_fields(kind, &mut reader, dialect, limits)
}

/// Writes a body.
pub(crate) fn write(message: &Message, dialect: &Dialect) -> Result<Vec<u8>, WireError> {
    let mut writer = Writer::with_room();
    write_typed(message, &mut writer, dialect)?;
    Ok(writer.into_bytes())
}

fn write_typed(message: &Message, writer: &mut Writer, dialect: &Dialect) -> Result<(), WireError> {
    if let Some(kind) = message.kind() {
        writer.i16(kind.code());
    }
    write_fields(message, writer, dialect)
}

/// Reads what follows the type.
pub(crate) fn read_fields(
    kind: MessageType,
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<Message, WireError> {
    let (from, to) = (reader, dialect);
    Ok(match kind {
        Type::GlobalBegin => Message::GlobalBegin(global::read_begin(from)?),
        Type::GlobalBeginResult => Message::GlobalBeginResult(global::read_begun(from, to)?),
        Type::GlobalCommit => Message::GlobalCommit(global::read_end(from)?),
        Type::GlobalCommitResult => {
            Message::GlobalCommitResult(global::read_status_answer(from, to)?)
        }
        Type::GlobalRollback => Message::GlobalRollback(global::read_end(from)?),
        Type::GlobalRollbackResult => {
            Message::GlobalRollbackResult(global::read_status_answer(from, to)?)
        }
        Type::GlobalStatus => Message::GlobalStatus(global::read_end(from)?),
        Type::GlobalStatusResult => {
            Message::GlobalStatusResult(global::read_status_answer(from, to)?)
        }
        Type::GlobalReport => Message::GlobalReport(global::read_report(from)?),
        Type::GlobalReportResult => {
            Message::GlobalReportResult(global::read_status_answer(from, to)?)
        }
        Type::BranchRegister => Message::BranchRegister(branch::read_register(from)?),
        Type::BranchRegisterResult => {
            Message::BranchRegisterResult(branch::read_registered(from, to)?)
        }
        Type::BranchReport => Message::BranchReport(branch::read_report(from)?),
        Type::BranchReportResult => Message::BranchReportResult(branch::read_reported(from, to)?),
        Type::GlobalLockQuery => Message::GlobalLockQuery(branch::read_register(from)?),
        Type::GlobalLockQueryResult => {
            Message::GlobalLockQueryResult(branch::read_queried(from, to)?)
        }
        Type::BranchCommit => Message::BranchCommit(phase_two::read_end(from)?),
        Type::BranchCommitResult => Message::BranchCommitResult(phase_two::read_ended(from, to)?),
        Type::BranchRollback => Message::BranchRollback(phase_two::read_end(from)?),
        Type::BranchRollbackResult => {
            Message::BranchRollbackResult(phase_two::read_ended(from, to)?)
        }
        Type::UndoLogDelete => Message::UndoLogDelete(phase_two::read_undo_log_delete(from)?),
        Type::RegisterTm => Message::RegisterTm(registration::read_register(from)?),
        Type::RegisterTmResult => {
            Message::RegisterTmResult(registration::read_registered(from, to)?)
        }
        Type::RegisterRm => Message::RegisterRm(registration::read_resources(from)?),
        Type::RegisterRmResult => {
            Message::RegisterRmResult(registration::read_registered(from, to)?)
        }
        Type::UnregisterRm => Message::UnregisterRm(registration::read_resources(from)?),
        Type::UnregisterRmResult => {
            Message::UnregisterRmResult(registration::read_unregistered(from)?)
        }
        Type::MergedWarp => Message::MergedWarp(merged::read_warp(from, to, limits)?),
        Type::MergeResult => Message::MergeResult(merged::read_result(from, to, limits)?),
        Type::BatchResult => Message::BatchResult(merged::read_batch(from, to, limits)?),
    })
}

/// Writes what follows the type.
pub(crate) fn write_fields(
    message: &Message,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    match message {
        Message::Ping | Message::Pong => {
            Err(WireError::NoForm { what: "a heartbeat", serializer: "seata" })
        }
        Message::GlobalBegin(it) => global::write_begin(it, writer),
        Message::GlobalBeginResult(it) => global::write_begun(it, writer, dialect),
        Message::GlobalCommit(it) | Message::GlobalRollback(it) | Message::GlobalStatus(it) => {
            global::write_end(it, writer)
        }
        Message::GlobalCommitResult(it)
        | Message::GlobalRollbackResult(it)
        | Message::GlobalStatusResult(it)
        | Message::GlobalReportResult(it) => {
            global::write_status_answer(it, writer, dialect);
            Ok(())
        }
        Message::GlobalReport(it) => global::write_report(it, writer, dialect),
        Message::BranchRegister(it) | Message::GlobalLockQuery(it) => {
            branch::write_register(it, writer)
        }
        Message::BranchRegisterResult(it) => {
            branch::write_registered(it, writer, dialect);
            Ok(())
        }
        Message::BranchReport(it) => branch::write_report(it, writer),
        Message::BranchReportResult(it) => {
            result::write(&it.result, writer, dialect);
            Ok(())
        }
        Message::GlobalLockQueryResult(it) => {
            branch::write_queried(it, writer, dialect);
            Ok(())
        }
        Message::BranchCommit(it) | Message::BranchRollback(it) => phase_two::write_end(it, writer),
        Message::BranchCommitResult(it) | Message::BranchRollbackResult(it) => {
            phase_two::write_ended(it, writer, dialect)
        }
        Message::UndoLogDelete(it) => phase_two::write_undo_log_delete(it, writer),
        Message::RegisterTm(it) => registration::write_register(it, writer),
        Message::RegisterRm(it) | Message::UnregisterRm(it) => {
            registration::write_resources(it, writer)
        }
        Message::RegisterTmResult(it) | Message::RegisterRmResult(it) => {
            registration::write_registered(it, writer, dialect)
        }
        Message::UnregisterRmResult(it) => registration::write_unregistered(it, writer),
        Message::MergedWarp(it) => merged::write_warp(it, writer, dialect),
        Message::MergeResult(it) => merged::write_result(it, writer, dialect),
        Message::BatchResult(it) => merged::write_batch(it, writer, dialect),
    }
}
