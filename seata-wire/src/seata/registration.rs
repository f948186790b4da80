//! Registrations of TMs and RMs. Only their answers differ between v1 and v2.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::message::{Register, RegisterResources, Registered};
use crate::version::{Dialect, FrameVersion};

use super::result::{self, MessageLength};

pub(super) fn read_register(reader: &mut Reader<'_>) -> Result<Register, WireError> {
    Ok(Register {
        version: reader.short_text("version")?,
        application_id: reader.short_text("applicationId")?,
        transaction_service_group: reader.short_text("transactionServiceGroup")?,
        extra_data: reader.short_text("extraData")?,
    })
}

pub(super) fn write_register(it: &Register, writer: &mut Writer) -> Result<(), WireError> {
    writer.short_text(&it.version, "version")?;
    writer.short_text(&it.application_id, "applicationId")?;
    writer.short_text(&it.transaction_service_group, "transactionServiceGroup")?;
    writer.short_text(&it.extra_data, "extraData")
}

pub(super) fn read_resources(reader: &mut Reader<'_>) -> Result<RegisterResources, WireError> {
    let client = read_register(reader)?;
    Ok(RegisterResources { client, resource_list: reader.long_text("resourceIds")? })
}

pub(super) fn write_resources(
    it: &RegisterResources,
    writer: &mut Writer,
) -> Result<(), WireError> {
    write_register(&it.client, writer)?;
    writer.long_text(&it.resource_list, "resourceIds")
}

/// Reads an answer. A peer that is not identified is refused, whatever the result before it says.
pub(super) fn read_registered(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
) -> Result<Registered, WireError> {
    let reason = match dialect.frame {
        FrameVersion::V0 | FrameVersion::V1 => String::new(),
        FrameVersion::V2 => {
            result::read_plain(reader, MessageLength::Short)?.err().unwrap_or_default()
        }
    };
    read_identified(reader, reason)
}

pub(super) fn write_registered(
    it: &Registered,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    if dialect.frame == FrameVersion::V2 {
        result::write_plain(it.outcome.as_ref().copied().map_err(String::as_str), writer);
    }
    write_unregistered(it, writer)
}

/// Reads the answer to an unregistration, which has the layout of v1 in both versions.
pub(super) fn read_unregistered(reader: &mut Reader<'_>) -> Result<Registered, WireError> {
    read_identified(reader, String::new())
}

pub(super) fn write_unregistered(it: &Registered, writer: &mut Writer) -> Result<(), WireError> {
    writer.u8(u8::from(it.outcome.is_ok()));
    writer.short_text(&it.version, "version")
}

fn read_identified(reader: &mut Reader<'_>, reason: String) -> Result<Registered, WireError> {
    let outcome = match reader.u8("identified")? {
        1 => Ok(()),
        _ => Err(reason),
    };
    Ok(Registered { outcome, version: reader.short_text("version")? })
}
