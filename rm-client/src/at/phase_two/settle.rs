//! The columns that a trusted trigger has filled in once more when a row was put back.

use super::obstacle::Obstacle;
use super::restore::{Found, Restore, Row};
use crate::at::database::Backend;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::value::Value;

impl<DB: Backend> Restore<'_, DB> {
    /// Writes columns back once more over which a trusted trigger has written something else. An
    /// UPDATE of these alone may not fire it.
    pub(super) async fn settle(&mut self, put_back: &[Found<'_, '_>]) -> Result<(), Obstacle> {
        let triggered = self.loaded.table.triggers.iter().any(|trigger| trigger.own_row_only);
        if put_back.is_empty() || !triggered {
            return Ok(());
        }
        let row = |before| Row { before: Some(before), after: None };
        let rows: Vec<Row<'_>> =
            put_back.iter().filter_map(|(found, _)| found.before).map(row).collect();
        let current = self.current(&rows).await?;
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
            let places: Vec<usize> = (0..self.columns.len()).filter(differs).collect();
            if !places.is_empty() {
                self.settle_row(&settled, &places).await?;
            }
        }
        Ok(())
    }

    async fn settle_row(&mut self, settled: &Vec<Value>, places: &[usize]) -> Result<(), Obstacle> {
        self.control("SAVEPOINT hf_settle").await?;
        let is_back = match self.write_places(places, settled).await {
            Ok(()) => {
                let current = self.current(&[Row { before: Some(settled), after: None }]).await?;
                let found = current.get(&self.name(settled));
                found.is_some_and(|found| places.iter().all(|at| found[*at] == settled[*at]))
            }
            Err(_) => false,
        };
        if !is_back {
            // The trigger writes the column whatever the statement says.
            self.control("ROLLBACK TO SAVEPOINT hf_settle").await?;
        }
        self.control("RELEASE SAVEPOINT hf_settle").await
    }

    async fn control(&mut self, text: &str) -> Result<(), Obstacle> {
        DB::steps(self.connection, BoundQuery::plain(text.to_owned())).await?;
        Ok(())
    }
}
