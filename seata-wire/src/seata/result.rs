//! The beginning of every answer except those to registrations.
//!
//! Sources: `AbstractResultMessageCodec.java`, `AbstractTransactionResponseCodec.java`.

use crate::bytes::{Reader, Writer};
use crate::error::WireError;
use crate::message::{RequestFailure, TxResult};
use crate::value::ExceptionCode;
use crate::version::Dialect;

const FAILED: u8 = 0;
const SUCCESS: u8 = 1;

/// The size of the length of a failure's message.
#[derive(Clone, Copy)]
pub(super) enum MessageLength {
    /// 16 bits, as Java writes it.
    Short,
    /// 8 bits, as seata-go writes it in some answers.
    Tiny,
}

/// Reads whether the request succeeded, with a message if not.
pub(super) fn read_plain(
    reader: &mut Reader<'_>,
    length: MessageLength,
) -> Result<Result<(), String>, WireError> {
    match reader.u8("resultCode")? {
        SUCCESS => Ok(Ok(())),
        FAILED => Ok(Err(match length {
            MessageLength::Short => reader.short_text("msg")?,
            MessageLength::Tiny => reader.tiny_text("msg")?,
        })),
        other => Err(WireError::BadValue { field: "resultCode", value: i64::from(other) }),
    }
}

/// Writes a result. On success the message is absent, not empty.
pub(super) fn write_plain(result: Result<(), &str>, writer: &mut Writer) {
    match result {
        Ok(()) => writer.u8(SUCCESS),
        Err(message) => {
            writer.u8(FAILED);
            writer.cut_text(message);
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>, dialect: &Dialect) -> Result<TxResult, WireError> {
    read_with(reader, dialect, MessageLength::Short)
}

pub(super) fn read_with(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    length: MessageLength,
) -> Result<TxResult, WireError> {
    let plain = read_plain(reader, length)?;
    let code = ExceptionCode::from_number(reader.u8("exceptionCode")?, dialect);
    Ok(plain.map_err(|message| RequestFailure { message, code }))
}

pub(super) fn write(result: &TxResult, writer: &mut Writer, dialect: &Dialect) {
    write_plain(result.as_ref().copied().map_err(|failure| failure.message.as_str()), writer);
    // Written on success too: fields have no tags, so that none can be left out.
    let code = result.as_ref().err().map_or(ExceptionCode::Unknown, |failure| failure.code);
    writer.u8(code.number(dialect));
}
