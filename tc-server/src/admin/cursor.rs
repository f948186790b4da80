//! Where a page of locks ended, as text without meaning to the client.

use handfast_core::{LockCursor, Xid};

use super::ApiError;

pub(super) fn write(cursor: LockCursor) -> String {
    let LockCursor { holder, sequence, rows } = cursor;
    format!("{holder}.{sequence}.{rows}")
}

pub(super) fn read(text: &str) -> Result<LockCursor, ApiError> {
    parse(text).ok_or_else(|| ApiError::BadRequest(format!("`{text}` is no cursor of this list")))
}

fn parse(text: &str) -> Option<LockCursor> {
    let mut parts = text.split('.');
    let holder = Xid(parts.next()?.parse().ok()?);
    let (sequence, rows) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(LockCursor { holder, sequence, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_itself_back_and_other_text_is_refused() {
        let cursor = LockCursor { holder: Xid(7), sequence: 2, rows: 30 };
        assert_eq!(parse(&write(cursor)), Some(cursor));
        for wrong in ["", "7", "7.2", "7.2.30.", "x.2.30", "7.-2.30", "7.2.3x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
