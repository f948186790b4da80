//! Identifiers and literals in generated SQL: always quoted, never folded.

use super::{Column, Dialect, Table, TableKind};

/// Quotes an identifier, so that keywords and capitals stay what they are.
pub(super) fn identifier(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
        Dialect::MySql => format!("`{}`", name.replace('`', "``")),
    }
}

/// `"schema"."table"`.
pub(super) fn table(dialect: Dialect, table: &Table) -> String {
    format!("{}.{}", identifier(dialect, &table.schema), identifier(dialect, &table.name))
}

/// The same where it stands for the table's rows: without those of the tables that inherit from it.
pub(super) fn rows(dialect: Dialect, table: &Table) -> String {
    let only = if table.kind == TableKind::Inherited { "ONLY " } else { "" };
    format!("{only}{}", self::table(dialect, table))
}

/// Quotes a text as a literal. MySQL's mode without backslash escapes is refused when a pool is
/// opened.
pub(super) fn literal(dialect: Dialect, text: &str) -> String {
    let doubled = text.replace('\'', "''");
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("'{doubled}'"),
        Dialect::MySql => format!("'{}'", doubled.replace('\\', "\\\\")),
    }
}

/// Quotes columns, separated by commas.
pub(super) fn columns<'a>(
    dialect: Dialect,
    columns: impl IntoIterator<Item = &'a Column>,
) -> String {
    let quoted = columns.into_iter().map(|column| identifier(dialect, &column.name));
    quoted.collect::<Vec<_>>().join(", ")
}
