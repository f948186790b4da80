//! Cursors of pages, as opaque text of letters, digits and dots, which needs no quoting. The names
//! of named locks are chosen by clients, so they are encoded.

use handfast_core::{LockCursor, Xid};

use super::ApiError;

pub(super) fn write(cursor: LockCursor) -> String {
    let LockCursor { holder, sequence, rows } = cursor;
    format!("{holder}.{sequence}.{rows}")
}

pub(super) fn read(text: &str) -> Result<LockCursor, ApiError> {
    parse(text).ok_or_else(|| no_cursor(text))
}

/// Writes the cursor of a list by names. It begins with a letter, unlike the cursor of any other
/// list.
pub(super) fn write_name(name: &str) -> String {
    let digits = name.bytes().map(|byte| format!("{byte:02x}"));
    std::iter::once("n".to_owned()).chain(digits).collect()
}

pub(super) fn read_name(text: &str) -> Result<String, ApiError> {
    parse_name(text).ok_or_else(|| no_cursor(text))
}

fn no_cursor(text: &str) -> ApiError {
    ApiError::BadRequest(format!("`{text}` is no cursor of this list"))
}

fn parse(text: &str) -> Option<LockCursor> {
    let mut parts = text.split('.');
    let holder = Xid(parts.next()?.parse().ok()?);
    let (sequence, rows) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(LockCursor { holder, sequence, rows })
}

fn parse_name(text: &str) -> Option<String> {
    let digits = text.strip_prefix('n')?.as_bytes().chunks(2);
    let bytes = digits.map(|digits| match digits {
        [high, low] => Some(value(*high)? * 16 + value(*low)?),
        _ => None,
    });
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

fn value(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_other_text_is_refused() {
        let cursor = LockCursor { holder: Xid(7), sequence: 2, rows: 30 };
        assert_eq!(parse(&write(cursor)), Some(cursor));
        for wrong in ["", "7", "7.2", "7.2.30.", "x.2.30", "7.-2.30", "7.2.3x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn name_cursors_are_read_back_and_other_text_is_refused() {
        for name in ["", "pool", "-x", "a b", "\u{1b}[2J", "é\"'&#?%"] {
            let cursor = write_name(name);
            assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{cursor}");
            assert_eq!(parse_name(&cursor).as_deref(), Some(name));
        }
        for wrong in ["", "pool", "6f", "n6", "n+f", "nff", "n6f 6", "né"] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }
}
