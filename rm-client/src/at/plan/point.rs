//! Point statements: those whose WHERE names one row by its whole key.

use sqlparser::ast::{BinaryOperator, Expr, Value};

use super::{KeyPart, Table, names, text::Text};

/// The key's parts, if the condition is an AND of comparisons that fix every key column.
pub(super) fn key(text: &Text, table: &Table, predicate: Option<&Expr>) -> Option<Vec<KeyPart>> {
    let mut fixed = Vec::new();
    comparisons(text, table, predicate?, &mut fixed);
    let part = |key: &usize| fixed.iter().find(|(column, _)| column == key);
    table.key.iter().map(|key| part(key).map(|(_, part)| part.clone())).collect()
}

/// Collects `column = value` from the terms of an AND.
fn comparisons(text: &Text, table: &Table, expr: &Expr, fixed: &mut Vec<(usize, KeyPart)>) {
    match expr {
        Expr::Nested(inner) => comparisons(text, table, inner, fixed),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            comparisons(text, table, left, fixed);
            comparisons(text, table, right, fixed);
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            fixed.extend(comparison(text, table, left, right));
            fixed.extend(comparison(text, table, right, left));
        }
        _ => {}
    }
}

fn comparison(text: &Text, table: &Table, name: &Expr, value: &Expr) -> Option<(usize, KeyPart)> {
    let name = match name {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => parts.last()?,
        _ => return None,
    };
    let column = table.column(text.dialect, &names::folded(text.dialect, name))?;
    Some((column, part(text, value)?))
}

fn part(text: &Text, value: &Expr) -> Option<KeyPart> {
    let Expr::Value(value) = value else { return None };
    match &value.value {
        Value::Placeholder(_) => text.argument_at(value.span.start).map(KeyPart::Argument),
        Value::Number(..) | Value::SingleQuotedString(_) => {
            Some(KeyPart::Literal(value.value.to_string()))
        }
        _ => None,
    }
}
