//! UPDATE: before image with row locks, change, after image; in one statement where the database
//! returns both, and change and after image in one call where it takes that.

use handfast_rm_core::plan::undo_sql::{self, RowLocking};
use handfast_rm_core::plan::{Change, KeyChange, Query, Update, UpdateImage};

use super::several::once;
use super::{Extent, StatementRun, for_application, rows_of};
use crate::at::database::bind::bind_keys;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{Backend, Steps, affected};
use crate::at::phase_one::composed::only_key;
use crate::at::phase_one::compound;
use crate::at::phase_one::row_locks::RowLockMode;
use crate::at::undo::image::{Image, Layout, align, values_of};

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn update(&mut self, plan: &Update) -> Result<Steps<DB>, sqlx::Error> {
        if let Some(key) = self.unimaged(plan) {
            return self.update_unimaged(key).await;
        }
        let (before, after, steps) = match &plan.image {
            UpdateImage::Together(query) => self.update_together(query, &plan.columns).await?,
            UpdateImage::Read { before, change, returns_after } => {
                if plan.keys != KeyChange::Never {
                    return self.update_keys(plan, before, change, *returns_after).await;
                }
                let before = self.read_before(before, &plan.columns, plan.judged).await?;
                let before = once(change, before);
                if !self.needs_after(plan) {
                    return self.update_unseen(plan, change, before).await;
                }
                if !returns_after && let Some(query) = self.merged(change, &before) {
                    return self.update_merged(plan, query, before).await;
                }
                let extent = self.extent_of(plan, &before);
                let (after, columns) = (*returns_after, &plan.columns);
                self.update_imaged(before, change, extent, after, columns).await?
            }
        };
        self.updated(plan, before, after, steps).await
    }

    /// The key of the only row that the statement can change, if that is all there is to know of
    /// it: it is never undone, and nothing but the row is locked for it.
    fn unimaged(&self, plan: &Update) -> Option<Box<[u8]>> {
        let is_plain = !(plan.judged || plan.user_returning || self.needs_after(plan));
        let begins_alone = !self.begins || compound::takes(self.query.sql().as_str());
        if !self.log.is_checked || !is_plain || !begins_alone || self.mark.is_some() {
            return None;
        }
        only_key(plan, &self.query)
    }

    /// Runs the application's own text.
    async fn update_unimaged(&mut self, key: Box<[u8]>) -> Result<Steps<DB>, sqlx::Error> {
        let call = if std::mem::take(&mut self.begins) {
            self.query.with_text(&compound::begin_and::<DB>(self.query.sql().as_str()))
        } else {
            self.query.clone()
        };
        let steps = self.change_within(Extent::OneRow, call).await?;
        let steps = compound::last_answer::<DB>(steps);
        if affected::<DB>(&steps) > 0 {
            self.log.lock(self.loaded, RowLockMode::Exclusive, [key]);
        }
        self.recorded();
        Ok(steps)
    }

    async fn updated(
        &mut self,
        plan: &Update,
        before: Image,
        after: Image,
        steps: Steps<DB>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        self.lock_changed_parents(&plan.columns, &before, &after).await?;
        if plan.deltas.is_empty() {
            self.log.updated(self.loaded, &plan.columns, &plan.maintained, before, after);
        } else {
            self.record_deltas(plan, before, after)?;
        }
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }

    /// The change, if it and the after image can go out in one call: that of one row, so that few
    /// texts have to be prepared.
    fn merged<'c>(&self, change: &'c Change, before: &Image) -> Option<&'c Query> {
        match change {
            Change::ByPredicate(query) if self.merges && before.len() == 1 => {
                compound::takes(&query.text).then_some(query)
            }
            Change::ByPredicate(_) | Change::ByKey(_) => None,
        }
    }

    /// Whether the rows are of interest as they are after a change: for its undo, because they may
    /// refer to other rows than before, or because a trigger may give them other keys.
    fn needs_after(&self, plan: &Update) -> bool {
        let table = &self.loaded.table;
        let is_imaged = |column: &usize| plan.columns.contains(column);
        let may_refer = || table.references.iter().any(|it| it.columns.iter().any(is_imaged));
        !self.log.is_checked || !plan.deltas.is_empty() || !table.triggers.is_empty() || may_refer()
    }

    /// Runs a change after which nothing looks at its rows.
    async fn update_unseen(
        &mut self,
        plan: &Update,
        change: &Change,
        before: Image,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let extent = self.extent_of(plan, &before);
        let steps = self.change_rows(change, extent, &before, &plan.columns).await?;
        self.expect_rows("UPDATE", before.len(), affected::<DB>(&steps))?;
        let after = before.clone();
        self.updated(plan, before, after, steps).await
    }

    async fn update_merged(
        &mut self,
        plan: &Update,
        change: &Query,
        before: Image,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let columns = &plan.columns;
        let table = &self.loaded.table;
        let after =
            undo_sql::select_by_keys(DB::DIALECT, table, columns, before.len(), RowLocking::None);
        let mut call = self.query.with_text(&compound::change_and_read::<DB>(&change.text, &after));
        let arguments = call.arguments.get_or_insert_default();
        bind_keys(arguments, self.loaded, values_of(&before), columns)?;
        let steps = self.change_merged(call, &before, columns).await?;
        self.expect_rows("UPDATE", before.len(), affected::<DB>(&steps))?;
        let after = Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))?;
        let (before, after, steps) = self.aligned(columns, before, after, steps)?;
        self.updated(plan, before, after, steps).await
    }

    /// Runs a change and the read behind it in one call. An error does not tell which of the two
    /// has failed, so the rows are then read again.
    async fn change_merged(
        &mut self,
        call: BoundQuery<DB>,
        before: &Image,
        columns: &[usize],
    ) -> Result<Steps<DB>, sqlx::Error> {
        let was_half_recorded = self.log.half_recorded;
        self.log.half_recorded = true;
        let result = DB::steps(self.connection, call).await;
        if let Err(error) = &result
            && error.as_database_error().is_some()
            && !DB::ends_transaction(error)
        {
            // The first error is the one to report; without an answer the mark stays.
            let unchanged = self.read_by_keys(before, columns, RowLocking::ForUpdate).await;
            if unchanged.is_ok_and(|now| now == *before) {
                self.log.half_recorded = was_half_recorded;
            }
        }
        result
    }

    async fn update_together(
        &mut self,
        query: &Query,
        columns: &[usize],
    ) -> Result<(Image, Image, Steps<DB>), sqlx::Error> {
        let steps = self.change(query).await?;
        let rows = rows_of::<DB>(&steps);
        let (before, after) = Layout::of(columns).rows_twice(self.loaded, rows)?;
        self.expect_rows("UPDATE", before.len(), affected::<DB>(&steps))?;
        let after = self.settled(after, columns).await?;
        self.aligned(columns, before, after, steps)
    }

    /// Returns how much the change does before it can fail. A trigger, or a RETURNING of the
    /// application, is evaluated when the row is written, and may fail after that.
    fn extent_of(&self, plan: &Update, before: &Image) -> Extent {
        let is_plain = self.loaded.table.triggers.is_empty() && !plan.user_returning;
        if before.len() <= 1 && is_plain { Extent::OneRow } else { Extent::Any }
    }

    async fn update_imaged(
        &mut self,
        before: Image,
        change: &Change,
        extent: Extent,
        returns_after: bool,
        columns: &[usize],
    ) -> Result<(Image, Image, Steps<DB>), sqlx::Error> {
        let steps = self.change_rows(change, extent, &before, columns).await?;
        self.expect_rows("UPDATE", before.len(), affected::<DB>(&steps))?;
        let after = if before.is_empty() {
            Vec::new()
        } else if returns_after {
            let returned = Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))?;
            self.settled(returned, columns).await?
        } else {
            self.read_again(&before, columns).await?
        };
        self.aligned(columns, before, after, steps)
    }

    fn aligned(
        &self,
        columns: &[usize],
        before: Image,
        after: Image,
        steps: Steps<DB>,
    ) -> Result<(Image, Image, Steps<DB>), sqlx::Error> {
        let (imaged, changed) = (before.len() as u64, affected::<DB>(&steps));
        let after = align(&before, after);
        let after = after.ok_or_else(|| self.rows_differ("UPDATE", imaged, changed))?;
        self.require_keys_kept(columns, &before, &after)?;
        Ok((before, after, steps))
    }
}
