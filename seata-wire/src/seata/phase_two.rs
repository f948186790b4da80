//! The TC's requests to an RM, and the answers.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::message::{BranchEnd, BranchEnded, UndoLogDelete};
use crate::version::{Dialect, Family};

use super::branch::{read_status, read_type};
use super::result::{self, MessageLength};

pub(super) fn read_end(reader: &mut Reader<'_>) -> Result<BranchEnd, WireError> {
    Ok(BranchEnd {
        xid: reader.short_text("xid")?,
        branch_id: reader.i64("branchId")?,
        branch_type: read_type(reader)?,
        resource_id: reader.short_text("resourceId")?,
        application_data: reader.long_text("applicationData")?,
    })
}

pub(super) fn write_end(it: &BranchEnd, writer: &mut Writer) -> Result<(), WireError> {
    // Java cannot read the whole message if one of these is empty.
    for (text, field) in [(&it.xid, "xid"), (&it.resource_id, "resourceId")] {
        if text.is_empty() {
            return Err(WireError::Empty { field });
        }
    }
    writer.short_text(&it.xid, "xid")?;
    writer.i64(it.branch_id);
    writer.u8(it.branch_type.number());
    writer.short_text(&it.resource_id, "resourceId")?;
    writer.long_text(&it.application_data, "applicationData")
}

/// Reads an answer. seata-go writes the message of a failure with a length of one byte; Java's form
/// is tried first.
pub(super) fn read_ended(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<BranchEnded, WireError> {
    let start = reader.clone();
    let as_java = read_ended_with(reader, dialect, MessageLength::Short);
    if as_java.is_ok() || dialect.family == Family::Java {
        return as_java;
    }
    *reader = start;
    read_ended_with(reader, dialect, MessageLength::Tiny)
}

fn read_ended_with(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    length: MessageLength,
) -> Result<BranchEnded, WireError> {
    Ok(BranchEnded {
        result: result::read_with(reader, dialect, length)?,
        xid: reader.short_text("xid")?,
        branch_id: reader.i64("branchId")?,
        status: read_status(reader)?,
    })
}

pub(super) fn write_ended(
    it: &BranchEnded,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    result::write(&it.result, writer, dialect);
    writer.short_text(&it.xid, "xid")?;
    writer.i64(it.branch_id);
    writer.u8(it.status.number());
    Ok(())
}

pub(super) fn read_undo_log_delete(reader: &mut Reader<'_>) -> Result<UndoLogDelete, WireError> {
    Ok(UndoLogDelete {
        branch_type: read_type(reader)?,
        resource_id: reader.short_text("resourceId")?,
        save_days: reader.i16("saveDays")?,
    })
}

pub(super) fn write_undo_log_delete(
    it: &UndoLogDelete,
    writer: &mut Writer,
) -> Result<(), WireError> {
    writer.u8(it.branch_type.number());
    writer.short_text(&it.resource_id, "resourceId")?;
    writer.i16(it.save_days);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{BranchStatus, ExceptionCode};

    #[test]
    fn a_failure_of_seata_go_is_read_with_its_short_length() {
        let mut bytes = b"\x00\x03odd\x00\x00\x01x".to_vec();
        bytes.extend(7_i64.to_be_bytes());
        bytes.push(9);
        let go = Dialect { family: Family::Go, ..Dialect::default() };
        let ended = read_ended(&mut Reader::new(&bytes), &go).unwrap();
        let failure = ended.result.unwrap_err();
        assert_eq!((failure.message.as_str(), failure.code), ("odd", ExceptionCode::Unknown));
        assert_eq!((ended.branch_id, ended.status.number()), (7, 9));
        assert!(read_ended(&mut Reader::new(&bytes), &Dialect::default()).is_err());
    }

    #[test]
    fn empty_ids_that_java_cannot_read_are_not_written() {
        let end = BranchEnd {
            xid: String::new(),
            branch_id: 1,
            branch_type: crate::value::BranchType::At,
            resource_id: "r".to_owned(),
            application_data: String::new(),
        };
        let refused = write_end(&end, &mut Writer::default());
        assert_eq!(refused, Err(WireError::Empty { field: "xid" }));
        assert_eq!(BranchStatus::PhaseTwoCommitted.number(), 5);
    }
}
