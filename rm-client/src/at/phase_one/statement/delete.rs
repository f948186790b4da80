//! DELETE: the rows as they were, from the statement itself where the database returns them.

use handfast_rm_core::plan::{Delete, DeleteImage};

use super::several::once;
use super::{Extent, StatementRun, for_application, rows_of};
use crate::at::database::{Backend, Steps};
use crate::at::undo::image::Layout;

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn delete(&mut self, plan: &Delete) -> Result<Steps<DB>, sqlx::Error> {
        let (before, steps) = match &plan.image {
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
        self.expect_rows("DELETE", before.len(), &steps)?;
        self.log.deleted(self.loaded, &plan.columns, before);
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }
}
