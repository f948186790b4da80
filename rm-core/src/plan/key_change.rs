//! Assignments to columns of the key: which leave it as it is, and what becomes of a row that gets
//! another one.
//!
//! A row whose key changes is undone as two rows: the one under the new key is deleted, the one
//! under the old key inserted again. So its images are whole rows.

use sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, TableFactor,
};

use super::{
    Column, Dialect, Generation, KeyFold, StatementRefusal, Table,
    guard::{self, Event},
    names,
};

/// The value that a key column certainly gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The very value that it has.
    Same,
    /// One that is equal to it, which may be spelt otherwise.
    Equal,
    /// The one that the row offered has.
    Offered,
    /// Any value.
    Unknown,
}

/// The names by which a statement's expressions speak of rows.
struct Rows<'a> {
    /// The name of the row that is changed; a column without a qualifier is one of its own.
    own: Option<&'a Ident>,
    /// The columns in which the row offered is equal to the one that is changed.
    equal: &'a [usize],
}

/// Returns the key columns to which an UPDATE may give another value.
pub(super) fn by_update(
    dialect: Dialect,
    table: &Table,
    target: &TableFactor,
    assignments: &[Assignment],
) -> Result<Vec<usize>, StatementRefusal> {
    let rows = Rows { own: row_name(target), equal: &[] };
    key_columns(dialect, table, assignments, &rows, |kept| kept != Kept::Same)
}

/// Returns the key columns to which the update part of an upsert may give another spelling, or
/// another value: PostgreSQL tells a row that was updated from one that was inserted. On MySQL
/// every row that was met is looked for again, so that it is noticed if it does not have the key of
/// the row offered. Refuses other values there, and all of them on SQLite.
///
/// `own` is the name of the row that exists; `equal` lists the columns in which every row offered
/// is equal to the one that it meets.
pub(super) fn by_upsert(
    dialect: Dialect,
    table: &Table,
    own: Option<&Ident>,
    equal: &[usize],
    assignments: &[Assignment],
) -> Result<Vec<usize>, StatementRefusal> {
    let rows = Rows { own, equal };
    if dialect == Dialect::Postgres {
        return key_columns(dialect, table, assignments, &rows, |kept| kept != Kept::Same);
    }
    let changes = |kept| match kept {
        Kept::Same | Kept::Equal => false,
        Kept::Offered => dialect == Dialect::Sqlite,
        Kept::Unknown => true,
    };
    match key_columns(dialect, table, assignments, &rows, changes)?.first() {
        Some(&index) => Err(StatementRefusal::KeyChanged {
            column: table.columns[index].name.clone(),
            reason: "by an upsert: change the key by an UPDATE of its own",
        }),
        None => key_columns(dialect, table, assignments, &rows, |kept| kept != Kept::Same),
    }
}

/// Returns why a row that gets another key in these columns could not be undone.
pub(super) fn obstacle(table: &Table, changed: &[usize]) -> Option<StatementRefusal> {
    let column = table.columns[*changed.first()?].name.clone();
    if !table.referenced_by.is_empty() {
        // Rows that refer to the row, by whichever column, would keep the undo from deleting it.
        let reason = "in a table to which foreign keys refer: insert the row under its other key, \
                      let the rows that refer to it follow, and delete it under the old one";
        return Some(StatementRefusal::KeyChanged { column, reason });
    }
    if !table.key.plain {
        // Until COMMIT two rows may have one key, so that it names neither.
        let reason = "whose constraint is deferrable or on a prefix: delete the row and insert \
                      it under its other key";
        return Some(StatementRefusal::KeyChanged { column, reason });
    }
    guard::no_trigger_of_undo(table, &[Event::Insert, Event::Delete]).err()
}

/// Returns the assigned key columns, in table order, that may get what the test is true of.
fn key_columns(
    dialect: Dialect,
    table: &Table,
    assignments: &[Assignment],
    rows: &Rows<'_>,
    test: impl Fn(Kept) -> bool,
) -> Result<Vec<usize>, StatementRefusal> {
    let mut columns = Vec::new();
    for assignment in assignments {
        for (name, value) in pairs(assignment) {
            let column = names::object_column(dialect, table, name)?;
            if !table.key.columns.contains(&column) {
                continue;
            }
            let kept =
                value.map_or(Kept::Unknown, |value| kept_by(dialect, table, column, value, rows));
            if test(kept) {
                columns.push(column);
            }
        }
    }
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}

/// Returns the targets of an assignment, each with its value where the text shows it.
fn pairs(assignment: &Assignment) -> Vec<(&ObjectName, Option<&Expr>)> {
    match (&assignment.target, &assignment.value) {
        (AssignmentTarget::ColumnName(name), value) => vec![(name, Some(value))],
        (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
            names.iter().zip(values.iter().map(Some)).collect()
        }
        (AssignmentTarget::Tuple(names), _) => names.iter().map(|name| (name, None)).collect(),
    }
}

fn kept_by(dialect: Dialect, table: &Table, column: usize, value: &Expr, rows: &Rows<'_>) -> Kept {
    let is_column =
        |name: &Ident| table.column(dialect, &names::folded(dialect, name)) == Some(column);
    let offered = || match rows.equal.contains(&column) {
        true if is_exact(dialect, &table.columns[column]) => Kept::Same,
        true => Kept::Equal,
        false => Kept::Offered,
    };
    if let Expr::Nested(inner) = value {
        return kept_by(dialect, table, column, inner, rows);
    }
    if let Expr::Identifier(name) = value {
        return if is_column(name) { Kept::Same } else { Kept::Unknown };
    }
    if let Expr::CompoundIdentifier(parts) = value {
        let [row, name] = parts.as_slice() else { return Kept::Unknown };
        if !is_column(name) || is_reserved(table, rows, row) {
            return Kept::Unknown;
        }
        if rows.own.is_some_and(|own| same_name(dialect, own, row)) {
            return Kept::Same;
        }
        let excluded = dialect != Dialect::MySql && row.value.eq_ignore_ascii_case("excluded");
        return if excluded { offered() } else { Kept::Unknown };
    }
    let Expr::Function(function) = value else { return Kept::Unknown };
    let (Dialect::MySql, Some(inner)) = (dialect, only_argument(&function.args)) else {
        return Kept::Unknown;
    };
    match (function.name.to_string().to_ascii_lowercase().as_str(), inner) {
        ("values", Expr::Identifier(name)) if is_column(name) => offered(),
        // Its value is a whole number. A negative one can come out as another, which the statement
        // then shows: its row is not found again.
        ("last_insert_id", inner) if is_whole_number(&table.columns[column]) => {
            kept_by(dialect, table, column, inner, rows)
        }
        _ => Kept::Unknown,
    }
}

/// Returns whether a qualifier could mean the row offered as well as the row that is changed.
fn is_reserved(table: &Table, rows: &Rows<'_>, row: &Ident) -> bool {
    let excluded = |name: &str| name.eq_ignore_ascii_case("excluded");
    let named = rows.own.is_some_and(|own| excluded(&own.value)) || excluded(&table.name);
    named && excluded(&row.value)
}

fn only_argument(arguments: &FunctionArguments) -> Option<&Expr> {
    let FunctionArguments::List(list) = arguments else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] => Some(value),
        _ => None,
    }
}

fn same_name(dialect: Dialect, a: &Ident, b: &Ident) -> bool {
    let (a, b) = (names::folded(dialect, a), names::folded(dialect, b));
    match dialect {
        Dialect::Postgres | Dialect::MySql => a == b,
        Dialect::Sqlite => a.eq_ignore_ascii_case(&b),
    }
}

/// The name of the row of an UPDATE in its expressions.
fn row_name(target: &TableFactor) -> Option<&Ident> {
    let TableFactor::Table { name, alias, .. } = target else { return None };
    let last = || name.0.last().and_then(|part| part.as_ident());
    alias.as_ref().map(|alias| &alias.name).or_else(last)
}

/// Returns whether equal values of a column are the same value, down to the last byte.
fn is_exact(dialect: Dialect, column: &Column) -> bool {
    let declared = column.type_text.to_ascii_lowercase();
    let kind = declared.split(['(', ' ']).next().unwrap_or_default();
    match dialect {
        _ if column.fold != KeyFold::Exact => false,
        Dialect::Postgres => {
            const EXACT: [&str; 9] = [
                "bigint",
                "boolean",
                "bytea",
                "character",
                "date",
                "integer",
                "smallint",
                "text",
                "uuid",
            ];
            EXACT.contains(&kind) && !declared.ends_with("[]")
        }
        Dialect::MySql => {
            is_whole_number(column) || matches!(kind, "varbinary" | "varchar" | "char")
        }
        Dialect::Sqlite => {
            column.generation == Generation::AutoIncrement || has_text_affinity(&declared)
        }
    }
}

/// Returns whether SQLite stores every number as a text in the column.
fn has_text_affinity(declared: &str) -> bool {
    !declared.contains("int") && ["char", "clob", "text"].iter().any(|part| declared.contains(part))
}

/// MySQL: returns whether every value of the column is bound by its text.
pub(super) fn has_one_text(column: &Column) -> bool {
    let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
    is_whole_number(column)
        || matches!(kind.to_ascii_lowercase().as_str(), "char" | "varchar" | "uuid")
}

/// MySQL: returns whether the column holds whole numbers only.
fn is_whole_number(column: &Column) -> bool {
    let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
    matches!(
        kind.to_ascii_lowercase().as_str(),
        "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint"
    )
}
