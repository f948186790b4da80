//! Cursors of pages, as opaque text of letters, digits and dots, which needs no quoting. The names
//! of named locks are chosen by clients, so they are encoded.

use handfast_core::{LockCursor, QueueCursor, Timestamp, WaitCursor, Xid};

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

/// Writes the cursor of a list of waiting requests: a letter and a number.
pub(super) fn write_wait(cursor: WaitCursor) -> String {
    match cursor {
        WaitCursor::Row(id) => format!("r{id}"),
        WaitCursor::NamedLock(id) => format!("n{id}"),
    }
}

pub(super) fn read_wait(text: &str) -> Result<WaitCursor, ApiError> {
    let number = |digits: &str| digits.parse().ok();
    let row = text.strip_prefix('r').and_then(number).map(WaitCursor::Row);
    let named = || text.strip_prefix('n').and_then(number).map(WaitCursor::NamedLock);
    row.or_else(named).ok_or_else(|| no_cursor(text))
}

/// Writes the cursor of a row's queue: a time, or `h` for the requests of holders, and a number.
pub(super) fn write_queue(cursor: QueueCursor) -> String {
    let QueueCursor { waits_from, request } = cursor;
    waits_from.map_or_else(|| format!("h.{request}"), |from| format!("{}.{request}", from.0))
}

pub(super) fn read_queue(text: &str) -> Result<QueueCursor, ApiError> {
    parse_queue(text).ok_or_else(|| no_cursor(text))
}

/// Writes the cursor of a list of parked events: a time and an id, of letters, digits and hyphens.
pub(super) fn write_event(parked_at: Timestamp, event: &str) -> String {
    format!("{}.{event}", parked_at.0)
}

pub(super) fn read_event(text: &str) -> Result<(Timestamp, String), ApiError> {
    let parsed = text
        .split_once('.')
        .and_then(|(ms, event)| Some((Timestamp(ms.parse().ok()?), event.to_owned())));
    parsed.ok_or_else(|| no_cursor(text))
}

fn parse_queue(text: &str) -> Option<QueueCursor> {
    let (from, request) = text.split_once('.')?;
    let waits_from = match from {
        "h" => None,
        ms => Some(Timestamp(ms.parse().ok()?)),
    };
    Some(QueueCursor { waits_from, request: request.parse().ok()? })
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
    fn cursors_of_waiting_requests_are_read_back() {
        for cursor in [WaitCursor::Row(7), WaitCursor::NamedLock(u64::MAX)] {
            assert_eq!(read_wait(&write_wait(cursor)).ok(), Some(cursor));
        }
        for waits_from in [None, Some(Timestamp(1_795_239_045_678))] {
            let cursor = QueueCursor { waits_from, request: 7 };
            assert_eq!(parse_queue(&write_queue(cursor)), Some(cursor));
        }
        let event = (Timestamp(1_795_239_045_678), "0b9f-1".to_owned());
        assert_eq!(read_event(&write_event(event.0, &event.1)).ok(), Some(event));
        assert!(read_event("x.0b9f-1").is_err() && read_event("7").is_err());
        for wrong in ["", "7", "r", "x7", "r-7", "n7.1"] {
            assert!(read_wait(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "7", "h7", "x.7", "h.", "7.h"] {
            assert_eq!(parse_queue(wrong), None, "{wrong}");
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
