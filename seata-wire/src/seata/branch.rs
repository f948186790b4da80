//! Branches in phase one: register, report, lock query.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::message::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, GlobalLockQueried,
};
use crate::value::{BranchStatus, BranchType};
use crate::version::Dialect;

use super::result;

pub(super) fn read_type(reader: &mut Reader<'_>) -> Result<BranchType, WireError> {
    BranchType::from_number(i64::from(reader.u8("branchType")?))
}

pub(super) fn read_status(reader: &mut Reader<'_>) -> Result<BranchStatus, WireError> {
    BranchStatus::from_number(i64::from(reader.u8("branchStatus")?))
}

pub(super) fn read_register(reader: &mut Reader<'_>) -> Result<BranchRegister, WireError> {
    Ok(BranchRegister {
        xid: reader.short_text("xid")?,
        branch_type: read_type(reader)?,
        resource_id: reader.short_text("resourceId")?,
        lock_key: reader.long_text("lockKey")?,
        application_data: reader.long_text("applicationData")?,
    })
}

pub(super) fn write_register(it: &BranchRegister, writer: &mut Writer) -> Result<(), WireError> {
    writer.short_text(&it.xid, "xid")?;
    writer.u8(it.branch_type.number());
    writer.short_text(&it.resource_id, "resourceId")?;
    writer.long_text(&it.lock_key, "lockKey")?;
    writer.long_text(&it.application_data, "applicationData")
}

pub(super) fn read_registered(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<BranchRegistered, WireError> {
    let result = result::read(reader, dialect)?;
    Ok(BranchRegistered { result, branch_id: reader.i64("branchId")? })
}

pub(super) fn write_registered(it: &BranchRegistered, writer: &mut Writer, dialect: &Dialect) {
    result::write(&it.result, writer, dialect);
    writer.i64(it.branch_id);
}

pub(super) fn read_report(reader: &mut Reader<'_>) -> Result<BranchReport, WireError> {
    Ok(BranchReport {
        xid: reader.short_text("xid")?,
        branch_id: reader.i64("branchId")?,
        status: read_status(reader)?,
        resource_id: reader.short_text("resourceId")?,
        application_data: reader.long_text("applicationData")?,
        branch_type: read_type(reader)?,
    })
}

pub(super) fn write_report(it: &BranchReport, writer: &mut Writer) -> Result<(), WireError> {
    writer.short_text(&it.xid, "xid")?;
    writer.i64(it.branch_id);
    writer.u8(it.status.number());
    writer.short_text(&it.resource_id, "resourceId")?;
    writer.long_text(&it.application_data, "applicationData")?;
    writer.u8(it.branch_type.number());
    Ok(())
}

pub(super) fn read_reported(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<BranchReported, WireError> {
    Ok(BranchReported { result: result::read(reader, dialect)? })
}

pub(super) fn read_queried(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<GlobalLockQueried, WireError> {
    let result = result::read(reader, dialect)?;
    Ok(GlobalLockQueried { result, lockable: reader.i16("lockable")? == 1 })
}

pub(super) fn write_queried(it: &GlobalLockQueried, writer: &mut Writer, dialect: &Dialect) {
    result::write(&it.result, writer, dialect);
    writer.i16(i16::from(it.lockable));
}
