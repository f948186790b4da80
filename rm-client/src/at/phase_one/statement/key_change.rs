//! UPDATE that assigns columns of the key: whole rows before and after, told apart by their keys.
//!
//! Which row has become which does not matter: the undo deletes the rows whose keys are new, writes
//! back those whose keys stayed, and inserts those whose keys are gone.

use handfast_rm_core::plan::{Change, Generation, KeyChange, Query, StatementRefusal, Update};

use super::{Extent, StatementRun, for_application, rows_of};
use crate::at::database::value::Value;
use crate::at::database::{Backend, Steps, affected};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, ImageRow, Layout, by_key};

/// The rows of a change by what has become of their keys.
#[derive(Default)]
struct Rekeyed {
    /// Rows under keys that are no more, or that are spelt otherwise.
    gone: Image,
    /// Rows under keys that were not there.
    fresh: Image,
    /// Rows under the keys that they had, as they were and as they are.
    kept: (Image, Image),
}

impl<DB: Backend> StatementRun<'_, DB> {
    /// Runs an UPDATE that may change keys, and records it.
    pub(super) async fn update_keys(
        &mut self,
        plan: &Update,
        before: &Query,
        change: &Change,
        returns_after: bool,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let columns = &plan.columns;
        let steps = self.answer(before).await?;
        let before = self.judge(self.loaded, rows_of::<DB>(&steps), columns, plan.judged).await?;
        let foretold = self.foretold(plan, &before, &steps).await?;
        drop(steps);
        let steps = self.change_rows(change, Extent::Any, &before, columns).await?;
        self.expect_rows("UPDATE", before.len(), affected::<DB>(&steps))?;
        let after = if returns_after {
            let returned = Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))?;
            self.settled(returned, columns).await?
        } else {
            self.found_again(plan, &before, foretold).await?
        };
        let (imaged, changed) = (before.len(), affected::<DB>(&steps));
        let rows = self.rekeyed(columns, before, after);
        let rows = rows.ok_or_else(|| self.rows_differ("UPDATE", imaged as u64, changed))?;
        self.lock_parents(columns, rows.fresh.iter()).await?;
        self.lock_changed_parents(columns, &rows.kept.0, &rows.kept.1).await?;
        self.record_rekeyed(plan, rows)?;
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }

    /// The only row under the key that it will have, unless there is a row under it already.
    async fn foretold(
        &mut self,
        plan: &Update,
        before: &Image,
        steps: &Steps<DB>,
    ) -> Result<Option<ImageRow>, sqlx::Error> {
        let KeyChange::Possible { foretold: Some(key), .. } = &plan.keys else { return Ok(None) };
        let ([row], Some(answer)) = (before.as_slice(), rows_of::<DB>(steps).next()) else {
            return Ok(None);
        };
        let mut foretold = row.clone();
        for (column, place) in &key.parts {
            let at = plan.columns.iter().position(|known| known == column);
            let at = at.expect("every image holds the whole key");
            let kind = &self.loaded.types[*column];
            foretold.values[at] = if DB::is_temporal(kind) {
                DB::value(answer, *place, kind)?
            } else {
                let Some(text) = DB::text(answer, *place)? else { return Ok(None) };
                match text.parse() {
                    Ok(number) if matches!(row.values[at], Value::Integer(_)) => {
                        Value::Integer(number)
                    }
                    Err(_) if matches!(row.values[at], Value::Integer(_)) => return Ok(None),
                    Ok(_) | Err(_) => Value::Text(text),
                }
            };
        }
        if foretold == *row {
            return Ok(None);
        }
        let there = self.read_again(&vec![foretold.clone()], &plan.columns).await?;
        Ok(there.is_empty().then_some(foretold))
    }

    /// The rows after a change that returns none: under their keys, or the only one under the key
    /// that was foretold.
    async fn found_again(
        &mut self,
        plan: &Update,
        before: &Image,
        foretold: Option<ImageRow>,
    ) -> Result<Image, sqlx::Error> {
        let columns = &plan.columns;
        let after = self.read_again(before, columns).await?;
        if after.len() == before.len() {
            return Ok(after);
        }
        if let (Some(foretold), [_]) = (foretold, before.as_slice()) {
            let key = foretold.values.clone();
            let after = self.read_again(&vec![foretold], columns).await?;
            if let [row] = after.as_slice()
                && self.is_foretold(plan, &key, row)
            {
                return Ok(after);
            }
        }
        let reason = "and this database does not tell which: change one row at a time, to a \
                      value that the statement shows, or delete it and insert it again";
        Err(self.key_changed(reason).into())
    }

    /// Whether a row has the key that was foretold, to the letter, and is as it was where nothing
    /// was assigned.
    fn is_foretold(&self, plan: &Update, foretold: &[Value], row: &ImageRow) -> bool {
        let key = &self.loaded.table.key.columns;
        let changed = [&plan.assigned[..], &plan.maintained].concat();
        let values = plan.columns.iter().zip(foretold.iter().zip(&row.values));
        values.into_iter().all(|(column, (foretold, found))| {
            let is_computed = self.loaded.table.columns[*column].generation == Generation::Computed;
            let free = changed.contains(column) && !key.contains(column);
            free || is_computed || foretold == found
        })
    }

    /// Tells the rows apart by their keys. `None`: they are not as many, or two have one key.
    fn rekeyed(&self, columns: &[usize], before: Image, after: Image) -> Option<Rekeyed> {
        let count = before.len();
        let mut after = by_key(after);
        if after.len() != count {
            return None;
        }
        let mut rows = Rekeyed::default();
        for row in before {
            match after.remove(&row.key) {
                Some(now) if self.is_respelt(columns, &row, &now) => {
                    rows.gone.push(row);
                    rows.fresh.push(now);
                }
                Some(now) => {
                    rows.kept.0.push(row);
                    rows.kept.1.push(now);
                }
                None => rows.gone.push(row),
            }
        }
        rows.fresh.extend(after.into_values());
        (rows.gone.len() == rows.fresh.len()).then_some(rows)
    }

    /// Undo runs backwards: it deletes the rows under fresh keys, restores those that kept theirs,
    /// and puts the gone ones back, so that no unique index is in the way.
    fn record_rekeyed(&mut self, plan: &Update, rows: Rekeyed) -> Result<(), AtError> {
        let KeyChange::Possible { kept: narrow, obstacle, .. } = &plan.keys else {
            self.log.updated(
                self.loaded,
                &plan.columns,
                &plan.maintained,
                rows.kept.0,
                rows.kept.1,
            );
            return Ok(());
        };
        if let Some(obstacle) = obstacle
            && !rows.gone.is_empty()
        {
            return Err(AtError::Refused(obstacle.clone()));
        }
        self.require_deletable(&plan.columns, rows.fresh.iter())?;
        let (columns, loaded) = (&plan.columns, self.loaded);
        self.log.deleted(loaded, columns, rows.gone);
        let (old, new) = rows.kept;
        let same = |index: &usize| narrow.contains(&columns[*index]);
        let rest: Vec<usize> = (0..columns.len()).filter(|index| !same(index)).collect();
        // Rows that have changed places differ in other columns than the assigned ones.
        let pairs = old.into_iter().zip(new);
        let (narrowed, whole): (Vec<_>, Vec<_>) =
            pairs.partition(|(old, new)| rest.iter().all(|at| old.values[*at] == new.values[*at]));
        let places: Vec<usize> = (0..columns.len()).filter(same).collect();
        let cut = |(old, new)| (cut(old, &places), cut(new, &places));
        let (old, new) = narrowed.into_iter().map(cut).unzip();
        self.log.updated(loaded, narrow, &plan.maintained, old, new);
        let (old, new) = whole.into_iter().unzip();
        self.log.updated(loaded, columns, &plan.maintained, old, new);
        self.log.inserted(loaded, columns, rows.fresh);
        Ok(())
    }

    /// Refuses a change of keys that no assignment shows: one of a trigger.
    pub(super) fn require_keys_kept(
        &self,
        columns: &[usize],
        before: &Image,
        after: &Image,
    ) -> Result<(), AtError> {
        let mut pairs = before.iter().zip(after);
        if !pairs.any(|(old, new)| self.is_respelt(columns, old, new)) {
            return Ok(());
        }
        Err(self.key_changed("by a trigger: let it leave the key as it is"))
    }

    pub(super) fn key_changed(&self, reason: &'static str) -> AtError {
        let table = &self.loaded.table;
        let column = table.columns[table.key.columns[0]].name.clone();
        AtError::Refused(StatementRefusal::KeyChanged { column, reason })
    }

    /// Whether a row took the place of one whose key is equal and not the same, such as `a` and `A`
    /// under a collation without case. An UPDATE would not bring the old spelling back.
    pub(super) fn is_respelt(&self, columns: &[usize], old: &ImageRow, new: &ImageRow) -> bool {
        let values = columns.iter().zip(old.values.iter().zip(&new.values));
        values.into_iter().any(|(column, (old, new))| {
            self.loaded.table.key.columns.contains(column) && old != new
        })
    }
}

/// The row with the values at some places alone.
fn cut(row: ImageRow, places: &[usize]) -> ImageRow {
    let values = places.iter().map(|at| row.values[*at].clone()).collect();
    ImageRow { key: row.key, values }
}
