//! The row keys of rows that others refer to along a foreign key.
//!
//! Most keys are whole numbers, texts or UUIDs, of which the value that refers is the text of the
//! row key: no question is asked then. For every other key the database tells the texts.

use super::{Column, Dialect, Generation, KeyFold, Reference, Table, image, key, keyed, quote};

/// A value whose text in a row key is known from its form alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainPart {
    /// A whole number: its digits.
    Whole,
    /// A text: itself.
    Text,
    /// A UUID: its digits in groups.
    Uuid,
}

/// Returns, for each part of the primary key of `parent`, the column that refers to it and the
/// form of its values. `None` if the reference is to other columns, or the texts of their values
/// have to be asked for.
#[must_use]
pub fn plain_parts(
    dialect: Dialect,
    table: &Table,
    reference: &Reference,
    parent: &Table,
) -> Option<Vec<(usize, PlainPart)>> {
    if parent.key.columns.len() != reference.referenced.len() {
        return None;
    }
    let part = |index: &usize| {
        let column = &parent.columns[*index];
        let named = |name: &String| parent.column(dialect, name) == Some(*index);
        let at = reference.referenced.iter().position(named)?;
        let own = reference.columns[at];
        let form = form(dialect, column)?;
        // A row id takes nothing but whole numbers, however the other column is declared.
        let row_id = dialect == Dialect::Sqlite;
        (row_id || Some(form) == self::form(dialect, &table.columns[own])).then_some((own, form))
    };
    parent.key.columns.iter().map(part).collect()
}

/// Whether the column holds whole numbers whose digits are their text in a row key.
pub(super) fn is_plain_number(dialect: Dialect, column: &Column) -> bool {
    form(dialect, column) == Some(PlainPart::Whole)
}

fn form(dialect: Dialect, column: &Column) -> Option<PlainPart> {
    let declared = column.type_text.to_ascii_lowercase();
    let kind = declared.split(['(', ' ']).next().unwrap_or_default();
    let is_exact = column.fold == KeyFold::Exact;
    match (dialect, kind) {
        (Dialect::Postgres, "smallint" | "integer" | "bigint") => Some(PlainPart::Whole),
        (Dialect::Postgres, "text") if is_exact => Some(PlainPart::Text),
        (Dialect::Postgres, "character")
            if is_exact && declared.starts_with("character varying") =>
        {
            Some(PlainPart::Text)
        }
        (Dialect::Postgres, "uuid") => Some(PlainPart::Uuid),
        // Digits that fill up a number belong to its text.
        (Dialect::MySql, "tinyint" | "smallint" | "mediumint" | "int" | "bigint") => {
            (!declared.contains("zerofill")).then_some(PlainPart::Whole)
        }
        (Dialect::Sqlite, _) if column.generation == Generation::AutoIncrement => {
            Some(PlainPart::Whole)
        }
        (Dialect::Postgres | Dialect::MySql | Dialect::Sqlite, _) => None,
    }
}

/// Selects the key texts of the rows that rows of `table` refer to. Binds the key cells of each row
/// that refers, in key order.
#[must_use]
pub fn query(
    dialect: Dialect,
    table: &Table,
    reference: &Reference,
    parent: &Table,
    rows: usize,
) -> String {
    let own = |column: usize| {
        format!("hf_referring.{}", quote::identifier(dialect, &table.columns[column].name))
    };
    let key: Vec<String> = table.key.columns.iter().map(|&column| own(column)).collect();
    // The row referred to comes first, as in `referring_sql`.
    let pairs = reference.columns.iter().zip(&reference.referenced).map(|(&column, referenced)| {
        format!("hf_row.{} = {}", quote::identifier(dialect, referenced), own(column))
    });
    // A plain read of MySQL may be older than the row, which the check of the foreign key has
    // locked already.
    let lock = match dialect {
        Dialect::MySql => " LOCK IN SHARE MODE",
        Dialect::Postgres | Dialect::Sqlite => "",
    };
    format!(
        "SELECT DISTINCT {} FROM {} AS hf_referring JOIN {} AS hf_row ON {} WHERE {}{lock}{}{}",
        key::key_texts(dialect, parent, "hf_row.").join(", "),
        quote::rows(dialect, table),
        quote::rows(dialect, parent),
        pairs.collect::<Vec<_>>().join(" AND "),
        keyed::predicate(dialect, &key, rows, 0),
        image::mark("", table),
        image::mark("", parent),
    )
}
