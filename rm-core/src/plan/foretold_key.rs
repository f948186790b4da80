//! MySQL: the key that an UPDATE will give a row, computed by the read before it.
//!
//! MySQL returns no rows of a change, and a row under another key is not found by its old one. What
//! is computed is not trusted: the row found under it must be the changed one in every way.

use std::ops::Range;

use sqlparser::{
    ast::{Assignment, Expr, Ident},
    keywords::Keyword,
    tokenizer::Token,
};

use super::{
    Column, Dialect, ForetoldKey, StatementRefusal, Table, clauses::Clauses, guard, key_change,
    names, placeholder, quote, stable, text::Text,
};

/// Returns how to compute the new values of the key columns `changed`, if their expressions allow
/// it: functions of the row as it is before the change, of values that are read as they are stored.
pub(super) fn of_update(
    text: &Text,
    table: &Table,
    clauses: &Clauses,
    assignments: &[Assignment],
    changed: &[usize],
) -> Result<Option<ForetoldKey>, StatementRefusal> {
    if text.dialect != Dialect::MySql || guard::own_row_triggers(table, &[guard::Event::Update]) {
        return Ok(None);
    }
    let values = values(text, clauses.assignments.clone());
    if values.len() != assignments.len() {
        return Ok(None);
    }
    let mut foretold = ForetoldKey { parts: Vec::new(), items: Vec::new() };
    let mut before = Vec::new();
    for (assignment, value) in assignments.iter().zip(values) {
        let one = std::slice::from_ref(assignment);
        let [column] = names::assigned(text.dialect, table, one)?[..] else { return Ok(None) };
        if changed.contains(&column) {
            let read_as = read_as(&table.columns[column]).filter(|_| {
                stable::is_stable(text.dialect, &assignment.value)
                    && !mentions(table, &assignment.value, &before)
                    && text.reads_as(value.clone(), &assignment.value)
            });
            let Some(read_as) = read_as else { return Ok(None) };
            foretold.parts.push((column, foretold.items.len()));
            let value = match &text.lexemes[value.clone()] {
                [only] if only.keyword() == Keyword::DEFAULT => {
                    let name = quote::identifier(text.dialect, &table.columns[column].name);
                    format!("DEFAULT({name})")
                }
                _ => text.cut(value),
            };
            foretold.items.push(format!("CAST(({value}) AS {read_as})"));
        } else {
            let arguments = text.arguments(value).len();
            foretold.items.extend(placeholder::swallow(text.dialect, arguments));
        }
        before.push(column);
    }
    Ok((foretold.parts.len() == changed.len()).then_some(foretold))
}

/// The type as which a key column's new value is read, if that shows the key: a text, or a time of
/// the column's own type.
fn read_as(column: &Column) -> Option<&str> {
    let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
    if key_change::has_one_text(column) {
        return Some("CHAR");
    }
    let is_time = matches!(kind.to_ascii_lowercase().as_str(), "date" | "datetime" | "time");
    is_time.then_some(&*column.type_text)
}

/// The tokens behind the equals sign of each assignment.
fn values(text: &Text, assignments: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = assignments.start;
    for index in assignments.clone().chain([assignments.end]) {
        let ends = index == assignments.end
            || text.lexemes[index].depth == 0 && text.lexemes[index].is(&Token::Comma);
        if !ends {
            continue;
        }
        let equals = (start..index).find(|at| text.lexemes[*at].is(&Token::Eq));
        found.extend(equals.map(|equals| equals + 1..index));
        start = index + 1;
    }
    found
}

/// Returns whether an expression reads one of the columns: MySQL assigns from left to right, so
/// that it would read what was assigned.
fn mentions(table: &Table, value: &Expr, columns: &[usize]) -> bool {
    let is_one = |name: &Ident| {
        table.column(Dialect::MySql, &name.value).is_some_and(|column| columns.contains(&column))
    };
    stable::contains(value, |part| {
        if let Expr::Identifier(name) = part {
            return is_one(name);
        }
        let Expr::CompoundIdentifier(parts) = part else { return false };
        parts.last().is_some_and(is_one)
    })
}
