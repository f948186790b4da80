//! Programs that know of no global and write rows of orders all the same, and the guards against
//! them.
//!
//! They add to rows as a delivery or a correction by hand does. The audit counts what they add.

use std::ops::Range;

use super::Workload;
use super::orders::{customer_row, sold_row, stock_row};
use super::points;
use crate::model::values::RowId;
use crate::random::Random;
use crate::world::SECOND;

/// Returns the rows of the table that branches in AT mode change: the one that can be guarded.
pub(crate) fn table_of_orders() -> Range<RowId> {
    RowId(0)..points::first_row()
}

/// The guard of a database at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardAtStart {
    None,
    /// Put on before the start, that many microseconds ago.
    Since(u64),
}

/// A time at which an administrator changes a guard, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardChange {
    /// The pause before it.
    pub(crate) after: u64,
    pub(crate) puts_on: bool,
}

impl Workload {
    /// Draws the changes that one statement from outside makes, of up to three rows.
    pub(crate) fn draw_outside(&self, random: &mut Random, database: usize) -> Vec<(RowId, i64)> {
        let rows: Vec<RowId> = if database == 0 {
            (0..self.rows).flat_map(|product| [stock_row(product), sold_row(product)]).collect()
        } else {
            (0..=self.rows).map(customer_row).collect()
        };
        let mut drawn: Vec<RowId> =
            (0..1 + random.index(3)).map(|_| rows[random.index(rows.len())]).collect();
        drawn.sort_unstable();
        drawn.dedup();
        let delta = |row| (row, i64::try_from(random.between(100, 200)).unwrap_or(100));
        drawn.into_iter().map(delta).collect()
    }
}

/// Draws how a database is guarded at the start: for long, or since so short that the guard takes
/// effect during the run, or not at all.
pub(crate) fn draw_guard_at_start(random: &mut Random) -> GuardAtStart {
    match random.index(8) {
        0..=2 => GuardAtStart::Since(random.between(300, 400) * SECOND),
        3 | 4 => GuardAtStart::Since(random.between(90 * SECOND, 125 * SECOND)),
        5 | 6 => GuardAtStart::Since(random.between(1, 60) * SECOND),
        _ => GuardAtStart::None,
    }
}

/// Draws the changes of a guard in a run of ordinary length. Most guards stay as they are.
pub(crate) fn draw_few_changes(random: &mut Random, guarded: bool) -> Vec<GuardChange> {
    let mut change = |puts_on, low, high| {
        let after = random.between(low * SECOND, high * SECOND);
        GuardChange { after, puts_on }
    };
    if !guarded {
        return vec![change(true, 1, 20)];
    }
    let (away, again) = (change(false, 2, 60), change(true, 1, 20));
    match random.index(8) {
        0 => vec![away],
        1 => vec![away, again],
        _ => Vec::new(),
    }
}

/// Draws the changes of a guard in a long run. Most stay on for long enough to take effect.
pub(crate) fn draw_many_changes(random: &mut Random, guarded: bool) -> Vec<GuardChange> {
    let mut puts_on = !guarded;
    let mut changes = Vec::new();
    for _ in 0..6 {
        let for_long = !puts_on && random.happens(700);
        let (low, high) = if for_long { (125, 170) } else { (1, 40) };
        changes.push(GuardChange { after: random.between(low * SECOND, high * SECOND), puts_on });
        puts_on = !puts_on;
    }
    changes
}
