//! Point statements: those whose WHERE names one row by its whole key.

use sqlparser::ast::{BinaryOperator, Expr, Value};

use super::{KeyPart, Table, names, text::Text};

/// The key's parts, if the condition is an AND of comparisons that fix every key column.
pub(super) fn key(text: &Text, table: &Table, predicate: Option<&Expr>) -> Option<Vec<KeyPart>> {
    let mut fixed = Vec::new();
    comparisons(text, table, predicate?, &mut fixed);
    let part = |key: &usize| fixed.iter().find(|(column, _)| column == key);
    table.key.columns.iter().map(|key| part(key).map(|(_, part)| part.clone())).collect()
}

/// Collects `column = value` from the terms of an AND.
fn comparisons(text: &Text, table: &Table, expr: &Expr, fixed: &mut Vec<(usize, KeyPart)>) {
    if let Expr::Nested(inner) = expr {
        comparisons(text, table, inner, fixed);
    } else if let Expr::BinaryOp { left, op: BinaryOperator::And, right } = expr {
        comparisons(text, table, left, fixed);
        comparisons(text, table, right, fixed);
    } else if let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = expr {
        fixed.extend(comparison(text, table, left, right));
        fixed.extend(comparison(text, table, right, left));
    }
}

fn comparison(text: &Text, table: &Table, name: &Expr, value: &Expr) -> Option<(usize, KeyPart)> {
    let name = if let Expr::Identifier(name) = name {
        name
    } else if let Expr::CompoundIdentifier(parts) = name {
        parts.last()?
    } else {
        return None;
    };
    let column = table.column(text.dialect, &names::folded(text.dialect, name))?;
    Some((column, part(text, value)?))
}

fn part(text: &Text, value: &Expr) -> Option<KeyPart> {
    let Expr::Value(value) = value else { return None };
    if matches!(value.value, Value::Placeholder(_)) {
        return text.argument_at(value.span.start).map(KeyPart::Argument);
    }
    let plain = matches!(value.value, Value::Number(..) | Value::SingleQuotedString(_));
    plain.then(|| KeyPart::Literal(value.value.to_string()))
}
