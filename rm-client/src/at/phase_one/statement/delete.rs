//! DELETE: the rows as they were, from the statement itself where the database returns them.

use handfast_rm_core::plan::{Change, Delete, DeleteImage};

use super::along::Own;
use super::several::once;
use super::{Extent, StatementRun, changed, for_application, rows_of};
use crate::at::database::{Backend, Steps};
use crate::at::undo::image::{Image, Layout};

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn delete(&mut self, plan: &Delete) -> Result<Steps<DB>, sqlx::Error> {
        let (before, steps) = match &plan.image {
            DeleteImage::Read { before, change } if plan.acts => {
                let before = self.read_before(before, &plan.columns, plan.judged).await?;
                return self.delete_along(plan, once(change, before), change).await;
            }
            DeleteImage::Returned(query) => {
                let steps = self.change(query).await?;
                (Layout::of(&plan.columns).rows(self.loaded, rows_of::<DB>(&steps))?, steps)
            }
            DeleteImage::Read { before, change } => {
                let before = self.read_before(before, &plan.columns, plan.judged).await?;
                let before = once(change, before);
                let steps = self.change_rows(change, Extent::Any, &before, &plan.columns).await?;
                (before, steps)
            }
        };
        let returned = plan.user_returning || matches!(plan.image, DeleteImage::Returned(_));
        let changed = changed::<DB>(&steps, returned);
        self.expect_rows("DELETE", before.len(), changed)?;
        self.log.deleted(self.loaded, &plan.columns, before);
        self.recorded();
        match plan.user_returning {
            true => Ok(steps),
            false => self.counts_of(steps, returned).await,
        }
    }

    /// Deletes rows along with those that foreign keys delete or change.
    async fn delete_along(
        &mut self,
        plan: &Delete,
        before: Image,
        change: &Change,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let mut along = self.along(Own::Deleted, &plan.columns, before, &plan.reads).await?;
        let own = along.own_rows();
        let steps = self.change_rows(change, Extent::Any, own, &plan.columns).await?;
        let changed = changed::<DB>(&steps, plan.user_returning);
        self.went_along("DELETE", &mut along, Some(changed)).await?;
        self.record_along(along, Own::Deleted);
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }
}
