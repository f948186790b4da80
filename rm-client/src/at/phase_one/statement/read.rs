//! Reads whose rows count for other globals.

use handfast_rm_core::plan::{JoinedRead, LockMode, LockingRead, Query, StatementRefusal};

use super::{StatementRun, rows_of};
use crate::at::database::{Backend, LoadedTable, Steps};
use crate::at::error::AtError;
use crate::at::phase_one::row_locks::RowLockMode;
use crate::at::undo::image::key_of;

impl<DB: Backend> StatementRun<'_, DB> {
    /// Runs the read and notes its rows: to be locked with the branch's registration, or, for a
    /// globally committed read, to be free of other globals' locks.
    pub(super) async fn locking_read(
        &mut self,
        plan: &LockingRead,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let steps = self.lock_rows_of(&plan.query).await?;
        let table = self.loaded.table.full_name();
        let mut keys = Vec::new();
        for row in rows_of::<DB>(&steps) {
            let width = DB::width(row);
            keys.push(key_of::<DB>(&table, row, width - plan.key_columns..width)?);
        }
        self.note(self.loaded, plan.mode, keys);
        Ok(steps)
    }

    /// The same for a read of several tables, or of groups of rows.
    pub(super) async fn joined_read(
        &mut self,
        plan: &JoinedRead,
    ) -> Result<Steps<DB>, sqlx::Error> {
        if plan.needs_gap_locks {
            self.require_gap_locks().await?;
        }
        if let Some(keys) = &plan.keys {
            let read = self.lock_rows_of(keys).await?;
            self.note_parts(plan, &read, |_, _| 0)?;
            return self.lock_rows_of(&plan.query).await;
        }
        let steps = self.lock_rows_of(&plan.query).await?;
        self.note_parts(plan, &steps, |row, ours| DB::width(row) - ours)?;
        Ok(steps)
    }

    async fn lock_rows_of(&mut self, query: &Query) -> Result<Steps<DB>, sqlx::Error> {
        DB::steps(self.connection, self.bound(query)).await.map_err(|error| {
            if DB::refuses_row_locks(&error) { no_row_locks().into() } else { error }
        })
    }

    /// Notes the rows whose key texts stand from a place on that depends on how many they are.
    fn note_parts(
        &mut self,
        plan: &JoinedRead,
        steps: &Steps<DB>,
        start: impl Fn(&DB::Row, usize) -> usize,
    ) -> Result<(), sqlx::Error> {
        let ours = plan.parts.iter().map(|part| part.key_columns).sum();
        let mut before = 0;
        for part in &plan.parts {
            let loaded = &*self.tables[part.table];
            let mut keys = Vec::new();
            for row in rows_of::<DB>(steps) {
                let first = start(row, ours) + before;
                // An outer join has no row of this table here.
                if DB::text(row, first)?.is_some() {
                    let texts = first..first + part.key_columns;
                    keys.push(key_of::<DB>(&loaded.table.full_name(), row, texts)?);
                }
            }
            self.note(loaded, part.mode, keys);
            before += part.key_columns;
        }
        Ok(())
    }

    fn note(&mut self, loaded: &LoadedTable<DB>, mode: LockMode, keys: Vec<Box<[u8]>>) {
        match mode {
            LockMode::Exclusive => self.log.lock(loaded, RowLockMode::Exclusive, keys),
            LockMode::Shared => self.log.lock(loaded, RowLockMode::Shared, keys),
            LockMode::Committed => self.log.wait_for(loaded, keys),
        }
    }
}

/// Maps a refusal that only the database can know of, such as for a function that gives several
/// rows.
fn no_row_locks() -> AtError {
    let reason = "the database locks no rows of it, since it computes over a window or calls a \
                  function that gives several rows; read the rows first and compute from them";
    AtError::Refused(StatementRefusal::LockingRead { reason })
}
