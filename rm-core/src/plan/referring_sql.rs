//! The SQL that looks, before rows are deleted, for rows that refer to them: for the undo of an
//! INSERT, whether there are any; for a DELETE, which ones.
//!
//! All texts name the rows about to go `hf_row`, and bind the key cells of each in key order; those
//! that refer to them are `hf_referring`. The two are compared by the database itself, as the
//! foreign key compares them: a NULL refers to nothing.

use super::{Dialect, ForeignKey, Table, image, keyed, placeholder, quote};

/// Selects the rows that rows of another table refer to: their key columns, in key order.
#[must_use]
pub fn referred(dialect: Dialect, table: &Table, key: &ForeignKey, rows: usize) -> String {
    // SQLite ignores foreign keys on a connection that has them switched off.
    let enforced = match dialect {
        Dialect::Sqlite => " AND (SELECT foreign_keys FROM pragma_foreign_keys)",
        Dialect::Postgres | Dialect::MySql => "",
    };
    format!(
        "SELECT {} FROM {} AS hf_row WHERE {} AND EXISTS (SELECT 1 FROM {} WHERE {}{enforced}){}",
        key_columns(dialect, table, "hf_row").join(", "),
        quote::rows(dialect, table),
        named(dialect, table, rows),
        referring(dialect, key),
        refers(dialect, table, key),
        image::mark("", table)
    )
}

/// Selects the rows that rows of their own table refer to: the key columns of the row referred to,
/// then those of the row that refers to it. Locks both. Binds, behind the keys, how many pairs are
/// wanted at most.
#[must_use]
pub fn referred_by_own(dialect: Dialect, table: &Table, key: &ForeignKey, rows: usize) -> String {
    let columns =
        [key_columns(dialect, table, "hf_row"), key_columns(dialect, table, "hf_referring")];
    let enforced = match dialect {
        Dialect::Sqlite => " WHERE (SELECT foreign_keys FROM pragma_foreign_keys) AND ",
        Dialect::Postgres | Dialect::MySql => " WHERE ",
    };
    format!(
        "SELECT {} FROM {} AS hf_row JOIN {} ON {}{enforced}{} LIMIT {}{}{}",
        columns.concat().join(", "),
        quote::rows(dialect, table),
        referring(dialect, key),
        refers(dialect, table, key),
        named(dialect, table, rows),
        placeholder::write(dialect, rows * table.key.columns.len()),
        lock(dialect),
        image::mark("", table)
    )
}

/// Selects rows that refer to those named, to be shown: columns of theirs as texts, at most `limit`
/// of them. Locks them, so that rows that are just being deleted are not among them.
#[must_use]
pub fn referring_rows(
    dialect: Dialect,
    table: &Table,
    key: &ForeignKey,
    columns: &[String],
    rows: usize,
    limit: usize,
) -> String {
    let cast = match dialect {
        Dialect::Postgres | Dialect::Sqlite => "text",
        Dialect::MySql => "char",
    };
    let text = |column: &String| {
        format!("CAST(hf_referring.{} AS {cast})", quote::identifier(dialect, column))
    };
    format!(
        "SELECT {} FROM {} AS hf_row JOIN {} ON {} WHERE {} LIMIT {limit}{}{}",
        columns.iter().map(text).collect::<Vec<_>>().join(", "),
        quote::rows(dialect, table),
        referring(dialect, key),
        refers(dialect, table, key),
        named(dialect, table, rows),
        lock(dialect),
        image::mark("", table)
    )
}

/// Selects the rows that refer to those named, if the session enforces the key: their primary key
/// columns, or anything where their table is not known. Locks them. Binds the key cells of the rows
/// named.
#[must_use]
pub fn referring_keys(
    dialect: Dialect,
    table: &Table,
    key: &ForeignKey,
    from: Option<&Table>,
    rows: usize,
    limit: usize,
) -> String {
    let enforced = match dialect {
        Dialect::Postgres => "current_setting('session_replication_role') <> 'replica'",
        Dialect::MySql => "@@SESSION.foreign_key_checks = 1",
        Dialect::Sqlite => "(SELECT foreign_keys FROM pragma_foreign_keys)",
    };
    let columns = match from {
        Some(from) => key_columns(dialect, from, "hf_referring").join(", "),
        None => "1".to_owned(),
    };
    let marks = [Some(table), from].into_iter().flatten().map(|table| image::mark("", table));
    format!(
        "SELECT {columns} FROM {} AS hf_row JOIN {} ON {} WHERE {} AND {enforced} \
         LIMIT {limit}{}{}",
        quote::rows(dialect, table),
        referring(dialect, key),
        refers(dialect, table, key),
        named(dialect, table, rows),
        lock(dialect),
        marks.collect::<String>()
    )
}

/// MySQL: locks the rows in the index `checked_by`, where InnoDB looks for them when a row that
/// refers to them is written, and which a lock on the row itself does not cover. `None` if it looks
/// at the row itself.
#[must_use]
pub fn lock_where_checked(
    dialect: Dialect,
    table: &Table,
    key: &ForeignKey,
    rows: usize,
) -> Option<String> {
    let index = key.referring.checked_by.as_ref()?;
    let same = key.referenced.iter().map(|&column| {
        let column = quote::identifier(dialect, &table.columns[column].name);
        format!("hf_entry.{column} = hf_row.{column}")
    });
    let relation = quote::rows(dialect, table);
    Some(format!(
        "SELECT 1 FROM {relation} AS hf_row STRAIGHT_JOIN {relation} AS hf_entry \
         FORCE INDEX ({}) ON {} WHERE {} FOR UPDATE",
        quote::identifier(dialect, index),
        same.collect::<Vec<_>>().join(" AND "),
        named(dialect, table, rows)
    ))
}

fn key_columns(dialect: Dialect, table: &Table, of: &str) -> Vec<String> {
    let columns = table.key.columns.iter();
    columns
        .map(|&column| format!("{of}.{}", quote::identifier(dialect, &table.columns[column].name)))
        .collect()
}

fn named(dialect: Dialect, table: &Table, rows: usize) -> String {
    keyed::predicate(dialect, &key_columns(dialect, table, "hf_row"), rows, 0)
}

/// The table that refers. Tables that inherit from it are not bound by its keys, and its partitions
/// are.
fn referring(dialect: Dialect, key: &ForeignKey) -> String {
    let from = &key.referring;
    let only = if dialect == Dialect::Postgres && !from.partitioned { "ONLY " } else { "" };
    format!(
        "{only}{}.{} AS hf_referring",
        quote::identifier(dialect, &from.schema),
        quote::identifier(dialect, &from.table)
    )
}

/// The row referred to comes first: SQLite compares by the collation of what stands there.
fn refers(dialect: Dialect, table: &Table, key: &ForeignKey) -> String {
    let pairs = key.referenced.iter().zip(&key.referring.columns);
    let equal = pairs.map(|(&referenced, column)| {
        format!(
            "hf_row.{} = hf_referring.{}",
            quote::identifier(dialect, &table.columns[referenced].name),
            quote::identifier(dialect, column)
        )
    });
    equal.collect::<Vec<_>>().join(" AND ")
}

fn lock(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => " FOR UPDATE OF hf_referring",
        Dialect::MySql => " FOR UPDATE",
        Dialect::Sqlite => "",
    }
}
