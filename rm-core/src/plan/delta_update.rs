//! UPDATEs that only add to counters of one row, or take from them.
//!
//! The statement names the row by its whole key and reads nothing else, but for a guard on a
//! counter that what other globals may undo cannot make untrue: `units >= 5` stays true when others
//! give units back.

use std::collections::BTreeSet;

use sqlparser::ast::{Assignment, AssignmentTarget, BinaryOperator, Expr, Update as Tree, Value};

use super::{
    Delta, Direction, Table,
    clauses::Clauses,
    guard::{self, Event},
    names,
    text::Text,
};

/// Returns the changes of counters that the statement consists of; none if it does anything else.
pub(super) fn of_update(text: &Text, tree: &Tree, table: &Table, clauses: &Clauses) -> Vec<Delta> {
    let plain = table.shown_by_view.is_none()
        && !table.whole_rows
        && !table.key.columns.is_empty()
        && !table.key.moves
        && !guard::fires_any(table, &[Event::Update])
        && clauses.with.is_empty()
        && clauses.order.is_none()
        && clauses.limit.is_none()
        && clauses.returning.is_none();
    if table.counters.is_empty() || !plain {
        return Vec::new();
    }
    let statement = DeltaStatement { text, table };
    let changes: Option<Vec<Delta>> =
        tree.assignments.iter().map(|assignment| statement.change(assignment)).collect();
    let changes = changes.unwrap_or_default();
    let mut columns = BTreeSet::new();
    let each_once = changes.iter().all(|change| columns.insert(change.counter.column));
    let names_row = tree.selection.as_ref().is_some_and(|it| statement.names_row(it, &changes));
    if each_once && names_row { changes } else { Vec::new() }
}

struct DeltaStatement<'s> {
    text: &'s Text,
    table: &'s Table,
}

impl DeltaStatement<'_> {
    /// The change of `c = c + value`, `c = value + c` or `c = c - value`.
    fn change(&self, assignment: &Assignment) -> Option<Delta> {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
        let dialect = self.text.dialect;
        let column = names::object_column(dialect, self.table, name).ok()?;
        let counter = self.table.counters.iter().find(|counter| counter.column == column)?;
        let Expr::BinaryOp { left, op, right } = bare(&assignment.value) else { return None };
        let is_counter = |side| self.column(side) == Some(column);
        let behind = is_counter(left) && is_constant(right);
        let before = is_constant(left) && is_counter(right);
        let direction = if *op == BinaryOperator::Plus && (behind || before) {
            Direction::Up
        } else if *op == BinaryOperator::Minus && behind {
            Direction::Down
        } else {
            return None;
        };
        Some(Delta { counter: *counter, direction })
    }

    /// Whether a condition names one row by its whole key, beside guards of the changes.
    fn names_row(&self, condition: &Expr, changes: &[Delta]) -> bool {
        let mut keys = BTreeSet::new();
        let mut terms = vec![condition];
        while let Some(term) = terms.pop() {
            let Expr::BinaryOp { left, op, right } = bare(term) else { return false };
            if *op == BinaryOperator::And {
                terms.extend([&**left, &**right]);
                continue;
            }
            let (column, op) = match (self.column(left), self.column(right)) {
                (Some(column), None) if is_constant(right) => (column, op.clone()),
                (None, Some(column)) if is_constant(left) => {
                    let Some(turned) = turned(op) else { return false };
                    (column, turned)
                }
                _ => return false,
            };
            let is_key = self.table.key.columns.contains(&column) && op == BinaryOperator::Eq;
            if is_key {
                keys.insert(column);
            } else if !changes.iter().any(|change| guards(*change, column, &op)) {
                return false;
            }
        }
        keys.len() == self.table.key.columns.len()
    }

    fn column(&self, side: &Expr) -> Option<usize> {
        let side = bare(side);
        let name = if let Expr::Identifier(name) = side {
            name
        } else if let Expr::CompoundIdentifier(parts) = side {
            parts.last()?
        } else {
            return None;
        };
        names::column(self.text.dialect, self.table, name).ok()
    }
}

/// Whether a comparison of the column stays true whatever others undo: an undo moves a counter away
/// from the bound that this change nears.
fn guards(change: Delta, column: usize, op: &BinaryOperator) -> bool {
    let bounds = change.counter.bounds;
    let holds = match change.direction {
        Direction::Down => {
            bounds.lower.is_some() && matches!(op, BinaryOperator::GtEq | BinaryOperator::Gt)
        }
        Direction::Up => {
            bounds.upper.is_some() && matches!(op, BinaryOperator::LtEq | BinaryOperator::Lt)
        }
    };
    change.counter.column == column && holds
}

/// The comparison with its sides exchanged.
fn turned(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq};

    let pairs = [(Eq, Eq), (Lt, Gt), (LtEq, GtEq), (Gt, Lt), (GtEq, LtEq)];
    pairs.into_iter().find(|(written, _)| written == op).map(|(_, turned)| turned)
}

/// Whether an expression is an argument or a number, converted or not.
fn is_constant(side: &Expr) -> bool {
    let side = bare(side);
    if let Expr::Cast { expr, .. } = side {
        return is_constant(expr);
    }
    let Expr::Value(value) = side else { return false };
    matches!(value.value, Value::Placeholder(_) | Value::Number(..))
}

fn bare(mut side: &Expr) -> &Expr {
    while let Expr::Nested(inner) = side {
        side = inner;
    }
    side
}
