//! Gives back what a branch has added to counters or taken from them, whatever their values are by
//! then: other globals may have changed them since.

use handfast_rm_core::plan::{Dialect, Direction, undo_sql};

use super::obstacle::Obstacle;
use super::restore::{Restore, Row};
use crate::at::database::bind::{bind, bind_key};
use crate::at::database::value::Value;
use crate::at::database::{Backend, execute};
use crate::at::undo::log::ColumnRole;

impl<DB: Backend> Restore<'_, DB> {
    /// Gives back the difference of both images of a row, counter by counter. It is never done
    /// twice: the undo row goes in the same local transaction.
    pub(super) async fn give_back(
        &mut self,
        before: &[Value],
        after: Option<&[Value]>,
    ) -> Result<(), Obstacle> {
        let Some(after) = after else { return Ok(()) };
        let (mut counters, mut amounts) = (Vec::new(), Vec::new());
        for at in self.counters() {
            let amount = difference(&before[at], &after[at]).ok_or_else(|| self.not_counted(at))?;
            if let Some(direction) = Direction::of(amount) {
                counters.push((self.columns[at], direction));
                amounts.push(Value::Integer(amount.abs()));
            }
        }
        if counters.is_empty() {
            return Ok(());
        }
        let text = undo_sql::restore_counters(DB::DIALECT, &self.loaded.table, &counters);
        let mut arguments = DB::Arguments::default();
        for ((column, _), amount) in counters.iter().zip(&amounts) {
            bind(&mut arguments, self.loaded, *column, amount)?;
        }
        bind_key(&mut arguments, self.loaded, before, &self.columns)?;
        // Strict, in contrast to values that were there before: one that is cut off to fit would be
        // another sum.
        let changed = execute::<DB>(self.connection, text, arguments).await?;
        if changed == 1 { Ok(()) } else { Err(self.not_changed(changed)) }
    }

    /// Whether amounts can be given back to the counters that are there: not to NULL, which stays
    /// NULL, and on SQLite neither to a value of another type nor beyond its whole numbers, where
    /// it would store another value in silence.
    pub(super) fn takes_amounts(&self, row: &Row<'_>, found: &[Value]) -> bool {
        let (Some(before), Some(after)) = (row.before, row.after) else { return true };
        self.counters().into_iter().all(|at| {
            let Value::Integer(there) = found[at] else { return false };
            let Some(amount) = difference(&before[at], &after[at]) else { return true };
            let restored = there.checked_add(amount);
            DB::DIALECT != Dialect::Sqlite
                || restored.is_some_and(|restored| i64::try_from(restored).is_ok())
        })
    }

    /// The places of the counters in the item.
    pub(super) fn counters(&self) -> Vec<usize> {
        let is_counter = |at: &usize| self.item.columns[*at].role == ColumnRole::Counter;
        (0..self.item.columns.len()).filter(is_counter).collect()
    }

    fn not_counted(&self, at: usize) -> Obstacle {
        let (column, table) = (&self.item.columns[at].name, self.loaded.table.full_name());
        Obstacle::refused(format!("counter {column} of {table} is no whole number in the undo log"))
    }

    fn not_changed(&self, changed: u64) -> Obstacle {
        let table = self.loaded.table.full_name();
        Obstacle::refused(format!("counters of {changed} rows of {table} were given back, not 1"))
    }
}

/// The amount that one value is more than the other; `None` where they are no numbers.
pub(super) fn difference(to: &Value, from: &Value) -> Option<i128> {
    let (Value::Integer(to), Value::Integer(from)) = (to, from) else { return None };
    to.checked_sub(*from)
}
