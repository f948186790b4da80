//! Rows of a table without a key, which only all their values together name (PostgreSQL, MariaDB).
//!
//! Such rows are inserted and deleted in branches, and never changed. The undo of a DELETE always
//! puts its rows back: equal ones may be there beside them. The undo of an INSERT takes away as
//! many equal rows as the item has; fewer mean that others have changed or deleted some.

use std::collections::HashMap;

use handfast_rm_core::plan::undo_sql;

use super::obstacle::Obstacle;
use super::restore::{Criterion, Restore, Row, RowAction};
use crate::at::database::bind::{bind, rows_max};
use crate::at::database::value::Value;
use crate::at::database::{Backend, execute, rows};
use crate::at::undo::log::UndoKind;

/// Equal rows of an item.
pub(super) struct Equal {
    pub(super) values: Vec<Value>,
    /// How many the item has.
    given: usize,
    /// How many there are.
    pub(super) there: usize,
}

impl<DB: Backend> Restore<'_, DB> {
    /// The rows of which there are at least as many as the item has, locked, by name.
    pub(super) async fn current_equal(
        &mut self,
        all: &[Row<'_>],
    ) -> Result<HashMap<String, Vec<Value>>, Obstacle> {
        let mut current = HashMap::new();
        for equal in self.count_equal(all).await? {
            if equal.there >= equal.given {
                current.insert(self.name(&equal.values), equal.values);
            }
        }
        Ok(current)
    }

    /// Counts and locks the rows that are equal to those of the item.
    pub(super) async fn count_equal(&mut self, all: &[Row<'_>]) -> Result<Vec<Equal>, Obstacle> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut counted: Vec<Equal> = Vec::new();
        for row in all {
            let place = *places.entry(self.name(row.named())).or_insert_with(|| {
                let values = row.named().clone();
                counted.push(Equal { values, given: 0, there: 0 });
                counted.len() - 1
            });
            counted[place].given += 1;
        }
        for chunk in counted.chunks_mut(self.equal_rows_max()) {
            let values: Vec<&Vec<Value>> = chunk.iter().map(|equal| &equal.values).collect();
            let text = undo_sql::select_equal(DB::DIALECT, &self.loaded.table, values.len());
            let arguments = self.all_values(&values)?;
            for row in rows::<DB>(self.connection, text, arguments).await? {
                let number = DB::number(&row, 0)?.and_then(|number| usize::try_from(number).ok());
                let place = number.and_then(|number| number.checked_sub(1));
                if let Some(equal) = place.and_then(|place| chunk.get_mut(place)) {
                    equal.there += 1;
                }
            }
        }
        Ok(counted)
    }

    pub(super) fn judge_whole(
        &self,
        found: Option<&Vec<Value>>,
        criterion: Criterion,
    ) -> RowAction {
        match (self.item.kind, found, criterion) {
            (UndoKind::Delete, _, _) | (UndoKind::Insert, Some(_), _) => RowAction::PutBack,
            (UndoKind::Insert, None, Criterion::Force) => RowAction::LeaveAlone,
            (UndoKind::Insert, None, Criterion::Images) | (UndoKind::Update, _, _) => {
                RowAction::Dirty
            }
        }
    }

    pub(super) async fn remove_equal(&mut self, all: Vec<&Vec<Value>>) -> Result<(), Obstacle> {
        for chunk in all.chunks(self.equal_rows_max()) {
            let text = undo_sql::remove_inserted(DB::DIALECT, &self.loaded.table, chunk.len());
            let arguments = self.all_values(chunk)?;
            let removed = execute::<DB>(self.connection, text, arguments).await?;
            // Beside the locked rows an equal one may have come that another session deletes.
            if removed < chunk.len() as u64 {
                let again = "an equal row was deleted meanwhile; it is undone again";
                return Err(Obstacle::Database(sqlx::Error::Protocol(again.to_owned())));
            }
        }
        Ok(())
    }

    /// Returns where in the image each column stands that can be written.
    pub(super) fn places_of_all(&self) -> Result<Vec<usize>, Obstacle> {
        let table = &self.loaded.table;
        let place = |column: &usize| self.columns.iter().position(|known| known == column);
        let places: Option<Vec<usize>> = table.stored().iter().map(place).collect();
        // A column that was added later has no value in the image, so the row would come back
        // without it.
        places.ok_or_else(|| {
            let error = format!("table {} has columns that the undo log lacks", table.full_name());
            Obstacle::refused(error)
        })
    }

    fn equal_rows_max(&self) -> usize {
        rows_max::<DB>(self.columns.len() + 1).min(undo_sql::equal_rows_max(DB::DIALECT))
    }

    fn all_values(&self, rows: &[&Vec<Value>]) -> Result<DB::Arguments, Obstacle> {
        let places = self.places_of_all()?;
        let stored = self.loaded.table.stored();
        let mut arguments = DB::Arguments::default();
        for row in rows {
            for (column, at) in stored.iter().zip(&places) {
                bind(&mut arguments, self.loaded, *column, &row[*at])?;
            }
        }
        Ok(arguments)
    }
}
