//! The SQL of undo, from metadata alone: reading rows by key, and the three restoring statements.
//!
//! Texts depend on the table and the number of rows only, so that drivers may cache them. On
//! PostgreSQL, which keeps the types that a text was first prepared with, the text changes with the
//! type of a column.

use std::collections::HashMap;

use super::{
    Dialect, Direction, Generation, ROWS_MAX, Table, constraint, image, key, keyed, placeholder,
    quote,
};

/// Whether a read by key locks its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLocking {
    /// It does not.
    None,
    /// It locks them for a change, where the database has FOR UPDATE.
    ForUpdate,
    /// The same for a change that leaves their keys as they are, so that PostgreSQL may check
    /// foreign keys to them meanwhile.
    ForNoKeyUpdate,
}

/// Quotes a text as a literal. MySQL's mode without backslash escapes must not be set.
#[must_use]
pub fn literal(dialect: Dialect, text: &str) -> String {
    quote::literal(dialect, text)
}

/// Reads rows by key: the columns, then the key texts, as every image. Binds the key cells of each
/// row in key order.
pub fn select_by_keys(
    dialect: Dialect,
    table: &Table,
    columns: &[usize],
    rows: usize,
    locking: RowLocking,
) -> String {
    let lock = match (dialect, locking) {
        (Dialect::Postgres, RowLocking::ForNoKeyUpdate) => " FOR NO KEY UPDATE",
        (Dialect::Postgres, RowLocking::ForUpdate)
        | (Dialect::MySql, RowLocking::ForUpdate | RowLocking::ForNoKeyUpdate) => " FOR UPDATE",
        (Dialect::Sqlite, _) | (_, RowLocking::None) => "",
    };
    format!(
        "SELECT {} FROM {} WHERE {}{lock}{}",
        image::select_list(dialect, table, columns),
        quote::rows(dialect, table),
        keys(dialect, table, rows, 0),
        mark(dialect, table)
    )
}

/// PostgreSQL: tells of rows that a statement has just written whether it has inserted them: the
/// key texts, then true if so. A row version that an INSERT wrote has no deleter; one that DO
/// UPDATE wrote has the locker of the version before it. Binds the key cells of each row in key
/// order.
pub fn select_inserted(table: &Table, rows: usize) -> String {
    let dialect = Dialect::Postgres;
    format!(
        "SELECT {}, (xmax = 0) AS hf_inserted FROM {} WHERE {}{}",
        image::key_list(dialect, table),
        quote::rows(dialect, table),
        keys(dialect, table, rows, 0),
        mark(dialect, table)
    )
}

/// Checks again, under locks, whether a row breaks a constraint, if the first read did not lock
/// everything. Binds the key cells of the row; returns a row if it does.
pub fn broken_again(dialect: Dialect, table: &Table, constraint: &str) -> Option<String> {
    let row = quote::table(dialect, table);
    let broken = constraint::again(dialect, table, &row, constraint)?;
    let keys = keys(dialect, table, 1, 0);
    Some(format!("SELECT 1 FROM {row} WHERE {keys} AND {broken} FOR UPDATE"))
}

/// Undoes an UPDATE of one row: writes `columns` back. Binds their before cells in that order, then
/// the key cells. Key and computed columns must not be among them.
pub fn restore_updated(dialect: Dialect, table: &Table, columns: &[usize]) -> String {
    let assignment = |(position, &index): (usize, &usize)| {
        let name = quote::identifier(dialect, &table.columns[index].name);
        format!("{name} = {}", value(dialect, table, index, position))
    };
    let assignments: Vec<String> = columns.iter().enumerate().map(assignment).collect();
    format!(
        "UPDATE {} SET {} WHERE {}{}",
        quote::rows(dialect, table),
        assignments.join(", "),
        keys(dialect, table, 1, columns.len()),
        mark(dialect, table)
    )
}

/// Undoes deltas of one row: adds to each of the counters or takes from it. Binds the amounts in
/// that order, none of them negative, then the key cells.
pub fn restore_counters(
    dialect: Dialect,
    table: &Table,
    counters: &[(usize, Direction)],
) -> String {
    let assignment = |(position, &(index, direction)): (usize, &(usize, Direction))| {
        let name = quote::identifier(dialect, &table.columns[index].name);
        let sign = match direction {
            Direction::Up => '+',
            Direction::Down => '-',
        };
        format!("{name} = {name} {sign} {}", value(dialect, table, index, position))
    };
    let assignments: Vec<String> = counters.iter().enumerate().map(assignment).collect();
    format!(
        "UPDATE {} SET {} WHERE {}{}",
        quote::rows(dialect, table),
        assignments.join(", "),
        keys(dialect, table, 1, counters.len()),
        mark(dialect, table)
    )
}

/// Undoes a DELETE: inserts the rows again, all in one statement, so that rows that refer to each
/// other are checked together (MySQL checks row by row: see [`parents_first`]). Binds, for each
/// row, the cells of [`Table::stored`] in that order.
///
/// On MySQL the session needs `NO_AUTO_VALUE_ON_ZERO` in `sql_mode`, or a key of 0 comes back as
/// another number.
pub fn restore_deleted(dialect: Dialect, table: &Table, rows: usize) -> String {
    let stored = table.stored();
    let row = |row: usize| {
        let start = row * stored.len();
        let cell =
            |(position, &index): (usize, &usize)| value(dialect, table, index, start + position);
        format!("({})", stored.iter().enumerate().map(cell).collect::<Vec<_>>().join(", "))
    };
    let always = |index: &usize| table.columns[*index].generation == Generation::IdentityAlways;
    let overriding = if stored.iter().any(always) { " OVERRIDING SYSTEM VALUE" } else { "" };
    format!(
        "INSERT INTO {} ({}){overriding} VALUES {}{}",
        quote::table(dialect, table),
        quote::columns(dialect, stored.iter().map(|&index| &table.columns[index])),
        (0..rows).map(row).collect::<Vec<_>>().join(", "),
        mark(dialect, table)
    )
}

/// Undoes an INSERT: deletes the rows. Binds the key cells of each row in key order, where whole
/// rows are the key as [`select_equal`].
pub fn remove_inserted(dialect: Dialect, table: &Table, rows: usize) -> String {
    if table.whole_rows {
        return remove_equal(dialect, table, rows);
    }
    let keys = keys(dialect, table, rows, 0);
    format!("DELETE FROM {} WHERE {keys}{}", quote::rows(dialect, table), mark(dialect, table))
}

/// Returns how many rows one statement may find or delete by all their values. MySQL finds a single
/// one by an index on a part of it, but not one of several.
pub fn equal_rows_max(dialect: Dialect) -> usize {
    match dialect {
        Dialect::MySql => 1,
        Dialect::Postgres | Dialect::Sqlite => ROWS_MAX,
    }
}

/// Finds and locks the rows that are equal to given ones in all their values, for a table whose
/// rows nothing else names. Returns, for each row found, the number of the given one, from 1.
/// Binds, for each given row, the cells of [`Table::stored`] in that order; takes as many rows as
/// [`equal_rows_max`] says.
pub fn select_equal(dialect: Dialect, table: &Table, rows: usize) -> String {
    let own = quote::rows(dialect, table);
    let mark = mark(dialect, table);
    match dialect {
        Dialect::MySql => {
            format!("SELECT 1 FROM {own} WHERE {} FOR UPDATE", is_given(dialect, table))
        }
        Dialect::Postgres | Dialect::Sqlite => format!(
            "SELECT hf_given.hf_number FROM {own} AS hf_own JOIN ({}) AS hf_given \
             ON {} = hf_given.hf_row FOR UPDATE OF hf_own{mark}",
            given(table, rows),
            key::whole_row(dialect, table, "hf_own."),
        ),
    }
}

/// Deletes one row for each given one. Which of several equal rows go makes no difference.
fn remove_equal(dialect: Dialect, table: &Table, rows: usize) -> String {
    let own = quote::rows(dialect, table);
    let mark = mark(dialect, table);
    match dialect {
        Dialect::MySql => {
            format!("DELETE FROM {own} WHERE {} LIMIT 1", is_given(dialect, table))
        }
        Dialect::Postgres | Dialect::Sqlite => format!(
            "DELETE FROM {own} WHERE ctid IN (SELECT hf_found.ctid FROM (\
             SELECT hf_own.ctid, hf_given.hf_count, \
             row_number() OVER (PARTITION BY hf_given.hf_row) AS hf_place \
             FROM {own} AS hf_own JOIN (SELECT hf_row, count(*) AS hf_count \
             FROM ({}) AS hf_each GROUP BY hf_row) AS hf_given ON {} = hf_given.hf_row\
             ) AS hf_found WHERE hf_found.hf_place <= hf_found.hf_count){mark}",
            given(table, rows),
            key::whole_row(dialect, table, "hf_own."),
        ),
    }
}

/// MySQL: the condition that a row is the given one to the last bit. An index can find numbers and
/// times by it.
fn is_given(dialect: Dialect, table: &Table) -> String {
    let term = |(at, column): (usize, &usize)| {
        let column = &table.columns[*column];
        let name = quote::identifier(dialect, &column.name);
        let given = placeholder::write(dialect, at);
        let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
        match kind.to_ascii_lowercase().as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "bit" | "date"
            | "datetime" | "timestamp" | "time" | "binary" | "varbinary" | "tinyblob" | "blob"
            | "mediumblob" | "longblob" => format!("{name} <=> {given}"),
            // 0 equals -0, which their texts do not.
            "float" | "double" => {
                let text = |value| format!("CAST(CAST({value} AS DOUBLE) AS CHAR)");
                format!("{} <=> {}", text(name), text(given))
            }
            // A collation may hold different texts for equal, and decimals are compared with a text
            // as rounded numbers.
            _ => {
                let bytes = |value| format!("CAST(CONVERT({value} USING utf8mb4) AS BINARY)");
                format!("{} <=> {}", bytes(name), bytes(given))
            }
        }
    };
    table.stored().iter().enumerate().map(term).collect::<Vec<_>>().join(" AND ")
}

/// PostgreSQL: the given rows as bytes, numbered.
fn given(table: &Table, rows: usize) -> String {
    let stored = table.stored();
    let row = |row: usize| {
        let cell = |(at, column): (usize, &usize)| {
            let argument = placeholder::write(Dialect::Postgres, row * stored.len() + at);
            format!("{argument}::{}", table.columns[*column].type_text)
        };
        let cells: Vec<String> = stored.iter().enumerate().map(cell).collect();
        format!("({}, {}::int8)", cells.join(", "), row + 1)
    };
    let names: Vec<String> = (1..=stored.len()).map(|number| format!("hf_value{number}")).collect();
    let (names, rows) = (names.join(", "), (0..rows).map(row).collect::<Vec<_>>().join(", "));
    format!(
        "SELECT record_send(ROW({names})) AS hf_row, hf_number \
         FROM (VALUES {rows}) AS hf_values ({names}, hf_number)"
    )
}

fn mark(dialect: Dialect, table: &Table) -> String {
    match dialect {
        Dialect::Postgres => image::mark("", table),
        Dialect::MySql | Dialect::Sqlite => String::new(),
    }
}

/// The condition that names rows by their keys.
pub(super) fn keys(dialect: Dialect, table: &Table, rows: usize, first: usize) -> String {
    let name = |&index: &usize| quote::identifier(dialect, &table.columns[index].name);
    let key: Vec<String> = table.key.columns.iter().map(name).collect();
    keyed::predicate(dialect, &key, rows, first)
}

/// The placeholder for a column's value. MySQL takes a JSON document from text only, and cells are
/// bound as bytes.
fn value(dialect: Dialect, table: &Table, column: usize, argument: usize) -> String {
    let placeholder = placeholder::write(dialect, argument);
    let is_json = table.columns[column].type_text.eq_ignore_ascii_case("json");
    match dialect {
        Dialect::MySql if is_json => format!("CONVERT({placeholder} USING utf8mb4)"),
        Dialect::Postgres | Dialect::MySql | Dialect::Sqlite => placeholder,
    }
}

/// An order in which rows that refer to each other can be inserted one by one: referenced rows
/// first. `rows` gives for each row the value it is referred to by and the value it refers to, as
/// one foreign key of the table to itself compares them (`None`: NULL). Rows in a cycle keep their
/// order; they could not have been inserted one by one either.
pub fn parents_first<K: Eq + std::hash::Hash>(rows: &[(Option<K>, Option<K>)]) -> Vec<usize> {
    after_their_own(&referred_rows(rows))
}

/// Returns for each row those that it refers to, itself left out. Rows as of [`parents_first`].
pub fn referred_rows<K: Eq + std::hash::Hash>(rows: &[(Option<K>, Option<K>)]) -> Vec<Vec<usize>> {
    let by_name: HashMap<&K, usize> =
        rows.iter().enumerate().filter_map(|(row, (own, _))| Some((own.as_ref()?, row))).collect();
    let parent = |row: &(Option<K>, Option<K>)| row.1.as_ref().and_then(|name| by_name.get(name));
    let referred = |(at, row)| parent(row).copied().filter(|parent| *parent != at);
    rows.iter().enumerate().map(|row| referred(row).into_iter().collect()).collect()
}

/// Returns whether some row is ahead of itself by way of others, so that no order of the rows
/// fulfils `ahead`.
pub fn is_circular(ahead: &[Vec<usize>]) -> bool {
    let order = after_their_own(ahead);
    let mut place = vec![0; order.len()];
    for (at, row) in order.into_iter().enumerate() {
        place[row] = at;
    }
    let is_behind = |(row, ahead): (usize, &Vec<usize>)| {
        ahead.iter().any(|other| *other != row && place[*other] > place[row])
    };
    ahead.iter().enumerate().any(is_behind)
}

/// Returns an order of the rows in which each comes after those that `ahead` names for it. Rows in
/// a cycle come in some order.
pub fn after_their_own(ahead: &[Vec<usize>]) -> Vec<usize> {
    let mut met = vec![false; ahead.len()];
    let mut order = Vec::with_capacity(ahead.len());
    for start in 0..ahead.len() {
        // Rows on the way to their place, each with how many of those ahead of it were looked at.
        let mut path = Vec::new();
        if !std::mem::replace(&mut met[start], true) {
            path.push((start, 0));
        }
        while let Some((row, looked_at)) = path.last_mut() {
            let Some(&next) = ahead[*row].get(*looked_at) else {
                order.push(*row);
                path.pop();
                continue;
            };
            *looked_at += 1;
            if !std::mem::replace(&mut met[next], true) {
                path.push((next, 0));
            }
        }
    }
    order
}
