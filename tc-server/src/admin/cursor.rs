//! Where a page of locks ended, as text without meaning to the client: holder, then resource, table
//! and key in hexadecimal, with dots between them.

use handfast_core::{LockCursor, Xid};

use super::ApiError;

pub(super) fn write(cursor: &LockCursor) -> String {
    let parts = [cursor.resource.as_bytes(), cursor.table.as_bytes(), &cursor.key];
    format!("{}.{}", cursor.holder, parts.map(hexadecimal).join("."))
}

pub(super) fn read(text: &str) -> Result<LockCursor, ApiError> {
    parse(text).ok_or_else(|| ApiError::BadRequest(format!("`{text}` is no cursor of this list")))
}

fn parse(text: &str) -> Option<LockCursor> {
    let mut parts = text.split('.');
    let cursor = LockCursor {
        holder: Xid(parts.next()?.parse().ok()?),
        resource: String::from_utf8(bytes(parts.next()?)?).ok()?.into(),
        table: String::from_utf8(bytes(parts.next()?)?).ok()?.into(),
        key: bytes(parts.next()?)?.into(),
    };
    parts.next().is_none().then_some(cursor)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_itself_back_and_other_text_is_refused() {
        let cursor = LockCursor {
            holder: Xid(7),
            resource: "postgres:1/shop/public".into(),
            table: "größe".into(),
            key: Box::from(&b"1:\xff"[..]),
        };
        assert_eq!(parse(&write(&cursor)), Some(cursor));
        for wrong in ["", "7", "7.61.62", "7.61.62.6", "7.61.62.63.", "x.61.62.63", "7.é.62.63"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
