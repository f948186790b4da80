//! Checks the global locks of rows by the meaning of their keys.

use handfast_core::LockView;

use super::change::Value;
use super::rows::{Row, Rows};
use crate::finding::Finding;
use crate::schema::Schema;
use crate::table::{Column, Table};

/// Checks that a lock names every row that existed before or exists after. A row that the same
/// statement inserted and removed needs no lock.
pub(super) fn cover(schema: &Schema, rows: &Rows, locks: &[LockView]) -> Result<(), Finding> {
    let keys: Vec<(&str, Vec<String>)> =
        locks.iter().map(|lock| (&*lock.table, parts(&lock.key))).collect();
    for ((place, _), story) in rows.stories() {
        let table = &schema.tables[*place];
        let name = format!("main.{}", table.name);
        for row in story.first.iter().chain(&story.last) {
            let mut held = keys.iter().filter(|(locked, _)| *locked == name);
            if !held.any(|(_, key)| means(key, table, row)) {
                return Err(Finding::new("a changed row is not locked", (&name, row, &keys)));
            }
        }
    }
    Ok(())
}

/// Returns the texts of a canonical key, each preceded by its length: `1:73:a:b` is `7` and `a:b`.
fn parts(key: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = key;
    while let Some(colon) = rest.iter().position(|byte| *byte == b':') {
        let length = std::str::from_utf8(&rest[..colon]).expect("a length is digits");
        let length: usize = length.parse().expect("a length is digits");
        let (text, behind) = rest[colon + 1..].split_at(length);
        texts.push(String::from_utf8(text.to_vec()).expect("a key part is text"));
        rest = behind;
    }
    texts
}

fn means(key: &[String], table: &Table, row: &Row) -> bool {
    let places = table.key.iter();
    key.len() == table.key.len()
        && key.iter().zip(places).all(|(text, place)| {
            let value = row[*place].as_ref();
            value.is_some_and(|value| is_text_of(text, &table.columns[*place], value))
        })
}

/// Returns whether a key's text denotes a value under the column's collation. Numbers match in any
/// notation. A text may be marked by a quote, to distinguish it from a number.
fn is_text_of(text: &str, column: &Column, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Integer(number) => text == number.to_string(),
        Value::Real(number) => text.parse().is_ok_and(|parsed: f64| parsed == *number),
        Value::Text(value) => {
            let bare = text.strip_prefix('\'').unwrap_or(text);
            let value = folded(column, value);
            text == value || bare == value
        }
        Value::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            text.eq_ignore_ascii_case(&format!("X'{digits}'"))
        }
    }
}

/// Returns the same text for all values that are equal under the column's collation.
fn folded(column: &Column, text: &str) -> String {
    if column.constraints.contains("NOCASE") {
        return text.to_ascii_lowercase();
    }
    let trims = column.constraints.contains("RTRIM");
    if trims { text.trim_end_matches(' ').to_owned() } else { text.to_owned() }
}
