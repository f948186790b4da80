//! UPDATEs that only add to counters of one row, or take from them.
//!
//! The statement names the row by its whole key and reads nothing else, but for a guard on a
//! counter that what other globals may undo cannot make untrue: `units >= 5` stays true when others
//! give units back.

use std::collections::BTreeSet;

use sqlparser::ast::{Assignment, AssignmentTarget, BinaryOperator, Expr, Update as Tree};

use super::{
    Comparison, CounterGuard, Delta, Direction, Operand, RowDelta, Table,
    clauses::Clauses,
    guard::{self, Event},
    names,
    term::{self, bare, column, is_constant, operand},
    text::Text,
};

/// The changes of counters that a statement consists of; none if it does anything else.
#[derive(Debug, Default)]
pub(super) struct DeltaUpdate {
    pub(super) deltas: Vec<Delta>,
    /// The same in numbers, where they say all of it.
    pub(super) row: Option<RowDelta>,
}

/// Returns the changes of counters that the statement consists of.
pub(super) fn of_update(text: &Text, tree: &Tree, table: &Table, clauses: &Clauses) -> DeltaUpdate {
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
        return DeltaUpdate::default();
    }
    let statement = DeltaStatement { text, table };
    statement.read(tree).unwrap_or_default()
}

struct DeltaStatement<'s> {
    text: &'s Text,
    table: &'s Table,
}

/// The terms of a condition that names one row by its whole key.
#[derive(Default)]
struct NamedRow {
    /// The key columns that it names, as often as it does.
    key: Vec<usize>,
    /// In numbers where they are written as such.
    guards: Vec<Option<CounterGuard>>,
}

impl DeltaStatement<'_> {
    fn read(&self, tree: &Tree) -> Option<DeltaUpdate> {
        let changes: Vec<(Delta, Option<Operand>)> =
            tree.assignments.iter().map(|it| self.change(it)).collect::<Option<_>>()?;
        let deltas: Vec<Delta> = changes.iter().map(|(delta, _)| *delta).collect();
        let mut columns = BTreeSet::new();
        if !deltas.iter().all(|delta| columns.insert(delta.counter.column)) {
            return None;
        }
        let row = self.named_row(tree.selection.as_ref()?, &deltas)?;
        Some(DeltaUpdate { deltas, row: self.in_numbers(changes, row) })
    }

    /// The change of `c = c + value`, `c = value + c` or `c = c - value`, and the value.
    fn change(&self, assignment: &Assignment) -> Option<(Delta, Option<Operand>)> {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
        let dialect = self.text.dialect;
        let column = names::object_column(dialect, self.table, name).ok()?;
        let counter = self.table.counters.iter().find(|counter| counter.column == column)?;
        let Expr::BinaryOp { left, op, right } = bare(&assignment.value) else { return None };
        let is_counter = |side| term::column(self.text, self.table, side) == Some(column);
        let behind = is_counter(left) && is_constant(right);
        let before = is_constant(left) && is_counter(right);
        let direction = if *op == BinaryOperator::Plus && (behind || before) {
            Direction::Up
        } else if *op == BinaryOperator::Minus && behind {
            Direction::Down
        } else {
            return None;
        };
        let amount = operand(self.text, if behind { right } else { left });
        Some((Delta { counter: *counter, direction }, amount))
    }

    /// The row that a condition names by its whole key, if it consists of nothing else but guards
    /// of the changes.
    fn named_row(&self, condition: &Expr, changes: &[Delta]) -> Option<NamedRow> {
        let mut row = NamedRow::default();
        let mut terms = vec![condition];
        while let Some(term) = terms.pop() {
            let Expr::BinaryOp { left, op, right } = bare(term) else { return None };
            if *op == BinaryOperator::And {
                terms.extend([&**left, &**right]);
                continue;
            }
            let named = |side| column(self.text, self.table, side);
            let (column, op, value) = match (named(left), named(right)) {
                (Some(column), None) if is_constant(right) => (column, op.clone(), right),
                (None, Some(column)) if is_constant(left) => (column, turned(op)?, left),
                _ => return None,
            };
            if self.table.key.columns.contains(&column) && op == BinaryOperator::Eq {
                row.key.push(column);
            } else if changes.iter().any(|change| guards(*change, column, &op)) {
                row.guards.push(counter_guard(column, &op, operand(self.text, value)));
            } else {
                return None;
            }
        }
        let named: BTreeSet<usize> = row.key.iter().copied().collect();
        (named.len() == self.table.key.columns.len()).then_some(row)
    }

    /// The statement in numbers, but for its key, each part of which is named once.
    fn in_numbers(
        &self,
        changes: Vec<(Delta, Option<Operand>)>,
        row: NamedRow,
    ) -> Option<RowDelta> {
        if row.key.len() != self.table.key.columns.len() {
            return None;
        }
        Some(RowDelta {
            amounts: changes
                .into_iter()
                .map(|(delta, amount)| Some((delta, amount?)))
                .collect::<Option<_>>()?,
            guards: row.guards.into_iter().collect::<Option<_>>()?,
        })
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

fn counter_guard(
    column: usize,
    op: &BinaryOperator,
    value: Option<Operand>,
) -> Option<CounterGuard> {
    let written = [
        (BinaryOperator::Lt, Comparison::Less),
        (BinaryOperator::LtEq, Comparison::LessOrEqual),
        (BinaryOperator::GtEq, Comparison::GreaterOrEqual),
        (BinaryOperator::Gt, Comparison::Greater),
    ];
    let (_, comparison) = written.into_iter().find(|(written, _)| written == op)?;
    Some(CounterGuard { column, comparison, value: value? })
}

/// The comparison with its sides exchanged.
fn turned(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq};

    let pairs = [(Eq, Eq), (Lt, Gt), (LtEq, GtEq), (Gt, Lt), (GtEq, LtEq)];
    pairs.into_iter().find(|(written, _)| written == op).map(|(_, turned)| turned)
}
