//! The columns that a trigger has filled in once more when a row was put back.

use handfast_rm_core::plan::TriggerWrites;

use super::obstacle::Obstacle;
use super::restore::{Found, Restore, Row};
use crate::at::database::Backend;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::value::Value;

/// A row as it has to be, and the places at which it is not.
struct Overridden {
    settled: Vec<Value>,
    places: Vec<usize>,
}

impl<DB: Backend> Restore<'_, DB> {
    /// Writes columns back once more over which a trigger has written something else: without the
    /// triggers where the database lets the undo do so, else by an UPDATE of these columns alone,
    /// which may not fire it.
    pub(super) async fn settle(&mut self, put_back: &[Found<'_, '_>]) -> Result<(), Obstacle> {
        if put_back.is_empty() || !self.loaded.table.is_filled_by_triggers() {
            return Ok(());
        }
        let rows = self.overridden(put_back).await?;
        let fires = self.loaded.table.triggers.iter().any(|trigger| trigger.on_update);
        if rows.is_empty() || fires && self.settle_in_silence(&rows).await? {
            return Ok(());
        }
        // An UPDATE may fire triggers that write elsewhere.
        let mut triggers = self.loaded.table.triggers.iter();
        let unseen =
            triggers.any(|trigger| trigger.on_update && trigger.writes == TriggerWrites::Unknown);
        let shown = self.loaded.table.filled_by_shown_triggers();
        for row in &rows {
            let is_back = !unseen && self.settle_row(row).await?;
            // The statement was taken because this would come back; the account has lost the right
            // since, say. Of triggers that the application vouches for it may differ.
            if !is_back && row.places.iter().any(|at| shown.contains(&self.columns[*at])) {
                return Err(self.stays_filled());
            }
        }
        Ok(())
    }

    fn stays_filled(&self) -> Obstacle {
        Obstacle::refused(format!(
            "what triggers fill in when rows of {} are put back cannot be written over: let the \
             account switch triggers off, or accept the rows as they are",
            self.loaded.table.full_name()
        ))
    }

    async fn overridden(
        &mut self,
        put_back: &[Found<'_, '_>],
    ) -> Result<Vec<Overridden>, Obstacle> {
        let row = |before| Row { before: Some(before), after: None };
        let rows: Vec<Row<'_>> =
            put_back.iter().filter_map(|(found, _)| found.before).map(row).collect();
        let current = self.current(&rows).await?;
        let mut overridden = Vec::new();
        for (row, earlier) in put_back {
            let (Some(before), Some(found)) = (row.before, current.get(&self.name(row.named())))
            else {
                continue;
            };
            let mut settled = before.clone();
            for (at, value) in settled.iter_mut().enumerate() {
                if let Some(earlier) = earlier
                    && self.is_left(at, before, row.after)
                {
                    value.clone_from(&earlier[at]);
                }
            }
            let differs = |at: &usize| self.is_written(*at) && found[*at] != settled[*at];
            let mut places: Vec<usize> = (0..self.columns.len()).filter(differs).collect();
            if !places.is_empty() {
                // The UPDATE would set them to its own time.
                let table = &self.loaded.table;
                let follows = |at: &usize| table.columns[self.columns[*at]].on_update;
                let others = (0..self.columns.len()).filter(|at| !places.contains(at));
                places.extend(others.filter(follows).collect::<Vec<usize>>());
                overridden.push(Overridden { settled, places });
            }
        }
        Ok(overridden)
    }

    /// Returns whether the rows are settled. They are as they were if not.
    async fn settle_in_silence(&mut self, rows: &[Overridden]) -> Result<bool, Obstacle> {
        let is_written = |at: &usize| rows.iter().any(|row| row.places.contains(at));
        let columns: Vec<usize> =
            (0..self.columns.len()).filter(is_written).map(|at| self.columns[at]).collect();
        self.control("SAVEPOINT hf_settle").await?;
        let silenced = DB::silence(self.connection, &self.loaded.table, &columns).await;
        let is_back = match silenced {
            Ok(Some(loud)) => tried(self.write_settled(rows, loud).await)?,
            Ok(None) => false,
            Err(error) => tried(Err(error.into()))?,
        };
        if !is_back {
            // The triggers are back, too.
            self.control("ROLLBACK TO SAVEPOINT hf_settle").await?;
        }
        self.control("RELEASE SAVEPOINT hf_settle").await?;
        Ok(is_back)
    }

    /// Writes the rows, and runs the statements that let triggers fire again.
    async fn write_settled(
        &mut self,
        rows: &[Overridden],
        loud: Vec<String>,
    ) -> Result<bool, Obstacle> {
        for row in rows {
            self.write_places(&row.places, &row.settled).await?;
        }
        for statement in loud {
            DB::steps(self.connection, BoundQuery::plain(statement)).await?;
        }
        for row in rows {
            if !self.is_settled(row).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn settle_row(&mut self, row: &Overridden) -> Result<bool, Obstacle> {
        self.control("SAVEPOINT hf_settle").await?;
        let written = self.write_places(&row.places, &row.settled).await;
        let is_back = tried(written.map(|()| true))? && self.is_settled(row).await?;
        if !is_back {
            // The trigger writes the column whatever the statement says.
            self.control("ROLLBACK TO SAVEPOINT hf_settle").await?;
        }
        self.control("RELEASE SAVEPOINT hf_settle").await?;
        Ok(is_back)
    }

    async fn is_settled(&mut self, row: &Overridden) -> Result<bool, Obstacle> {
        let current = self.current(&[Row { before: Some(&row.settled), after: None }]).await?;
        let found = current.get(&self.name(&row.settled));
        let is_back = |at: &usize| found.is_some_and(|found| found[*at] == row.settled[*at]);
        Ok(row.places.iter().all(is_back))
    }

    async fn control(&mut self, text: &str) -> Result<(), Obstacle> {
        DB::steps(self.connection, BoundQuery::plain(text.to_owned())).await?;
        Ok(())
    }
}

/// Whether an attempt succeeded: not where it is refused. An error that a further attempt at the
/// undo may mend is passed on.
fn tried(attempt: Result<bool, Obstacle>) -> Result<bool, Obstacle> {
    if let Err(Obstacle::Refused { .. }) = attempt {
        return Ok(false);
    }
    attempt
}
