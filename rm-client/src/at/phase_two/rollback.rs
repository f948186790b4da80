//! Rolls back one branch: puts its rows back in one local transaction, or finds them changed by
//! others and touches nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use handfast_proto::v1::{PhaseTwoBranch, Refused, Resolution};
use sqlx::pool::PoolConnection;

use super::load_table::load_table;
use super::obstacle::Obstacle;
use super::report;
use super::restore::{Restore, RestoreMode};
use super::survey::Survey;
use crate::at::crash_point::crash_point;
use crate::at::database::begin::acquire;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{AtDatabase, Backend, LoadedTable};
use crate::at::database_wait::reported;
use crate::at::guarded::{self, Mark};
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::CommitPossibility;
use crate::at::undo::log::{UndoItem, UndoKind, UndoLog};
use crate::at::undo::table::{self as undo_table, BranchEvents, Found};
use crate::outbox;

/// The result of a rollback.
#[derive(Debug)]
pub(crate) enum Restored {
    /// The rows are as they were before the branch, now or already.
    Done,
    /// Only an operator can decide how to go on. Nothing was changed.
    Refused(Refused),
}

/// How often a guard row may lose the race against a local transaction that commits just then.
/// Usually it loses once at most, since the undo row of the winner stays.
pub(super) const RACES_MAX: usize = 3;

/// Rolls a branch back. Idempotent: a branch without undo row is rolled back already, or has not
/// committed yet; unless it has ended here, a guard row then keeps it from committing later.
///
/// # Errors
/// An error that another attempt may cure.
pub(crate) async fn roll_back<DB: AtDatabase>(
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
) -> Result<Restored, sqlx::Error> {
    let mut restoring = Restoring { connection: acquire(&shared.pool).await?, is_as_it_was: false };
    let undo = on_connection::<DB>(&mut restoring.connection, shared, branch);
    let result = reported(shared, &branch.xid, undo).await;
    restoring.is_as_it_was = result.is_ok();
    match result.map_err(Obstacle::from) {
        Ok(restored) => Ok(restored),
        Err(Obstacle::Refused { error, rows }) => {
            tracing::warn!(
                xid = branch.xid,
                branch = branch.branch_id,
                error,
                "branch needs an operator"
            );
            Ok(Restored::Refused(Refused { error, rows, ..Refused::default() }))
        }
        Err(Obstacle::Database(error)) => Err(error),
    }
}

/// A connection that is set to other modes and another time zone while rows are put back.
pub(super) struct Restoring<DB: AtDatabase> {
    pub(super) connection: PoolConnection<DB>,
    pub(super) is_as_it_was: bool,
}

impl<DB: AtDatabase> Drop for Restoring<DB> {
    /// Closes the connection if its settings were not reset, such as when the rollback is cut off.
    fn drop(&mut self) {
        if !self.is_as_it_was {
            self.connection.close_on_drop();
        }
    }
}

async fn on_connection<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
) -> Result<Restored, sqlx::Error> {
    let mut restored = None;
    for _ in 0..RACES_MAX {
        // In each round: MySQL takes the isolation level for one transaction alone.
        send_all::<DB>(connection, DB::UNDO_BEFORE).await?;
        restored = attempt::<DB>(connection, shared, branch).await?;
        send_all::<DB>(connection, DB::UNDO_AFTER).await?;
        if restored.is_some() {
            break;
        }
    }
    restored.ok_or_else(|| sqlx::Error::Protocol("undo row neither there nor absent".to_owned()))
}

pub(super) async fn send_all<DB: Backend>(
    connection: &mut DB::Connection,
    texts: &[&str],
) -> Result<(), sqlx::Error> {
    for text in texts {
        DB::steps(connection, BoundQuery::plain((*text).to_owned())).await?;
    }
    Ok(())
}

/// Runs one local transaction. Returns `None` if the undo row was committed between the search for
/// it and the guard.
async fn attempt<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
) -> Result<Option<Restored>, sqlx::Error> {
    let (xid, id) = (branch.xid.as_str(), branch.branch_id);
    // Before the search for its undo row: a branch that has ended by then has its row in place.
    let possibility = shared.branches.commit_possibility(id);
    let mut local = DB::begin_on(connection).await?;
    send_all::<DB>(&mut local, DB::UNDO_INSIDE).await?;
    let committed = match undo_table::find::<DB>(&mut local, xid, id).await? {
        Some(Found::Guard) => return Ok(Some(Restored::Done)),
        Some(Found::Log { log, time_zone, events }) => Committed { log, time_zone, events },
        // Undone before, or never committed: either way it is as it was, and stays so.
        None if possibility == CommitPossibility::Impossible => return Ok(Some(Restored::Done)),
        // Only a committed branch is refused and then resolved, so this call is a repeat.
        None if branch.resolution() != Resolution::None => return Ok(Some(Restored::Done)),
        None => {
            let guarded = undo_table::insert_guard::<DB>(&mut local, xid, id).await?;
            // The guard row bars a late local transaction only once it is committed, so the report
            // of success comes after.
            local.commit().await?;
            if guarded {
                shared.branches.guarded(xid, id);
            }
            return Ok(guarded.then_some(Restored::Done));
        }
    };
    let obstacle = match undo::<DB>(&mut local, shared, branch, &committed).await {
        Ok(()) => {
            crash_point("in-phase-two-before-commit");
            crash_point("in-rollback-before-commit");
            // A deferred foreign key is checked only here.
            let ended = local.commit().await;
            crash_point("after-phase-two-commit");
            ended.map_err(Obstacle::from).err()
        }
        Err(obstacle @ Obstacle::Refused { .. }) => {
            // Before the report is made, which shows operators the rows as they are without this
            // attempt.
            local.rollback().await?;
            Some(obstacle)
        }
        Err(Obstacle::Database(error)) => return Err(error),
    };
    match obstacle {
        None => {
            // An operator who leaves the rows is answered without a look at their tables.
            let is_left = branch.resolution() == Resolution::AcceptCurrent;
            if is_left || shared.catalogue.knows_guards() {
                shared.guarded_leftovers.delete(xid, id);
            }
            Ok(Some(Restored::Done))
        }
        Some(Obstacle::Database(error)) => Err(error),
        Some(Obstacle::Refused { error, rows }) => {
            let error = guarded::with_notes::<DB>(connection, shared, (xid, id), error).await;
            tracing::warn!(xid, branch = id, error, "branch needs an operator");
            let refused = Refused { error, rows, ..Refused::default() };
            let refused = report::<DB>(connection, shared, branch, &committed, refused).await;
            Ok(Some(Restored::Refused(refused)))
        }
    }
}

/// The undo row of a branch that has committed locally.
struct Committed {
    log: Vec<u8>,
    time_zone: Option<String>,
    events: BranchEvents,
}

/// Undoes a branch within a local transaction: its rows, its events, its undo row.
async fn undo<DB: AtDatabase>(
    local: &mut DB::Connection,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
    committed: &Committed,
) -> Result<(), Obstacle> {
    let (xid, id) = (branch.xid.as_str(), branch.branch_id);
    // HELD-UNDO: without the undo row of its branch an event would count as committed.
    match (committed.events, branch.resolution()) {
        (BranchEvents::None, _) => {}
        // The rows stay, so the event is true. The missing undo row alone would not release it: a
        // call from before the operator's answer may still put a guard row there.
        (BranchEvents::Held, Resolution::AcceptCurrent) => {
            outbox::release_held::<DB>(local, xid, id).await?;
        }
        (
            BranchEvents::Held,
            Resolution::None | Resolution::RestoreClean | Resolution::ForceBefore,
        ) => {
            outbox::remove_held::<DB>(local, xid, id).await?;
        }
    }
    // MySQL shows a TIMESTAMP in the session's zone, and the images hold what was shown then.
    if let Some(time_zone) = &committed.time_zone {
        undo_table::set_time_zone::<DB>(local, time_zone).await?;
    }
    // Killed before COMMIT, rows, events and undo row are all as they were, and the next call
    // begins again. Killed after it, the next call finds no undo row.
    restore::<DB>(local, shared, branch, &committed.log).await?;
    Ok(undo_table::delete::<DB>(local, xid, id).await?)
}

async fn restore<DB: AtDatabase>(
    connection: &mut DB::Connection,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
    log: &[u8],
) -> Result<(), Obstacle> {
    if branch.resolution() == Resolution::AcceptCurrent {
        return Ok(());
    }
    let log = UndoLog::decode(log).map_err(|error| Obstacle::refused(error.to_string()))?;
    let mut mode = match branch.resolution() {
        Resolution::RestoreClean => {
            // As they are now, and locked: not as they were when the branch was refused.
            RestoreMode::Clean(Survey::<DB>::take(connection, shared, &log).await?.dirty())
        }
        Resolution::ForceBefore => RestoreMode::Force,
        Resolution::None | Resolution::AcceptCurrent => RestoreMode::Whole,
    };
    if matches!(mode, RestoreMode::Clean(_)) {
        return restore_clean::<DB>(connection, shared, branch, &log, mode).await;
    }
    put_back::<DB>(connection, shared, &log, &mut mode).await
}

/// Puts the clean rows back. Rows of others that refer to a row are seen only at the undo of its
/// INSERT, when later changes of the row are undone already. Then the restore begins again, with
/// that row among those that are left. Each round leaves more rows, so the loop ends.
async fn restore_clean<DB: AtDatabase>(
    connection: &mut DB::Connection,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
    log: &UndoLog,
    mut mode: RestoreMode,
) -> Result<(), Obstacle> {
    loop {
        let known = mode.left();
        send_all::<DB>(connection, &["SAVEPOINT hf_clean"]).await?;
        put_back::<DB>(connection, shared, log, &mut mode).await?;
        let (xid, id, left) = (branch.xid.as_str(), branch.branch_id, mode.left());
        if left == known {
            tracing::info!(xid, branch = id, left, "clean rows put back, dirty ones left");
            return Ok(());
        }
        let again = ["ROLLBACK TO SAVEPOINT hf_clean", "RELEASE SAVEPOINT hf_clean"];
        send_all::<DB>(connection, &again).await?;
    }
}

/// Undoes all items.
async fn put_back<DB: AtDatabase>(
    connection: &mut DB::Connection,
    shared: &Arc<ResourceState<DB>>,
    log: &UndoLog,
    mode: &mut RestoreMode,
) -> Result<(), Obstacle> {
    let (mut tables, mut marked) = (HashMap::new(), false);
    // The newest change first: each item finds the rows as it left them.
    for item in log.items.iter().rev() {
        let loaded: &LoadedTable<DB> = match tables.entry(item.table_name()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut loaded = load_table::<DB>(connection, shared, place.key()).await?;
                let removes = |item: &UndoItem| {
                    item.kind == UndoKind::Insert && *place.key() == item.table_name()
                };
                // MariaDB takes long to tell who refers to a table, so only an undo that deletes
                // rows asks.
                if log.items.iter().any(removes) {
                    shared.catalogue.load_referrers(connection, &mut loaded).await?;
                }
                if loaded.is_guarded && !std::mem::replace(&mut marked, true) {
                    guarded::mark::<DB>(connection, &Mark::Pass).await?;
                }
                place.insert(loaded)
            }
        };
        let columns = item.columns_in(loaded)?;
        let connection = &mut *connection;
        let is_forced = matches!(mode, RestoreMode::Force);
        let restore = Restore::<DB> { connection, loaded, item, columns, is_forced };
        restore.execute(mode).await?;
    }
    if marked {
        guarded::unmark::<DB>(connection).await?;
    }
    Ok(())
}

/// Adds to a refusal what an operator should know before answering: all rows of the branch, and its
/// events. What cannot be read is left out, for the refusal stands without it.
async fn report<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
    committed: &Committed,
    refused: Refused,
) -> Refused {
    let without_rows = refused.clone();
    match read_report::<DB>(connection, shared, branch, committed, refused).await {
        Ok(refused) => refused,
        Err(error) => {
            let (xid, id) = (branch.xid.as_str(), branch.branch_id);
            tracing::warn!(xid, branch = id, ?error, "rows of a refused branch not read");
            without_rows
        }
    }
}

async fn read_report<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
    committed: &Committed,
    refused: Refused,
) -> Result<Refused, Obstacle> {
    let (xid, id) = (branch.xid.as_str(), branch.branch_id);
    let log = UndoLog::decode(&committed.log);
    let log = log.map_err(|error| Obstacle::refused(error.to_string()))?;
    let mut local = DB::begin_on(connection).await?;
    send_all::<DB>(&mut local, DB::UNDO_INSIDE).await?;
    if let Some(time_zone) = &committed.time_zone {
        undo_table::set_time_zone::<DB>(&mut local, time_zone).await?;
    }
    let held_events = match committed.events {
        BranchEvents::None => 0,
        BranchEvents::Held => outbox::count_held::<DB>(&mut local, xid, id).await?,
    };
    let survey = Survey::<DB>::take(&mut local, shared, &log).await?;
    let refused = report::report::<DB>(&mut local, survey, refused).await;
    local.rollback().await?;
    Ok(Refused { held_events: Some(held_events), ..refused })
}
