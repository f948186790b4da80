//! Several messages in one, each as a `google.protobuf.Any`.

use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};

use crate::bytes::too_large;
use crate::error::WireError;
use crate::limits::Limits;
use crate::message::{BatchResult, MergeResult, MergedWarp, Message};
use crate::seata::merged::check_part;
use crate::serializer::Package;

use super::common::Typed;
use super::{by_name, full_name, parse, read_content, write_content};

/// The prefix of a message's name in an `Any`.
const URL_PREFIX: &str = "type.googleapis.com/";
/// The field of the parts in all three messages.
const PARTS_FIELD: u32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Part {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// All three merged messages have this form.
#[derive(Clone, PartialEq, prost::Message)]
struct Merged {
    #[prost(message, optional, tag = "1")]
    typed: Option<Typed>,
    #[prost(message, repeated, tag = "2")]
    parts: Vec<Part>,
    #[prost(int32, repeated, tag = "3")]
    ids: Vec<i32>,
}

pub(super) fn read_warp(content: &[u8], limits: &Limits) -> Result<MergedWarp, WireError> {
    let (parts, ids) = read(content, limits)?;
    if !ids.is_empty() {
        check_ids(&ids, &parts)?;
    }
    Ok(MergedWarp { parts, ids })
}

pub(super) fn read_result(content: &[u8], limits: &Limits) -> Result<MergeResult, WireError> {
    let (parts, _) = read(content, limits)?;
    Ok(MergeResult { parts })
}

pub(super) fn read_batch(content: &[u8], limits: &Limits) -> Result<BatchResult, WireError> {
    let (parts, ids) = read(content, limits)?;
    check_ids(&ids, &parts)?;
    Ok(BatchResult { parts, ids })
}

pub(super) fn write_warp(it: &MergedWarp, code: i16, to: Package) -> Result<Vec<u8>, WireError> {
    if !it.ids.is_empty() {
        check_ids(&it.ids, &it.parts)?;
    }
    write(&it.parts, &it.ids, code, to)
}

pub(super) fn write_result(it: &MergeResult, code: i16, to: Package) -> Result<Vec<u8>, WireError> {
    write(&it.parts, &[], code, to)
}

pub(super) fn write_batch(it: &BatchResult, code: i16, to: Package) -> Result<Vec<u8>, WireError> {
    check_ids(&it.ids, &it.parts)?;
    write(&it.parts, &it.ids, code, to)
}

fn check_ids(ids: &[i32], parts: &[Message]) -> Result<(), WireError> {
    match ids.len() == parts.len() {
        true => Ok(()),
        false => Err(too_large("msgIds", ids.len(), parts.len())),
    }
}

fn read(content: &[u8], limits: &Limits) -> Result<(Vec<Message>, Vec<i32>), WireError> {
    check_count(content, limits)?;
    let merged: Merged = parse(content)?;
    let parts: Result<_, _> = merged.parts.iter().map(|part| read_part(part, limits)).collect();
    Ok((parts?, merged.ids))
}

/// Counts the parts before they are read: an empty part takes two bytes here and twenty times that
/// in memory.
fn check_count(mut content: &[u8], limits: &Limits) -> Result<(), WireError> {
    let mut parts = 0;
    while !content.is_empty() {
        let skipped = decode_key(&mut content).and_then(|(tag, wire_type)| {
            skip_field(wire_type, tag, &mut content, DecodeContext::default())?;
            Ok(tag)
        });
        let tag = skipped.map_err(|error| WireError::Protobuf { what: error.to_string() })?;
        parts += usize::from(tag == PARTS_FIELD);
        if parts > limits.parts_max {
            return Err(too_large("parts", parts, limits.parts_max));
        }
    }
    Ok(())
}

fn read_part(part: &Part, limits: &Limits) -> Result<Message, WireError> {
    let (kind, _) = by_name(part.type_url.strip_prefix(URL_PREFIX).unwrap_or(&part.type_url))?;
    // As in the `seata` serializer, nesting would recurse at each level (BOUNDED).
    if kind.is_merged() {
        return Err(WireError::UnknownMessage { code: i64::from(kind.code()) });
    }
    read_content(kind, &part.value, limits)
}

fn write(parts: &[Message], ids: &[i32], code: i16, to: Package) -> Result<Vec<u8>, WireError> {
    let part = |message: &Message| -> Result<Part, WireError> {
        check_part(message)?;
        let type_url = format!("{URL_PREFIX}{}", full_name(message, to)?);
        Ok(Part { type_url, value: write_content(message, to)? })
    };
    let parts: Result<_, _> = parts.iter().map(part).collect();
    Ok(Merged { typed: Some(Typed::of(code)), parts: parts?, ids: ids.to_vec() }.encode_to_vec())
}
