//! Finds out whether a branch that decides its global has committed locally (LAST-BRANCH).
//!
//! Its undo row says so. A guard row in the place of a missing one keeps the branch from committing
//! later, as in a rollback, so that the answer stays true. Nothing else is written.

use std::sync::Arc;

use handfast_proto::v1::PhaseTwoBranch;
use sqlx::pool::PoolConnection;

use super::rollback::{RACES_MAX, Restoring, send_all};
use crate::at::crash_point::crash_point;
use crate::at::database::AtDatabase;
use crate::at::database::begin::acquire;
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::CommitPossibility;
use crate::at::undo::table::{self as undo_table, Found};

/// How the local transaction of a branch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalOutcome {
    Committed,
    /// It has not committed, and never will.
    RolledBack,
}

/// Returns how the local transaction of a branch has ended, or makes it end.
///
/// # Errors
/// An error that another attempt may cure.
pub(super) async fn local_outcome<DB: AtDatabase>(
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
) -> Result<LocalOutcome, sqlx::Error> {
    let mut asking = Restoring { connection: acquire(&shared.pool).await?, is_as_it_was: false };
    for _ in 0..RACES_MAX {
        send_all::<DB>(&mut asking.connection, DB::UNDO_BEFORE).await?;
        let outcome = attempt::<DB>(&mut asking.connection, shared, branch).await?;
        send_all::<DB>(&mut asking.connection, DB::UNDO_AFTER).await?;
        if let Some(outcome) = outcome {
            asking.is_as_it_was = true;
            return Ok(outcome);
        }
    }
    Err(sqlx::Error::Protocol("undo row neither there nor absent".to_owned()))
}

/// Runs one local transaction. Returns `None` if the undo row was committed between the search for
/// it and the guard.
async fn attempt<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    shared: &Arc<ResourceState<DB>>,
    branch: &PhaseTwoBranch,
) -> Result<Option<LocalOutcome>, sqlx::Error> {
    let (xid, id) = (branch.xid.as_str(), branch.branch_id);
    // Before the search for its undo row: a branch that has ended by then has its row in place.
    let possibility = shared.branches.commit_possibility(id);
    let mut local = DB::begin_on(connection).await?;
    send_all::<DB>(&mut local, DB::UNDO_INSIDE).await?;
    match undo_table::find::<DB>(&mut local, xid, id).await? {
        Some(Found::Log { .. }) => return Ok(Some(LocalOutcome::Committed)),
        Some(Found::Guard) => return Ok(Some(LocalOutcome::RolledBack)),
        None if possibility == CommitPossibility::Impossible => {
            return Ok(Some(LocalOutcome::RolledBack));
        }
        None => {}
    }
    let guarded = undo_table::insert_guard::<DB>(&mut local, xid, id).await?;
    crash_point("in-settle-before-commit");
    // The guard row bars a late local transaction only once it is committed, so the answer comes
    // after.
    local.commit().await?;
    if guarded {
        shared.branches.guarded(xid, id);
    }
    Ok(guarded.then_some(LocalOutcome::RolledBack))
}
