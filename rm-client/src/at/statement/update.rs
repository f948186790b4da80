//! UPDATE: before image with row locks, change, after image.

use super::{Run, for_application, rows_of};
use crate::at::database::{Backend, Steps, affected};
use crate::at::image::{Layout, align};
use crate::at::plan::Update;

impl<DB: Backend> Run<'_, DB> {
    pub(super) async fn update(&mut self, plan: &Update) -> Result<Steps<DB>, sqlx::Error> {
        let before = self.read(&plan.before, &plan.columns).await?;
        let steps = self.change_rows(&plan.change, &before, &plan.columns).await?;
        self.expect_rows("UPDATE", before.len(), &steps)?;
        let after = if before.is_empty() {
            Vec::new()
        } else if plan.returns_after {
            let returned = Layout::of(&plan.columns).rows(self.loaded, rows_of::<DB>(&steps))?;
            self.settled(returned, &plan.columns).await?
        } else {
            self.read_again(&before, &plan.columns).await?
        };
        let (imaged, changed) = (before.len() as u64, affected::<DB>(&steps));
        let after =
            align(&before, after).ok_or_else(|| self.rows_differ("UPDATE", imaged, changed))?;
        self.work.updated(self.loaded, &plan.columns, &plan.maintained, before, after);
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }
}
