//! Reads whose rows count for other globals.

use handfast_rm_core::plan::{LockMode, LockingRead, StatementRefusal};

use super::{StatementRun, rows_of};
use crate::at::database::{Backend, Steps};
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
        let steps = DB::steps(self.connection, self.bound(&plan.query)).await.map_err(|error| {
            if DB::refuses_row_locks(&error) { no_row_locks().into() } else { error }
        })?;
        let table = self.loaded.table.full_name();
        let mut keys = Vec::new();
        for row in rows_of::<DB>(&steps) {
            let width = DB::width(row);
            keys.push(key_of::<DB>(&table, row, width - plan.key_columns..width)?);
        }
        match plan.mode {
            LockMode::Exclusive => self.log.lock(self.loaded, RowLockMode::Exclusive, keys),
            LockMode::Shared => self.log.lock(self.loaded, RowLockMode::Shared, keys),
            LockMode::Committed => self.log.wait_for(self.loaded, keys),
        }
        Ok(steps)
    }
}

/// Maps a refusal that only the database can know of, such as for a function that gives several
/// rows.
fn no_row_locks() -> AtError {
    let reason = "the database locks no rows of it, since it computes over a window or calls a \
                  function that gives several rows; read the rows first and compute from them";
    AtError::Refused(StatementRefusal::LockingRead { reason })
}
