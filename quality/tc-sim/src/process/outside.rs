//! Writers from outside, and the administrators of guards.
//!
//! A writer knows of no global and asks for no global lock: a job with connections of its own, or a
//! task of a service that has lost its XID and has connections from the service's pool. Where a
//! guard refuses it, it goes away. A row that a branch holds and that no guard protects it leaves
//! alone: a dirty write needs an operator, whom the model does not have.

use std::sync::Arc;

use super::installation::Installation;
use crate::model::database::{ConnectionPool, Database, DatabaseError, LocalTransaction};
use crate::model::values::RowId;
use crate::plan::Mode;
use crate::workload::outside::{draw_few_changes, draw_many_changes};
use crate::world::{MS, Owner, SECOND};

/// How often a writer tries a row at the end of a run before that counts as refused for ever.
const ATTEMPTS_MAX: usize = 20;

impl Installation {
    /// Starts the jobs and the administrators.
    pub(crate) fn start_outside(self: &Arc<Self>) {
        for database in self.guardable() {
            self.world.spawn(Owner::World, Arc::clone(self).run_job(Arc::clone(&database)));
            self.world.spawn(Owner::World, Arc::clone(self).administer(database));
        }
    }

    /// Returns the databases that have guards in this run.
    pub(crate) fn guardable(&self) -> Vec<Arc<Database>> {
        let has_guards = self.world.plan.modes.contains(&Mode::Guards);
        let able = self.databases.iter().filter(|it| has_guards && it.can_guard());
        able.map(Arc::clone).collect()
    }

    /// Writes rows of a database at random moments, until the workload is closed.
    async fn run_job(self: Arc<Self>, database: Arc<Database>) {
        let pool = Arc::default();
        while !self.workload.is_closed() {
            self.world.sleep(self.world.between(10 * MS, 2 * SECOND)).await;
            self.write_from_outside(&database, &pool).await;
        }
    }

    /// Changes the guard of a database's table at random moments.
    async fn administer(self: Arc<Self>, database: Arc<Database>) {
        let is_guarded = database.guard().is_some();
        let draw = if self.world.plan.is_long() { draw_many_changes } else { draw_few_changes };
        let changes = self.world.draw(|random| draw(random, is_guarded));
        for change in changes {
            self.world.sleep(change.after).await;
            if self.workload.is_closed() {
                return;
            }
            let changed = match change.puts_on {
                true => database.put_guard_on().await,
                false => database.take_guard_away().await,
            };
            if let Err(error) = changed {
                self.world.log(Owner::World, || format!("guard not changed: {error:?}"));
            }
        }
    }

    /// Writes rows of a database in one statement, over a connection of the pool.
    pub(crate) async fn write_from_outside(
        self: &Arc<Self>,
        database: &Arc<Database>,
        pool: &Arc<ConnectionPool>,
    ) {
        let changes = self.world.draw(|random| self.workload.draw_outside(random, database.index));
        let Ok(local) = database.begin_in(pool).await else { return };
        let written = self.write_rows(database, local, &changes).await;
        self.world.log(Owner::World, || {
            let rows: Vec<u32> = changes.iter().map(|(RowId(row), _)| *row).collect();
            format!(
                "write from outside of rows {rows:?} of database {}: {written:?}",
                database.index
            )
        });
    }

    async fn write_rows(
        &self,
        database: &Database,
        local: LocalTransaction,
        changes: &[(RowId, i64)],
    ) -> Result<(), DatabaseError> {
        let world = &self.world;
        let written = local.update_from_outside(changes).await;
        // Until its COMMIT or ROLLBACK it keeps its locks, also those of a statement that failed.
        let pause = world.draw(|random| match random.happens(700) {
            true => random.between(0, 5 * MS),
            false => random.between(0, 500 * MS),
        });
        world.sleep(pause).await;
        if let Err(error) = written {
            local.roll_back().await?;
            return Err(error);
        }
        let is_unprotected = |(row, _): &(RowId, i64)| {
            self.judge.oracle().ledger().is_unprotected(database.index, *row)
        };
        if changes.iter().any(is_unprotected) {
            world.log(Owner::World, || "gives way to a branch that no guard protects".to_owned());
            return local.roll_back().await;
        }
        local.commit().await
    }

    /// Writes every row of which a guard still keeps a key, when all has ended: none may be
    /// refused. Returns the rows that could not be written.
    pub(crate) async fn write_kept_rows(&self) -> Vec<String> {
        let mut refused = Vec::new();
        for database in self.guardable() {
            for (row, _) in database.kept_rows() {
                if let Err(error) = self.write_row(&database, row).await {
                    let database = database.index;
                    refused.push(format!(
                        "row {} of database {database} cannot be written from outside: {error:?}",
                        row.0
                    ));
                }
            }
        }
        refused
    }

    async fn write_row(&self, database: &Arc<Database>, row: RowId) -> Result<(), DatabaseError> {
        let mut written = Ok(());
        for _ in 0..ATTEMPTS_MAX {
            let local = database.begin().await?;
            written = local.update_from_outside(&[(row, 1)]).await;
            if written.is_ok() {
                return local.commit().await;
            }
            local.roll_back().await?;
            self.world.sleep(SECOND).await;
        }
        written
    }
}
