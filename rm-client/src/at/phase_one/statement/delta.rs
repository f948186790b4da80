//! Changes of declared counters: recorded as the difference of both images, so that they commute
//! with those of other globals.

use handfast_rm_core::plan::{Delta, DeltaKind, Direction, Update};

use super::StatementRun;
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, ImageRow};

/// The effect of a statement on the counters of one row.
enum Effect {
    /// It commutes with all of this kind.
    Commutes(DeltaKind),
    /// It does not, or could not be undone as a sum.
    Stands,
}

impl<DB: Backend> StatementRun<'_, DB> {
    /// Records the rows of a statement that changes nothing but counters.
    ///
    /// # Errors
    /// [`AtError::CounterBound`]. Then the change has no undo item, and the local transaction can
    /// only be rolled back.
    pub(super) fn record_deltas(
        &mut self,
        plan: &Update,
        before: Image,
        after: Image,
    ) -> Result<(), AtError> {
        for (before, after) in before.into_iter().zip(after) {
            match effect(self.loaded, plan, &before, &after)? {
                Effect::Commutes(kind) => {
                    self.log.counted(self.loaded, &plan.columns, kind, before, after);
                }
                Effect::Stands => {
                    let (before, after) = (vec![before], vec![after]);
                    self.log.updated(self.loaded, &plan.columns, &[], before, after);
                }
            }
        }
        Ok(())
    }
}

fn effect<DB: Backend>(
    loaded: &LoadedTable<DB>,
    plan: &Update,
    before: &ImageRow,
    after: &ImageRow,
) -> Result<Effect, AtError> {
    let mut changes = Vec::with_capacity(plan.deltas.len());
    for delta in &plan.deltas {
        let (bounds, column) = (delta.counter.bounds, delta.counter.column);
        let place = plan.columns.iter().position(|known| *known == column);
        let place = place.expect("an image holds every column that is assigned");
        // NULL, or on SQLite a value of another type.
        let (Value::Integer(old), Value::Integer(new)) =
            (&before.values[place], &after.values[place])
        else {
            return Ok(Effect::Stands);
        };
        let direction = Direction::of(new - old);
        if direction.is_some_and(|direction| bounds.is_passed(direction, *new)) {
            let (table, column) = (loaded.table.full_name(), &loaded.table.columns[column].name);
            return Err(AtError::CounterBound { table, column: column.clone(), value: *new });
        }
        if !is_as_planned(loaded, *delta, new - old) {
            return Ok(Effect::Stands);
        }
        changes.push((&*loaded.table.columns[column].name, bounds, delta.direction));
    }
    Ok(Effect::Commutes(DeltaKind::of(changes)))
}

/// Whether a change goes in the direction that the guards of the statement were judged by, and its
/// amount can be bound as a value of the column, as the undo does.
fn is_as_planned<DB: Backend>(loaded: &LoadedTable<DB>, delta: Delta, amount: i128) -> bool {
    let direction = Direction::of(amount);
    let column = &loaded.types[delta.counter.column];
    let amount = Value::Integer(amount.abs());
    direction.is_none_or(|direction| direction == delta.direction)
        && DB::bind(&mut DB::Arguments::default(), &amount, column).is_ok()
}
