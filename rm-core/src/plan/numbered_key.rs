//! The key of the only row that a statement can change, where the statement gives it as whole
//! numbers.

use sqlparser::ast::{BinaryOperator, Expr};

use super::{
    Dialect, Operand, Table,
    parent_key::is_plain_number,
    term::{bare, column, operand},
    text::Text,
};

/// The key of a row in whole numbers, which are known without a question: the digits of each are
/// its text in the row key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedKey {
    /// In key order.
    pub parts: Vec<Operand>,
}

impl NumberedKey {
    /// The cells of the key, in key order. `None` if arguments are missing.
    #[must_use]
    pub fn cells(&self, arguments: &[i128]) -> Option<Vec<i128>> {
        self.parts.iter().map(|part| part.value(arguments)).collect()
    }
}

/// The key that a condition gives every row it chooses: each part equals a number, and whatever
/// else is asked of the row is asked beside that.
pub(super) fn of_condition(text: &Text, table: &Table, condition: &Expr) -> Option<NumberedKey> {
    let key = &table.key;
    let is_named = !(table.whole_rows || key.columns.is_empty() || key.moves);
    if !is_named || table.shown_by_view.is_some() {
        return None;
    }
    let mut found = vec![None; key.columns.len()];
    let mut terms = vec![condition];
    while let Some(term) = terms.pop() {
        let Expr::BinaryOp { left, op, right } = bare(term) else { continue };
        if *op == BinaryOperator::And {
            terms.extend([&**left, &**right]);
            continue;
        }
        let sides = [(left, right), (right, left)];
        let named = sides.into_iter().find_map(|(one, other)| {
            let place = place_of(text, table, one)?;
            Some((place, operand(text, other)?))
        });
        if let (Some((place, value)), BinaryOperator::Eq) = (named, op) {
            found[place] = Some(value);
        }
    }
    Some(NumberedKey { parts: found.into_iter().collect::<Option<_>>()? })
}

/// The place in the key of a column that an expression is, if the column holds whole numbers.
fn place_of(text: &Text, table: &Table, side: &Expr) -> Option<usize> {
    let column = column(text, table, side)?;
    let place = table.key.columns.iter().position(|known| *known == column)?;
    let described = &table.columns[column];
    // SQLite: a column of this affinity keeps every whole number as one.
    let is_whole =
        text.dialect == Dialect::Sqlite && described.type_text.to_ascii_lowercase().contains("int");
    (is_whole || is_plain_number(text.dialect, described)).then_some(place)
}
