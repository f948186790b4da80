//! INSERT that changes no row that exists: only an after image.

use handfast_rm_core::plan::{Insert, InsertAfter};

use super::{StatementRun, changed, rows_of};
use crate::at::database::{Backend, Steps, affected};
use crate::at::undo::image::{Image, Layout};

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn insert(&mut self, plan: &Insert) -> Result<Steps<DB>, sqlx::Error> {
        let steps = self.change(&plan.change).await?;
        let after = self.inserted_rows(plan, &steps).await?;
        let returned = plan.after == InsertAfter::Returned;
        let changed = changed::<DB>(&steps, returned);
        self.expect_rows("INSERT", after.len(), changed)?;
        self.require_deletable(&plan.columns, after.iter())?;
        self.lock_parents(&plan.columns, after.iter()).await?;
        self.log.inserted(self.loaded, &plan.columns, after);
        self.recorded();
        match plan.user_returning {
            true => Ok(steps),
            false => self.counts_of(steps, returned).await,
        }
    }

    async fn inserted_rows(
        &mut self,
        plan: &Insert,
        steps: &Steps<DB>,
    ) -> Result<Image, sqlx::Error> {
        let columns = &plan.columns;
        match &plan.after {
            InsertAfter::Returned => {
                let returned = Layout::of(columns).rows(self.loaded, rows_of::<DB>(steps))?;
                self.settled(returned, columns).await
            }
            _ if affected::<DB>(steps) == 0 => Ok(Image::new()),
            InsertAfter::ByGenerated(keys) => self.read_generated(keys, steps, columns).await,
            InsertAfter::ByValues { query, generated } => {
                let found = self.read(query, columns).await?;
                match generated {
                    // NULL or 0 was bound, for which the database has generated a number.
                    Some(keys) if found.is_empty() => {
                        self.read_generated(keys, steps, columns).await
                    }
                    Some(_) | None => Ok(found),
                }
            }
        }
    }
}
