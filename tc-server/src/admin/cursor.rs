//! Where a page of locks ended, as text without meaning to the client: resource, table and key in
//! hexadecimal, a dot between them.

use handfast_core::{LockPlace, LockView};

use super::ApiError;

pub(super) fn write(place: &LockView) -> String {
    let parts = [place.resource.as_bytes(), place.table.as_bytes(), &place.key];
    parts.map(hexadecimal).join(".")
}

pub(super) fn read(text: &str) -> Result<LockPlace, ApiError> {
    let wrong = || ApiError::BadRequest(format!("`{text}` is no cursor of this list"));
    let mut parts = text.split('.').map(bytes);
    let (Some(Some(resource)), Some(Some(table)), Some(Some(key)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    let name = |bytes| String::from_utf8(bytes).map_err(|_| wrong());
    Ok(LockPlace { resource: name(resource)?.into(), table: name(table)?.into(), key: key.into() })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 != 0 {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
