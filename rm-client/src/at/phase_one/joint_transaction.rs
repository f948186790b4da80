//! One local transaction for the branches of several globals.
//!
//! ```text
//! BEGIN │ statement of A │ statement of B │ … │ INSERT undo rows of A, B, … │ COMMIT
//! ```
//!
//! Each statement runs as it would by itself, with images and a log of its own, one after the
//! other. Whatever fails before COMMIT, such as a guard row in the place of one undo row, takes all
//! back, and each branch runs by itself: none fails for another one's reason.

use std::sync::Arc;

use super::branch::{Branch, Role};
use super::branch_log::BranchLog;
use super::commit::undo_row_exists;
use super::compound;
use super::joint_queue::{JointEnd, Member};
use super::transaction::AtTransaction;
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{AtDatabase, Steps};
use crate::at::resource_state::ResourceState;
use crate::at::undo::log::UndoLog;
use crate::at::undo::table::{self as undo_table, BranchEvents};

/// Why the branches have not committed together.
#[derive(Debug)]
enum Failure {
    /// Nothing is left of any of them.
    RolledBack,
    /// COMMIT had no answer.
    Unknown(String),
}

/// An undo log to be inserted, and its branch.
type NewUndoLog = (Branch, Vec<u8>);

/// Runs branches together and answers them.
pub(super) async fn run<DB: AtDatabase>(
    shared: &Arc<ResourceState<DB>>,
    mut members: Vec<Member<DB>>,
) {
    match commit_together(shared, &mut members).await {
        Ok(steps) => {
            crash_point("after-joint-commit");
            for (member, steps) in members.into_iter().zip(steps) {
                member.answer(shared, JointEnd::Committed(steps));
            }
        }
        Err(Failure::RolledBack) => {
            members.into_iter().for_each(|member| member.answer(shared, JointEnd::Alone));
        }
        Err(Failure::Unknown(reason)) => {
            for member in members {
                member.answer(shared, JointEnd::Unknown(reason.clone()));
            }
        }
    }
}

async fn commit_together<DB: AtDatabase>(
    shared: &Arc<ResourceState<DB>>,
    members: &mut [Member<DB>],
) -> Result<Vec<Steps<DB>>, Failure> {
    let Some(first) = members.first() else { return Ok(Vec::new()) };
    let role = Role::Branch(first.branch.clone());
    let begun = AtTransaction::begin_as(Arc::clone(shared), role).await;
    let mut local = begun.map_err(|error| rolled_back(&error))?;
    if local.log.marked {
        // The mark for guarded tables is the first branch's. The database does the same when it
        // notices that the connection is gone.
        let _ = local.rollback().await;
        tracing::debug!("branches run by themselves, since a table is guarded");
        return Err(Failure::RolledBack);
    }
    match change_all(&mut local, members).await {
        Ok((steps, logs)) => commit(local, logs).await.map(|()| steps),
        Err(error) => {
            // The database does the same when it notices that the connection is gone.
            let _ = local.rollback().await;
            Err(rolled_back(&error))
        }
    }
}

fn rolled_back(error: &sqlx::Error) -> Failure {
    tracing::debug!(%error, "branches that were to share a local transaction run by themselves");
    Failure::RolledBack
}

/// Runs the statements of all branches.
async fn change_all<DB: AtDatabase>(
    local: &mut AtTransaction<'static, DB>,
    members: &mut [Member<DB>],
) -> Result<(Vec<Steps<DB>>, Vec<NewUndoLog>), sqlx::Error> {
    let (mut answers, mut logs) = (Vec::with_capacity(members.len()), Vec::new());
    let mut bytes_left = local.shared.identity.undo_bytes_max;
    for member in members {
        local.role = Role::Branch(member.branch.clone());
        local.log = BranchLog::of(&local.role);
        answers.push(local.run(member.query.clone(), member.managed.clone()).await?);
        let Some(log) = undo_log(&local.log, &member.branch)? else { continue };
        bytes_left = bytes_left.checked_sub(log.len()).ok_or_else(|| too_large(log.len()))?;
        logs.push((member.branch.clone(), log));
    }
    Ok((answers, logs))
}

fn too_large(bytes: usize) -> sqlx::Error {
    sqlx::Error::Protocol(format!("{bytes} bytes of an undo log are too many for one statement"))
}

/// The undo log of a branch, if it has changed anything. Refuses one that has changed more than the
/// row which it was granted.
fn undo_log(log: &BranchLog, branch: &Branch) -> Result<Option<Vec<u8>>, sqlx::Error> {
    // A mark for guarded tables would be taken for that of the branches behind it.
    let is_whole =
        !log.half_recorded && !log.ended && !log.marked && log.events == BranchEvents::None;
    if !(is_whole && branch.granted.cover(log.locks())) {
        let reason = "a statement on a counter has done something else";
        return Err(sqlx::Error::Protocol(reason.to_owned()));
    }
    if log.items().is_empty() {
        return Ok(None);
    }
    UndoLog::encode(log.items()).map(Some).map_err(|error| sqlx::Error::Encode(error.into()))
}

async fn commit<DB: AtDatabase>(
    local: AtTransaction<'static, DB>,
    logs: Vec<NewUndoLog>,
) -> Result<(), Failure> {
    let AtTransaction { mut local, shared, .. } = local;
    shared.note_prepared(local.connection());
    let Some((witness, _)) = logs.first() else {
        // Nothing was changed, so that it makes no difference whether this succeeds.
        let _ = local.rollback().await;
        return Ok(());
    };
    let rows = logs.iter().map(|(branch, log)| (&branch.xid, branch.id, log.as_slice()));
    let (insert, arguments) = undo_table::insert_many::<DB>(rows);
    crash_point("before-joint-commit");
    if local.is_merged() {
        let call = BoundQuery::ours(compound::insert_and_commit(&insert, None), arguments);
        let Err(error) = local.commit_by(call).await else { return Ok(()) };
        if error.as_database_error().is_none() {
            return Err(Failure::Unknown(error.to_string()));
        }
        // A call that was interrupted after its COMMIT fails although it has committed: the undo
        // rows are there, all of them or none.
        return match undo_row_exists(&mut local, witness).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(rolled_back(&error)),
            Err(unknown) => Err(Failure::Unknown(format!("{error}; then {unknown}"))),
        };
    }
    let inserted = match local.begun().await {
        Ok(connection) => DB::steps(connection, BoundQuery::ours(insert, arguments)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = inserted {
        // The database does the same when it notices that the connection is gone.
        let _ = local.rollback().await;
        return Err(rolled_back(&error));
    }
    let Err(error) = local.commit().await else { return Ok(()) };
    let is_certain = error.as_database_error().is_some_and(DB::says_rolled_back);
    Err(if is_certain { rolled_back(&error) } else { Failure::Unknown(error.to_string()) })
}
