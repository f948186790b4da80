//! The knowledge of a process of guarded tables, and the work it does for them:
//! `at/guarded/mod.rs`, and of `at/database/catalogue.rs` that a description is trusted for a
//! minute.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ClientProcess;
use super::at::AtResource;
use crate::model::database::{Database, DatabaseError, LocalTransaction};
use crate::model::values::UndoKey;
use crate::plan::Mode;
use crate::world::{SECOND, World};

/// How long a table's description is trusted, as `TABLE_TTL` of the product.
const DESCRIPTION_TTL: i64 = 60 * SECOND.cast_signed();
/// How often what is left of ended branches is looked for, as `SWEEP_EVERY` of the product.
const SWEEP_EVERY: u64 = 3_600 * SECOND;

/// The knowledge of a process of the guard of a database's table.
#[derive(Debug, Default)]
pub(super) struct GuardKnowledge {
    /// Whether anything is guarded in this run.
    has_guards: bool,
    description: Mutex<Option<Description>>,
    /// Whether a description has ever shown a guard.
    has_seen_guard: AtomicBool,
    sweep_due: Mutex<u64>,
}

/// A table's description.
#[derive(Clone, Copy, Debug)]
struct Description {
    /// In microseconds since the start of the run: a process may be older than that.
    loaded_at: i64,
    is_guarded: bool,
}

impl GuardKnowledge {
    /// A process that is there at the start has run before, and has a description of some age.
    pub(super) fn new(world: &World, database: &Database) -> Self {
        if !world.plan.modes.contains(&Mode::Guards) || !database.can_guard() {
            return Self::default();
        }
        let knowledge = Self { has_guards: true, ..Self::default() };
        if world.now() == 0 {
            let loaded_at = -world.between(0, DESCRIPTION_TTL.unsigned_abs()).cast_signed();
            let is_guarded = database.guard().is_some_and(|guard| guard.enabled_at <= loaded_at);
            knowledge.learn(Description { loaded_at, is_guarded });
        }
        knowledge
    }

    fn learn(&self, description: Description) {
        *self.description() = Some(description);
        if description.is_guarded {
            self.has_seen_guard.store(true, Ordering::Relaxed);
        }
    }

    fn description(&self) -> MutexGuard<'_, Option<Description>> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtResource {
    /// Returns whether the table is guarded, by a description that may be a minute old.
    pub(super) async fn is_guarded(
        &self,
        world: &World,
        local: &LocalTransaction,
    ) -> Result<bool, DatabaseError> {
        let now = world.now().cast_signed();
        let known = *self.guards.description();
        match known.filter(|known| now - known.loaded_at < DESCRIPTION_TTL) {
            Some(known) => Ok(known.is_guarded),
            None => self.is_guarded_now(world, local).await,
        }
    }

    /// Returns whether the table is guarded as the catalogue says at this moment.
    pub(super) async fn is_guarded_now(
        &self,
        world: &World,
        local: &LocalTransaction,
    ) -> Result<bool, DatabaseError> {
        if !self.guards.has_guards {
            return Ok(false);
        }
        let loaded_at = world.now().cast_signed();
        let is_guarded = local.is_table_guarded().await?;
        self.guards.learn(Description { loaded_at, is_guarded });
        Ok(is_guarded)
    }
}

impl ClientProcess {
    /// Starts to delete what guards keep of branches that have ended. Nothing waits for it: without
    /// an undo row it holds off no write. It is not repeated on failure.
    pub(super) fn release_guarded(
        self: &Arc<Self>,
        resource: &Arc<AtResource>,
        branches: Vec<UndoKey>,
    ) {
        if !resource.guards.has_seen_guard.load(Ordering::Relaxed) {
            return;
        }
        let (process, resource) = (Arc::clone(self), Arc::clone(resource));
        self.world.spawn(self.owner(), async move {
            if let Err(error) = delete_kept(&resource, &branches).await {
                process.world.log(process.owner(), || format!("kept rows stay: {error:?}"));
            }
        });
    }

    /// Deletes what is left of ended branches, with the first commit of a process and hourly.
    pub(super) async fn sweep_guarded(self: &Arc<Self>, resource: &AtResource) {
        if !resource.guards.has_guards || !resource.guards.take_sweep(self.world.now()) {
            return;
        }
        if let Err(error) = sweep(resource).await {
            self.world.log(self.owner(), || format!("kept rows not swept: {error:?}"));
        }
    }
}

impl GuardKnowledge {
    /// Returns whether a sweep is due, and puts the next one off.
    fn take_sweep(&self, now: u64) -> bool {
        let mut due = self.sweep_due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = *due <= now;
        if is_due {
            *due = now + SWEEP_EVERY;
        }
        is_due
    }
}

async fn sweep(resource: &AtResource) -> Result<(), DatabaseError> {
    let local = resource.database.begin_in(&resource.connections).await?;
    let left_over = local.find_left_over().await?;
    local.delete_kept(&left_over).await?;
    local.commit().await
}

async fn delete_kept(resource: &AtResource, branches: &[UndoKey]) -> Result<(), DatabaseError> {
    let local = resource.database.begin_in(&resource.connections).await?;
    local.delete_kept(branches).await?;
    local.commit().await
}
