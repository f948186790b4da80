//! UPDATE: before image with row locks, change, after image; in one statement where the database
//! returns both.

use super::{Extent, Run, for_application, rows_of};
use crate::at::database::{Backend, Steps, affected};
use crate::at::image::{Image, Layout, align};
use crate::at::plan::{Change, Query, Update, UpdateImage};

impl<DB: Backend> Run<'_, DB> {
    pub(super) async fn update(&mut self, plan: &Update) -> Result<Steps<DB>, sqlx::Error> {
        let (before, after, steps) = match &plan.image {
            UpdateImage::Together(query) => self.update_together(query, &plan.columns).await?,
            UpdateImage::Read { before, change, returns_after } => {
                let before = self.read(before, &plan.columns).await?;
                let extent = self.extent_of(plan, &before);
                let (after, columns) = (*returns_after, &plan.columns);
                self.update_imaged(before, change, extent, after, columns).await?
            }
        };
        self.work.updated(self.loaded, &plan.columns, &plan.maintained, before, after);
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }

    async fn update_together(
        &mut self,
        query: &Query,
        columns: &[usize],
    ) -> Result<(Image, Image, Steps<DB>), sqlx::Error> {
        let steps = self.change(query).await?;
        let rows = rows_of::<DB>(&steps);
        let (before, after) = Layout::of(columns).rows_twice(self.loaded, rows)?;
        self.expect_rows("UPDATE", before.len(), &steps)?;
        let after = self.settled(after, columns).await?;
        self.aligned(before, after, steps)
    }

    /// A trigger and a RETURNING of the application are evaluated when the row is written; that
    /// they leave nothing when they fail is not relied on.
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
        self.expect_rows("UPDATE", before.len(), &steps)?;
        let after = if before.is_empty() {
            Vec::new()
        } else if returns_after {
            let returned = Layout::of(columns).rows(self.loaded, rows_of::<DB>(&steps))?;
            self.settled(returned, columns).await?
        } else {
            self.read_again(&before, columns).await?
        };
        self.aligned(before, after, steps)
    }

    fn aligned(
        &self,
        before: Image,
        after: Image,
        steps: Steps<DB>,
    ) -> Result<(Image, Image, Steps<DB>), sqlx::Error> {
        let (imaged, changed) = (before.len() as u64, affected::<DB>(&steps));
        let after = align(&before, after);
        let after = after.ok_or_else(|| self.rows_differ("UPDATE", imaged, changed))?;
        Ok((before, after, steps))
    }
}
