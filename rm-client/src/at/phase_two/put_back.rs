//! Writes rows of an undo item back, removes those that it inserted, and inserts those that it
//! deleted. Which rows these are is decided before, by `restore`.

use std::collections::HashMap;

use handfast_rm_core::plan::undo_sql;
use handfast_rm_core::plan::{Dialect, Generation};

use super::obstacle::Obstacle;
use super::restore::{Restore, Row};
use crate::at::database::bind::{bind, bind_key, rows_max};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::error_class;
use crate::at::database::value::Value;
use crate::at::database::{Backend, execute};
use crate::at::undo::image::part;
use crate::at::undo::log::ColumnRole;

impl<DB: Backend> Restore<'_, DB> {
    /// Writes over rows what they were, given with what the branch left of them.
    pub(super) async fn write_back<'i>(
        &mut self,
        rows: impl Iterator<Item = (Option<&'i Vec<Value>>, Option<&'i Vec<Value>>)>,
    ) -> Result<(), Obstacle> {
        for (row, after) in rows {
            let Some(row) = row else { continue };
            let written = |at: &usize| self.is_written(*at) && !self.is_left(*at, row, after);
            let places: Vec<usize> = (0..self.columns.len()).filter(written).collect();
            if !places.is_empty() {
                self.write_places(&places, row).await?;
            }
            self.give_back(row, after.map(Vec::as_slice)).await?;
        }
        Ok(())
    }

    /// Returns whether a trigger of the table could have changed a column and has not: what another
    /// program has written there meanwhile is not compared, and must stay for the item that has
    /// written the column, unless nothing is compared. `ON UPDATE` columns are written all the
    /// same, or the database sets them.
    pub(super) fn is_left(&self, at: usize, before: &[Value], after: Option<&Vec<Value>>) -> bool {
        let follows = self.loaded.table.columns[self.columns[at]].on_update;
        let maintained = self.item.columns[at].role == ColumnRole::Maintained && !follows;
        let stays = maintained && !self.is_forced;
        stays && after.is_some_and(|after| before[at] == after[at])
    }

    /// Writes some columns of a row back, by their places in the image.
    pub(super) async fn write_places(
        &mut self,
        places: &[usize],
        row: &Vec<Value>,
    ) -> Result<(), Obstacle> {
        let columns: Vec<usize> = places.iter().map(|at| self.columns[*at]).collect();
        let text = undo_sql::restore_updated(DB::DIALECT, &self.loaded.table, &columns);
        let mut arguments = DB::Arguments::default();
        for at in places {
            bind(&mut arguments, self.loaded, self.columns[*at], &row[*at])?;
        }
        bind_key(&mut arguments, self.loaded, row, &self.columns)?;
        self.write(text, arguments, &[row]).await?;
        Ok(())
    }

    /// Runs a restoring statement, and returns how many rows it wrote. Where strict rules refuse a
    /// value that was there, it goes back without them, and the rows are read again: rules that are
    /// not strict cut off what does not fit, and say nothing.
    async fn write(
        &mut self,
        text: String,
        arguments: DB::Arguments,
        rows: &[&Vec<Value>],
    ) -> Result<u64, Obstacle> {
        let Some([lenient, strict]) = DB::UNDO_LENIENT else {
            return Ok(execute::<DB>(self.connection, text, arguments).await?);
        };
        let again = BoundQuery::ours(text.clone(), arguments.clone());
        let error = match execute::<DB>(self.connection, text, arguments).await {
            Ok(written) => return Ok(written),
            Err(error) => error,
        };
        if !error_class::needs_lenient_mode(&error) {
            return Err(error.into());
        }
        // Strict again at once: no other value of this undo may be cut off in silence.
        for statement in
            [BoundQuery::plain(lenient.to_owned()), again, BoundQuery::plain(strict.to_owned())]
        {
            DB::steps(self.connection, statement).await?;
        }
        if self.are_back(rows).await? { Ok(rows.len() as u64) } else { Err(error.into()) }
    }

    async fn are_back(&mut self, rows: &[&Vec<Value>]) -> Result<bool, Obstacle> {
        let row = |row| Row { before: Some(row), after: None };
        let rows: Vec<Row<'_>> = rows.iter().copied().map(row).collect();
        let current = self.current(&rows).await?;
        let is_back = |row: &Row<'_>| self.same(current.get(&self.name(row.named())), row.before);
        Ok(rows.iter().all(is_back))
    }

    pub(super) fn is_written(&self, at: usize) -> bool {
        let generation = self.loaded.table.columns[self.columns[at]].generation;
        // PostgreSQL takes no value for such a column in an UPDATE, and no UPDATE that is run
        // assigns it.
        let fixed = matches!(generation, Generation::Computed | Generation::IdentityAlways);
        let role = self.item.columns[at].role;
        !matches!(role, ColumnRole::Key | ColumnRole::Counter) && !fixed
    }

    pub(super) async fn remove<'i>(
        &mut self,
        rows: impl Iterator<Item = &'i Vec<Value>>,
    ) -> Result<(), Obstacle> {
        if self.loaded.table.whole_rows {
            return self.remove_equal(rows.collect()).await;
        }
        // Children before their parents: MySQL checks each row as it goes.
        let mut rows = self.parents_first(rows.collect());
        rows.reverse();
        let table = &self.loaded.table;
        for chunk in rows.chunks(self.chunk(table.key.columns.len())) {
            let text = undo_sql::remove_inserted(DB::DIALECT, table, chunk.len());
            let mut arguments = DB::Arguments::default();
            for row in chunk {
                bind_key(&mut arguments, self.loaded, row, &self.columns)?;
            }
            execute::<DB>(self.connection, text, arguments).await?;
        }
        Ok(())
    }

    pub(super) async fn insert_again<'i>(
        &mut self,
        rows: impl Iterator<Item = &'i Vec<Value>>,
    ) -> Result<(), Obstacle> {
        let table = &self.loaded.table;
        let stored = table.stored();
        let places = self.places_of_all()?;
        let rows = self.parents_first(rows.collect());
        for chunk in rows.chunks(rows_max::<DB>(stored.len())) {
            let text = undo_sql::restore_deleted(DB::DIALECT, table, chunk.len());
            let mut arguments = DB::Arguments::default();
            for row in chunk {
                for (column, at) in stored.iter().zip(&places) {
                    bind(&mut arguments, self.loaded, *column, &row[*at])?;
                }
            }
            let inserted = self.write(text, arguments, chunk).await?;
            if inserted < chunk.len() as u64 {
                let error =
                    format!("a trigger keeps rows of {} from being put back", table.full_name());
                return Err(Obstacle::refused(error));
            }
        }
        Ok(())
    }

    /// Orders rows that refer to each other. PostgreSQL and SQLite check a statement as a whole,
    /// MySQL row by row.
    fn parents_first<'i>(&self, rows: Vec<&'i Vec<Value>>) -> Vec<&'i Vec<Value>> {
        let mut ahead = vec![Vec::new(); rows.len()];
        let keys = self.loaded.table.referenced_by.iter();
        for key in keys.filter(|key| !key.own_columns.is_empty()) {
            let link = |row: &&'i Vec<Value>| {
                (
                    part(&self.columns, row, &key.referenced),
                    part(&self.columns, row, &key.own_columns),
                )
            };
            let links: Vec<_> = rows.iter().map(link).collect();
            for (ahead, more) in ahead.iter_mut().zip(undo_sql::referred_rows(&links)) {
                ahead.extend(more);
            }
        }
        undo_sql::after_their_own(&ahead).into_iter().map(|index| rows[index]).collect()
    }

    /// Orders rows by their unique values: a row that holds a value which another row had before
    /// comes ahead of that row, since the value is free only then. A cycle can only have arisen
    /// under a deferred constraint, which the undo defers too.
    pub(super) fn leavers_first<'a, 'i>(&self, rows: Vec<&'a Row<'i>>) -> Vec<&'a Row<'i>> {
        let mut ahead = vec![Vec::new(); rows.len()];
        for index in &self.loaded.table.unique {
            let part = |values: Option<&Vec<Value>>| part(&self.columns, values?, &index.columns);
            let leaving: HashMap<String, usize> = (0..rows.len())
                .filter_map(|at| part(rows[at].after).map(|value| (value, at)))
                .collect();
            for (at, row) in rows.iter().enumerate() {
                let leaver = part(row.before).and_then(|value| leaving.get(&value));
                ahead[at].extend(leaver.copied().filter(|leaver| *leaver != at));
            }
        }
        undo_sql::after_their_own(&ahead).into_iter().map(|index| rows[index]).collect()
    }

    /// How many rows one DELETE may name: one where rows refer to each other and are checked one by
    /// one.
    fn chunk(&self, key_columns: usize) -> usize {
        let refers = self.loaded.table.referenced_by.iter().any(|key| !key.own_columns.is_empty());
        if refers && DB::DIALECT == Dialect::MySql { 1 } else { rows_max::<DB>(key_columns) }
    }
}
