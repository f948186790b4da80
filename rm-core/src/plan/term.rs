//! Terms of a condition or an assignment: columns, and whole numbers.

use sqlparser::ast::{Expr, Value};

use super::{Table, names, text::Text};

/// A whole number of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The argument at this index, from 0.
    Argument(usize),
    /// It stands in the text.
    Number(i64),
}

impl Operand {
    pub(super) fn value(self, arguments: &[i128]) -> Option<i128> {
        match self {
            Self::Argument(index) => arguments.get(index).copied(),
            Self::Number(number) => Some(number.into()),
        }
    }
}

/// The argument or the whole number that an expression is.
pub(super) fn operand(text: &Text, side: &Expr) -> Option<Operand> {
    let Expr::Value(value) = bare(side) else { return None };
    if let Value::Number(number, _) = &value.value {
        return number.parse().ok().map(Operand::Number);
    }
    let is_argument = matches!(value.value, Value::Placeholder(_));
    text.argument_at(value.span).filter(|_| is_argument).map(Operand::Argument)
}

/// The column that an expression is.
pub(super) fn column(text: &Text, table: &Table, side: &Expr) -> Option<usize> {
    let side = bare(side);
    let name = if let Expr::Identifier(name) = side {
        name
    } else if let Expr::CompoundIdentifier(parts) = side {
        parts.last()?
    } else {
        return None;
    };
    names::column(text.dialect, table, name).ok()
}

/// Whether an expression is an argument or a number, converted or not.
pub(super) fn is_constant(side: &Expr) -> bool {
    let side = bare(side);
    if let Expr::Cast { expr, .. } = side {
        return is_constant(expr);
    }
    let Expr::Value(value) = side else { return false };
    matches!(value.value, Value::Placeholder(_) | Value::Number(..))
}

/// An expression without the brackets around it.
pub(super) fn bare(mut side: &Expr) -> &Expr {
    while let Expr::Nested(inner) = side {
        side = inner;
    }
    side
}
