//! Several messages in one. The parts have no lengths: the end of one is the start of the next.
//!
//! Sources: `MergedWarpMessageCodec.java`, `MergeResultMessageCodec.java`,
//! `BatchResultMessageCodec.java`.

use crate::bytes::{Reader, Writer, too_large};
use crate::error::WireError;
use crate::limits::Limits;
use crate::message::{BatchResult, MergeResult, MergedWarp, Message, MessageType};
use crate::version::Dialect;

pub(super) fn read_warp(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<MergedWarp, WireError> {
    let mut content = content(reader)?;
    let parts = read_parts(&mut content, dialect, limits)?;
    let ids = if content.is_empty() { Vec::new() } else { read_ids(&mut content, parts.len())? };
    Ok(MergedWarp { parts, ids })
}

pub(super) fn write_warp(
    it: &MergedWarp,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    if !it.ids.is_empty() {
        check_ids(it.ids.len(), it.parts.len())?;
    }
    write_content(&it.parts, &it.ids, writer, dialect)
}

pub(super) fn read_result(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<MergeResult, WireError> {
    let mut content = content(reader)?;
    Ok(MergeResult { parts: read_parts(&mut content, dialect, limits)? })
}

pub(super) fn write_result(
    it: &MergeResult,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    write_content(&it.parts, &[], writer, dialect)
}

pub(super) fn read_batch(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<BatchResult, WireError> {
    let mut content = content(reader)?;
    let parts = read_parts(&mut content, dialect, limits)?;
    let ids = read_ids(&mut content, parts.len())?;
    Ok(BatchResult { parts, ids })
}

pub(super) fn write_batch(
    it: &BatchResult,
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    check_ids(it.ids.len(), it.parts.len())?;
    write_content(&it.parts, &it.ids, writer, dialect)
}

/// Returns the bytes that the leading length covers.
fn content<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, WireError> {
    let length = reader.i32("length")?;
    let bytes = usize::try_from(length)
        .map_err(|_| WireError::BadValue { field: "length", value: i64::from(length) })?;
    reader.take(bytes, "length").map(Reader::new)
}

fn read_parts(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<Vec<Message>, WireError> {
    let count = reader.i16("count")?;
    let count = usize::try_from(count)
        .map_err(|_| WireError::BadValue { field: "count", value: i64::from(count) })?;
    if count > limits.parts_max {
        return Err(too_large("parts", count, limits.parts_max));
    }
    (0..count).map(|_| read_part(reader, dialect, limits)).collect()
}

fn read_part(
    reader: &mut Reader<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<Message, WireError> {
    let code = i64::from(reader.i16("typeCode")?);
    let kind = MessageType::from_code(code)?;
    // Nesting would recurse at each level, and a frame has room for very many (BOUNDED).
    if kind.is_merged() {
        return Err(WireError::UnknownMessage { code });
    }
    super::read_fields(kind, reader, dialect, limits)
}

fn read_ids(reader: &mut Reader<'_>, count: usize) -> Result<Vec<i32>, WireError> {
    (0..count).map(|_| reader.i32("msgId")).collect()
}

fn check_ids(ids: usize, parts: usize) -> Result<(), WireError> {
    match ids == parts {
        true => Ok(()),
        false => Err(too_large("msgIds", ids, parts)),
    }
}

fn write_content(
    parts: &[Message],
    ids: &[i32],
    writer: &mut Writer,
    dialect: &Dialect,
) -> Result<(), WireError> {
    let start = writer.len();
    writer.i32(0);
    writer.count16(parts.len(), "parts")?;
    for part in parts {
        check_part(part)?;
        super::write_typed(part, writer, dialect)?;
    }
    ids.iter().for_each(|&id| writer.i32(id));
    let length = writer.len() - start - 4;
    let length =
        i32::try_from(length).map_err(|_| too_large("merged bytes", length, i32::MAX as usize))?;
    writer.patch(start, &length.to_be_bytes());
    Ok(())
}

/// Checks a part: neither a merged message nor a heartbeat can be one.
pub(crate) fn check_part(part: &Message) -> Result<(), WireError> {
    match part.kind() {
        Some(kind) if kind.is_merged() => {
            Err(WireError::UnknownMessage { code: i64::from(kind.code()) })
        }
        Some(_) => Ok(()),
        None => Err(WireError::NoForm { what: "a heartbeat", serializer: "a merged message" }),
    }
}
