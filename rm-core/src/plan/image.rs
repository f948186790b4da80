//! The image queries that reuse a statement's own clauses.

use std::ops::Range;

use sha2::{Digest, Sha256};
use sqlparser::keywords::Keyword;

use super::{
    Arguments, Dialect, KeyedQuery, Query, Table, clauses::Clauses, key, placeholder, quote,
    text::Text,
};

/// Returns the mark that ties an image text to the user's text, one to one, and to the table's
/// columns: drivers cache statements by text alone, while two user texts with arguments of
/// different types can have the same image, and a server refuses a statement whose rows have come
/// to look otherwise.
pub(super) fn mark(sql: &str, table: &Table) -> String {
    use std::fmt::Write as _;

    let mut hasher = Sha256::new_with_prefix(sql);
    for column in &table.columns {
        // No text has a NUL.
        hasher.update(format!("\0{}\0{}", column.name, column.type_text));
    }
    let digest = hasher.finalize();
    let mut mark = String::from(" /* hf:");
    for byte in &digest[..16] {
        let _ = write!(mark, "{byte:02x}");
    }
    mark.push_str(" */");
    mark
}

/// The image columns and the key texts, as a select list.
pub(super) fn select_list(dialect: Dialect, table: &Table, columns: &[usize]) -> String {
    let columns = columns.iter().map(|&index| &table.columns[index]);
    format!("{}, {}", quote::columns(dialect, columns), key_list(dialect, table))
}

/// The same of a row by its name, where several tables are read.
pub(super) fn select_list_of(
    dialect: Dialect,
    table: &Table,
    columns: &[usize],
    row: &str,
) -> String {
    let name = |&index: &usize| {
        format!("{row}.{}", quote::identifier(dialect, &table.columns[index].name))
    };
    let names: Vec<String> = columns.iter().map(name).collect();
    format!("{}, {}", names.join(", "), key_list_of(dialect, table, &format!("{row}.")))
}

/// The key texts alone.
pub(super) fn key_list(dialect: Dialect, table: &Table) -> String {
    key_list_of(dialect, table, "")
}

/// The key texts of a row whose name and dot are `row`.
pub(super) fn key_list_of(dialect: Dialect, table: &Table, row: &str) -> String {
    let texts = key::key_texts(dialect, table, row).into_iter().enumerate();
    let named = texts.map(|(index, text)| format!("{text} AS hf_key{}", index + 1));
    named.collect::<Vec<_>>().join(", ")
}

/// The same as items of RETURNING, under names that no table column should have.
fn returning_list(dialect: Dialect, table: &Table, columns: &[usize], row: &str) -> String {
    let mut items: Vec<String> = Vec::new();
    for (position, &index) in columns.iter().enumerate() {
        let name = quote::identifier(dialect, &table.columns[index].name);
        items.push(format!("{row}{name} AS hf_col{}", position + 1));
    }
    items.push(key_list_of(dialect, table, row));
    items.join(", ")
}

/// `RETURNING` of the user's own items, if any, then ours.
pub(super) fn returning(text: &Text, table: &Table, columns: &[usize], own: &str) -> String {
    returning_of(text.dialect, table, columns, own, "")
}

/// The same, of a row whose name and dot are `row`.
pub(super) fn returning_of(
    dialect: Dialect,
    table: &Table,
    columns: &[usize],
    own: &str,
    row: &str,
) -> String {
    let ours = returning_list(dialect, table, columns, row);
    if own.is_empty() { format!(" RETURNING {ours}") } else { format!(" RETURNING {own}, {ours}") }
}

/// How an image locks its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowLock {
    /// Against every other change.
    Update,
    /// PostgreSQL: against changes, but not against foreign keys that look at the row's key.
    NoKeyUpdate,
}

impl RowLock {
    /// The clause; SQLite locks the whole database instead.
    pub(super) fn clause(self, dialect: Dialect) -> &'static str {
        match (dialect, self) {
            (Dialect::Sqlite, _) => "",
            (Dialect::Postgres, Self::NoKeyUpdate) => " FOR NO KEY UPDATE",
            (Dialect::Postgres, Self::Update) | (Dialect::MySql, _) => " FOR UPDATE",
        }
    }
}

/// The before image of an UPDATE or DELETE: the rows that its own clauses choose, each with its
/// verdict behind it. `ahead` are items in front of each, which take all arguments of the
/// assignments, if there are any.
pub(super) fn before(
    text: &Text,
    table: &Table,
    columns: &[usize],
    ahead: &[String],
    verdict: &str,
    clauses: &Clauses,
    lock: RowLock,
) -> Query {
    let mut terms = match ahead {
        [] => swallow_in(text, clauses.assignments.clone()),
        [_, ..] => Vec::new(),
    };
    terms.extend(clauses.predicate.clone().map(|predicate| text.cut(predicate)));
    let query = [
        spaced(text.cut(clauses.with.clone())),
        "SELECT ".to_owned(),
        ahead.iter().map(|item| format!("{item}, ")).collect(),
        format!("{}{verdict}", select_list(text.dialect, table, columns)),
        format!(" FROM {}", text.cut(clauses.target.clone())),
        condition(&terms),
        leading(clauses.order.clone().map(|order| text.cut(order))),
        leading(clauses.limit.clone().map(|limit| text.cut(limit))),
        lock.clause(text.dialect).to_owned(),
        mark(text.whole(), table),
    ];
    Query { text: query.concat(), arguments: Arguments::AsBound }
}

/// The keys of the rows that an UPDATE chooses, without locks.
pub(super) fn key_read(text: &Text, table: &Table, clauses: &Clauses) -> Query {
    let mut terms = swallow_in(text, clauses.assignments.clone());
    terms.extend(clauses.predicate.clone().map(|predicate| text.cut(predicate)));
    let query = [
        format!("SELECT {}", key_list(text.dialect, table)),
        format!(" FROM {}", text.cut(clauses.target.clone())),
        condition(&terms),
        mark(text.whole(), table),
    ];
    Query { text: query.concat(), arguments: Arguments::AsBound }
}

/// PostgreSQL: the keys of the rows that a condition chooses by the snapshot, without locks.
pub(super) fn chosen_keys(text: &Text, table: &Table, clauses: &Clauses, row: &str) -> String {
    let terms = Vec::from_iter(clauses.predicate.clone().map(|predicate| text.cut(predicate)));
    format!(
        "SELECT {} FROM {}{}",
        key_list_of(text.dialect, table, &format!("{row}.")),
        text.cut(clauses.target.clone()),
        condition(&terms)
    )
}

/// PostgreSQL: an UPDATE of exactly the rows that its own condition chooses, returning both images.
///
/// ```sql
/// WITH hf_before AS MATERIALIZED (SELECT … WHERE condition FOR NO KEY UPDATE)
/// UPDATE … SET … FROM hf_before WHERE key = hf_before.key RETURNING …
/// ```
///
/// The condition is evaluated once, by the read, which locks the newest version of each row. The
/// UPDATE has the same snapshot; where it meets an older version it follows the row to that locked
/// one, so both see the same.
pub(super) fn around(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    lock: RowLock,
) -> Query {
    let parts = Around::of(text, table, columns, clauses, lock);
    let own = clauses.returning.clone().map(|items| text.cut(items)).unwrap_or_default();
    let with = text.cut(clauses.with.clone());
    let query = [
        if with.is_empty() { "WITH ".to_owned() } else { format!("{with}, ") },
        parts.before.concat(),
        " ".to_owned(),
        parts.update,
        returning(text, table, columns, &own),
        parts.old,
        mark(text.whole(), table),
    ];
    Query { text: query.concat(), arguments: Arguments::AsBound }
}

/// The same as parts of a WITH, up to the change as `hf_changed`: the image columns as `hf_col1`
/// and so on, and as they were before as `hf_old1`. In two pieces, between which further conditions
/// may stand.
pub(super) fn around_as_part(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    lock: RowLock,
) -> [String; 2] {
    let Around { before, update, old } = Around::of(text, table, columns, clauses, lock);
    let [read, lock] = before;
    let now: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(position, &index)| {
            let name = quote::identifier(text.dialect, &table.columns[index].name);
            format!("{name} AS hf_col{}", position + 1)
        })
        .collect();
    let now = now.join(", ");
    [format!("WITH {read}"), format!("{lock}, hf_changed AS ({update} RETURNING {now}{old})")]
}

/// The parts of an UPDATE of the rows that a read before it has chosen.
struct Around {
    /// `hf_before AS (… WHERE (condition)`, and its end.
    before: [String; 2],
    /// `UPDATE … WHERE …`.
    update: String,
    /// The image columns as they were before, each with a comma in front.
    old: String,
}

impl Around {
    fn of(text: &Text, table: &Table, columns: &[usize], clauses: &Clauses, lock: RowLock) -> Self {
        let (mut items, mut same, mut old) = (Vec::new(), Vec::new(), String::new());
        for (position, &index) in columns.iter().enumerate() {
            let name = quote::identifier(text.dialect, &table.columns[index].name);
            let before = format!("hf_old{}", position + 1);
            items.push(format!("{name} AS {before}"));
            if table.key.columns.contains(&index) {
                same.push(format!("{name} = hf_before.{before}"));
            }
            old.push_str(", hf_before.");
            old.push_str(&before);
        }
        let predicate = clauses.predicate.clone().map(|predicate| text.cut(predicate));
        let target = text.cut(clauses.target.clone());
        let read = [
            format!("hf_before AS MATERIALIZED (SELECT {}", items.join(", ")),
            format!(" FROM {target}"),
            condition(&Vec::from_iter(predicate)),
        ];
        let before = [read.concat(), format!("{})", lock.clause(text.dialect))];
        let update = [
            format!("UPDATE {target}"),
            format!(" SET {}", text.cut(clauses.assignments.clone())),
            format!(" FROM hf_before WHERE {}", same.join(" AND ")),
        ];
        Self { before, update: update.concat(), old }
    }
}

/// Returns the user's text up to a token, then our RETURNING; the text itself if there is none.
pub(super) fn rewritten(text: &Text, table: &Table, end: usize, returning: &str) -> Query {
    let written = if returning.is_empty() {
        text.whole().to_owned()
    } else {
        format!("{}{returning}{}", text.cut(0..end), mark(text.whole(), table))
    };
    Query { text: written, arguments: Arguments::AsBound }
}

/// Returns whether there is a query among these tokens: without quotes SELECT is never a column's
/// name.
fn has_query(text: &Text, tokens: Range<usize>) -> bool {
    text.lexemes[tokens].iter().any(|lexeme| lexeme.keyword() == Keyword::SELECT)
}

/// The change by key: the user's clauses up to the condition, then the keys of the imaged rows.
pub(super) fn by_key(
    text: &Text,
    table: &Table,
    clauses: &Clauses,
    arguments: usize,
    returning: &str,
) -> KeyedQuery {
    let dialect = text.dialect;
    // The order stays behind the keys, and MySQL binds by position: arguments in it would come
    // late.
    let ordered = clauses.order.clone().filter(|order| text.arguments(order.clone()).is_empty());
    let mut terms = Vec::new();
    let dropped_order = clauses.order.clone().filter(|_| ordered.is_none());
    for dropped in [clauses.predicate.clone(), dropped_order, clauses.limit.clone()] {
        terms.extend(dropped.map(|range| swallow_in(text, range)).unwrap_or_default());
    }
    terms.push(String::new());
    let head_end = clauses.assignments.end;
    KeyedQuery {
        head: format!("{} WHERE {}", text.cut(0..head_end), terms.join(" AND ")),
        tail: format!(
            "{}{returning}{}",
            leading(ordered.map(|order| text.cut(order))),
            mark(text.whole(), table)
        ),
        key: table
            .key
            .columns
            .iter()
            .map(|&key| quote::identifier(dialect, &table.columns[key].name))
            .collect(),
        arguments,
        at_once: has_query(text, clauses.assignments.clone()),
        joined: false,
        dialect,
    }
}

pub(super) fn swallow_in(text: &Text, tokens: Range<usize>) -> Vec<String> {
    placeholder::swallow(text.dialect, text.arguments(tokens).len())
}

/// ` WHERE` of terms, each in brackets if there are several.
pub(super) fn condition(terms: &[String]) -> String {
    match terms {
        [] => String::new(),
        [term] => format!(" WHERE {term}"),
        [swallows @ .., last] => format!(" WHERE {} AND ({last})", swallows.join(" AND ")),
    }
}

fn leading(clause: Option<String>) -> String {
    clause.map(|clause| format!(" {clause}")).unwrap_or_default()
}

fn spaced(mut clause: String) -> String {
    if !clause.is_empty() {
        clause.push(' ');
    }
    clause
}
