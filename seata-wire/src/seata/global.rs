//! Globals: begin, commit, roll back, status, report.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::message::{GlobalBegin, GlobalBegun, GlobalEnd, GlobalReport, GlobalStatusAnswer};
use crate::value::GlobalStatus;
use crate::version::Dialect;

use super::result;

/// A report without a status.
const NO_STATUS: u8 = 0xFF;

pub(super) fn read_begin(reader: &mut Reader<'_>) -> Result<GlobalBegin, WireError> {
    Ok(GlobalBegin {
        timeout_ms: reader.i32("timeout")?,
        name: reader.short_text("transactionName")?,
    })
}

pub(super) fn write_begin(it: &GlobalBegin, writer: &mut Writer) -> Result<(), WireError> {
    writer.i32(it.timeout_ms);
    writer.short_text(&it.name, "transactionName")
}

pub(super) fn read_begun(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<GlobalBegun, WireError> {
    Ok(GlobalBegun {
        result: result::read(reader, dialect)?,
        xid: reader.short_text("xid")?,
        extra_data: reader.short_text("extraData")?,
    })
}

pub(super) fn write_begun(
    it: &GlobalBegun,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    result::write(&it.result, writer, dialect);
    writer.short_text(&it.xid, "xid")?;
    writer.short_text(&it.extra_data, "extraData")
}

pub(super) fn read_end(reader: &mut Reader<'_>) -> Result<GlobalEnd, WireError> {
    Ok(GlobalEnd { xid: reader.short_text("xid")?, extra_data: reader.short_text("extraData")? })
}

pub(super) fn write_end(it: &GlobalEnd, writer: &mut Writer) -> Result<(), WireError> {
    writer.short_text(&it.xid, "xid")?;
    writer.short_text(&it.extra_data, "extraData")
}

pub(super) fn read_report(reader: &mut Reader<'_>) -> Result<GlobalReport, WireError> {
    let xid = reader.short_text("xid")?;
    let extra_data = reader.short_text("extraData")?;
    let status = match reader.u8("globalStatus")? {
        NO_STATUS => None,
        number => Some(GlobalStatus::from_number(i64::from(number))?),
    };
    Ok(GlobalReport { xid, extra_data, status })
}

pub(super) fn write_report(
    it: &GlobalReport,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    writer.short_text(&it.xid, "xid")?;
    writer.short_text(&it.extra_data, "extraData")?;
    writer.u8(it.status.map_or(NO_STATUS, |status| status.known_to(dialect).number()));
    Ok(())
}

pub(super) fn read_status_answer(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<GlobalStatusAnswer, WireError> {
    let result = result::read(reader, dialect)?;
    let status = GlobalStatus::from_number(i64::from(reader.u8("globalStatus")?))?;
    Ok(GlobalStatusAnswer { result, status })
}

pub(super) fn write_status_answer(it: &GlobalStatusAnswer, writer: &mut Writer, dialect: &Dialect) {
    result::write(&it.result, writer, dialect);
    writer.u8(it.status.known_to(dialect).number());
}
