//! INSERT that may meet rows: probes for them before, and tells afterwards which rows were
//! inserted, changed and removed.

use std::collections::HashMap;

use super::{Run, for_application, rows_of};
use crate::at::database::{Backend, Steps, affected};
use crate::at::error::AtError;
use crate::at::image::{Image, ImageRow, Layout, by_key};
use crate::at::plan::{Upsert, UpsertAfter, UpsertKind};
use crate::at::work::maintained;

/// Rows by canonical key.
type Rows = HashMap<Box<[u8]>, ImageRow>;

impl<DB: Backend> Run<'_, DB> {
    pub(super) async fn upsert(&mut self, plan: &Upsert) -> Result<Steps<DB>, sqlx::Error> {
        if plan.needs_gap_locks {
            self.require_gap_locks().await?;
        }
        let before = self.probe(plan).await?;
        let steps = self.change(&plan.change).await?;
        let after = self.rows_after(plan, &before, &steps).await?;
        self.record_upsert(plan, before, after);
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }

    /// Rows that the statement could meet, locked. On MySQL the gaps where there are none are
    /// locked too, so that nobody else can put one there.
    async fn probe(&mut self, plan: &Upsert) -> Result<Rows, sqlx::Error> {
        let mut found = Rows::new();
        for probe in &plan.probes {
            found.extend(by_key(self.read(probe, &plan.columns).await?));
        }
        Ok(found)
    }

    /// The rows that the statement inserted or may have changed, as they are after it.
    async fn rows_after(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        steps: &Steps<DB>,
    ) -> Result<Rows, sqlx::Error> {
        match &plan.after {
            UpsertAfter::Returned { inserted_flag } => {
                self.returned_rows(plan, before, steps, *inserted_flag)
            }
            UpsertAfter::Probed { generated } => {
                let mut after = self.probe(plan).await?;
                let probed: Image = before.values().cloned().collect();
                after.extend(by_key(self.read_again(&probed, &plan.columns).await?));
                if let Some(keys) = generated
                    && after.is_empty()
                {
                    after = by_key(self.read_generated(keys, steps, &plan.columns).await?);
                }
                self.expect_offered(plan, before, &after, steps)?;
                Ok(after)
            }
        }
    }

    fn returned_rows(
        &self,
        plan: &Upsert,
        before: &Rows,
        steps: &Steps<DB>,
        inserted_flag: bool,
    ) -> Result<Rows, sqlx::Error> {
        let layout = Layout { columns: &plan.columns, behind: usize::from(inserted_flag) };
        let mut after = Rows::new();
        for row in rows_of::<DB>(steps) {
            let image = layout.row(self.loaded, row)?;
            let inserted = inserted_flag && DB::flag(row, DB::width(row) - 1)?;
            if inserted_flag && inserted == before.contains_key(&image.key) {
                // A row that no probe found and that was there all the same: another transaction
                // put it there in between, and its before image is lost.
                return Err(self.rows_differ("upsert", before.len() as u64, 1).into());
            }
            after.insert(image.key.clone(), image);
        }
        if (after.len() as u64) < affected::<DB>(steps) {
            return Err(self
                .rows_differ("upsert", after.len() as u64, affected::<DB>(steps))
                .into());
        }
        Ok(after)
    }

    /// Holds the rows found after the statement against what it offered and counted.
    fn expect_offered(
        &self,
        plan: &Upsert,
        before: &Rows,
        after: &Rows,
        steps: &Steps<DB>,
    ) -> Result<(), AtError> {
        let fresh = after.keys().filter(|key| !before.contains_key(*key)).count();
        match (plan.kind, plan.rows) {
            (UpsertKind::Ignore, _) if fresh as u64 != affected::<DB>(steps) => {
                Err(self.rows_differ("INSERT IGNORE", fresh as u64, affected::<DB>(steps)))
            }
            (UpsertKind::Update | UpsertKind::Replace, Some(offered))
                if fresh + before.len() < offered =>
            {
                Err(self.rows_differ("upsert", (fresh + before.len()) as u64, offered as u64))
            }
            (UpsertKind::Ignore | UpsertKind::Update | UpsertKind::Replace, _) => Ok(()),
        }
    }

    /// Undo runs backwards: it deletes the inserted rows, restores the changed ones, and puts back
    /// the removed ones, so that no unique index is in the way.
    fn record_upsert(&mut self, plan: &Upsert, before: Rows, mut after: Rows) {
        let mut removed = Image::new();
        let (mut old, mut new) = (Image::new(), Image::new());
        for (key, row) in before {
            match after.remove(&key) {
                Some(changed) => {
                    old.push(row);
                    new.push(changed);
                }
                None if plan.kind == UpsertKind::Replace => removed.push(row),
                // Met and left alone; locked all the same, for the statement's answer relies on it.
                None => {
                    old.push(row.clone());
                    new.push(row);
                }
            }
        }
        let maintained = maintained::<DB>(self.loaded, &plan.columns);
        self.work.deleted(self.loaded, &plan.columns, removed);
        self.work.updated(self.loaded, &plan.columns, &maintained, old, new);
        self.work.inserted(self.loaded, &plan.columns, after.into_values().collect());
    }

    async fn require_gap_locks(&mut self) -> Result<(), sqlx::Error> {
        if self.work.gaps_locked {
            return Ok(());
        }
        let level = DB::isolation_level(self.connection).await?;
        let locks = ["REPEATABLE-READ", "SERIALIZABLE"].contains(&level.to_uppercase().as_str());
        if !locks {
            return Err(AtError::GapLocks { level }.into());
        }
        self.work.gaps_locked = true;
        Ok(())
    }
}
