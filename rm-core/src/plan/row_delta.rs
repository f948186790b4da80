//! A change of counters in numbers: what it adds to a row, and the conditions on it.
//!
//! It is known where the text or the arguments give all of these as whole numbers. Changes of one
//! row that follow each other can then be worked out from the row's values before the first. What
//! the database itself would say of a value in between (a constraint, the range of the column) is
//! not known here.

use std::collections::BTreeMap;

use super::{Delta, Operand};

/// A comparison of a counter, on the left, with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
}

/// A condition on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterGuard {
    /// The counter's column.
    pub column: usize,
    /// How it is compared.
    pub comparison: Comparison,
    /// The other side of the comparison.
    pub value: Operand,
}

/// A change of counters of one row, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDelta {
    /// The amount that each change adds or takes.
    pub amounts: Vec<(Delta, Operand)>,
    /// The conditions under which it does so.
    pub guards: Vec<CounterGuard>,
}

/// The effect of a statement on the row that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEffect {
    /// A guard does not hold, so that it leaves the row alone.
    Unmet,
    /// It has changed the row.
    Changed,
}

impl Comparison {
    fn holds(self, counter: i128, value: i128) -> bool {
        match self {
            Self::Less => counter < value,
            Self::LessOrEqual => counter <= value,
            Self::GreaterOrEqual => counter >= value,
            Self::Greater => counter > value,
        }
    }
}

impl RowDelta {
    /// Changes the counters of the row, by column, as the statement does.
    ///
    /// `None` leaves them in between: the statement turns a direction round or passes a bound, for
    /// which it is to be run by itself, or a value is missing.
    #[must_use]
    pub fn apply(
        &self,
        counters: &mut BTreeMap<usize, i128>,
        arguments: &[i128],
    ) -> Option<RowEffect> {
        for CounterGuard { column, comparison, value } in &self.guards {
            if !comparison.holds(*counters.get(column)?, value.value(arguments)?) {
                return Some(RowEffect::Unmet);
            }
        }
        for (delta, amount) in &self.amounts {
            let amount = amount.value(arguments).filter(|amount| *amount >= 0)?;
            let counter = counters.get_mut(&delta.counter.column)?;
            *counter = counter.checked_add(delta.direction.signed(amount))?;
            let moves = amount > 0;
            if moves && delta.counter.bounds.is_passed(delta.direction, *counter) {
                return None;
            }
        }
        Some(RowEffect::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, Counter, Direction};
    use super::*;

    const UNITS: usize = 1;

    /// `UPDATE stock SET units = units - $1 WHERE id = 7 AND units >= $1`, never below nothing.
    fn take() -> RowDelta {
        let bounds = Bounds { lower: Some(0), upper: None };
        let counter = Counter { column: UNITS, bounds };
        RowDelta {
            amounts: vec![(Delta { counter, direction: Direction::Down }, Operand::Argument(0))],
            guards: vec![CounterGuard {
                column: UNITS,
                comparison: Comparison::GreaterOrEqual,
                value: Operand::Argument(0),
            }],
        }
    }

    #[test]
    fn changes_follow_each_other_until_a_guard_fails() {
        let mut counters = BTreeMap::from([(UNITS, 5)]);
        let mut taken = Vec::new();
        for amount in [2, 4, 3, 1, 0] {
            taken.push((take().apply(&mut counters, &[amount]), counters[&UNITS]));
        }
        let (changed, unmet) = (Some(RowEffect::Changed), Some(RowEffect::Unmet));
        assert_eq!(taken, [(changed, 3), (unmet, 3), (changed, 0), (unmet, 0), (changed, 0)]);
    }

    #[test]
    fn what_numbers_do_not_say_is_not_said() {
        let unguarded = RowDelta { guards: Vec::new(), ..take() };
        let apply =
            |arguments: &[i128]| unguarded.apply(&mut BTreeMap::from([(UNITS, 5)]), arguments);
        assert_eq!(apply(&[5]), Some(RowEffect::Changed));
        assert_eq!(apply(&[6]), None, "it passes the bound");
        assert_eq!(apply(&[-1]), None, "it adds instead");
        assert_eq!(apply(&[]), None);
        assert_eq!(take().apply(&mut BTreeMap::new(), &[1]), None);
    }

    #[test]
    fn each_comparison_is_its_own() {
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};

        let holding = |counter| {
            let all = [Less, LessOrEqual, GreaterOrEqual, Greater];
            all.map(|comparison| comparison.holds(counter, 5))
        };
        assert_eq!(holding(4), [true, true, false, false]);
        assert_eq!(holding(5), [false, true, true, false]);
        assert_eq!(holding(6), [false, false, true, true]);
    }
}
