//! The findings, for people and for scripts.

use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL};
use futures::future::try_join_all;
use serde::Serialize;
use tokio::time::timeout;

use crate::ground::Ground;
use crate::recipes::{Recipe, RecipeResult};

/// Longer than any leases that have to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The width of a table on a terminal of any kind.
const WIDTH: u16 = 118;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    is_as_it_must_be: bool,
    recipes: Vec<Row>,
}

/// One recipe.
#[derive(Debug, Serialize)]
struct Row {
    number: usize,
    name: &'static str,
    defect: &'static str,
    as_written: RecipeResult,
    ours: RecipeResult,
}

impl Row {
    async fn of(ground: &Ground, recipe: Recipe) -> Result<Self> {
        let played = async { tokio::try_join!(recipe.as_written(ground), recipe.ours(ground)) };
        let played = timeout(PATIENCE, played).await.with_context(|| recipe.name())?;
        let (as_written, ours) = played.with_context(|| recipe.name())?;
        let (number, name, defect) = (recipe.number(), recipe.name(), recipe.defect());
        Ok(Self { number, name, defect, as_written, ours })
    }

    fn is_as_it_must_be(&self) -> bool {
        !self.as_written.is_right && self.ours.is_right
    }
}

impl Report {
    /// Plays the recipes at the same time: each has a database of its own.
    pub(crate) async fn of(ground: &Ground, recipes: &[Recipe]) -> Result<Self> {
        let rows = recipes.iter().map(|recipe| Box::pin(Row::of(ground, *recipe)));
        let recipes = try_join_all(rows).await?;
        Ok(Self { is_as_it_must_be: recipes.iter().all(Row::is_as_it_must_be), recipes })
    }

    /// Returns whether every recipe has failed and the locks of this project never have.
    pub(crate) fn is_as_it_must_be(&self) -> bool {
        self.is_as_it_must_be
    }

    /// Formats the report as one JSON object.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Formats the report for a terminal.
    pub(crate) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(WIDTH).set_header(["", "the recipe", "as written", "ours"]);
        for row in &self.recipes {
            table.add_row([
                row.number.to_string(),
                format!("{}: {}", row.name, row.defect),
                told(&row.as_written),
                told(&row.ours),
            ]);
        }
        let fail = self.recipes.iter().filter(|row| !row.as_written.is_right).count();
        let hold = self.recipes.iter().filter(|row| row.ours.is_right).count();
        let all = self.recipes.len();
        format!("{table}\n{fail} of {all} recipes fail, ours holds in {hold} of {all}")
    }
}

fn told(seen: &RecipeResult) -> String {
    let verdict = if seen.is_right { "holds" } else { "FAILS" };
    format!("{verdict}: {}", seen.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_must_fail_and_ours_must_not() {
        let row = |as_written, ours| {
            let [as_written, ours] =
                [as_written, ours].map(|is_right| RecipeResult::new(is_right, ""));
            let (as_written, ours) = (as_written.unwrap(), ours.unwrap());
            Row { number: 1, name: "", defect: "", as_written, ours }.is_as_it_must_be()
        };
        assert!(row(false, true));
        assert!(!row(true, true) && !row(false, false) && !row(true, false));
    }
}
