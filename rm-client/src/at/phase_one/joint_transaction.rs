//! One local transaction for the branches of several globals.
//!
//! ```text
//! BEGIN │ statement of A │ statement of B │ … │ INSERT undo rows of A, B, … │ COMMIT
//! ```
//!
//! Each statement runs as it would by itself, with images and a log of its own, one after the
//! other; or all of them are carried out as their [sum](super::sum). Whatever fails before COMMIT,
//! such as a guard row in the place of one undo row, takes all back, and each branch runs by
//! itself: none fails for another one's reason.

use std::sync::Arc;

use super::branch::{Branch, Role};
use super::branch_log::BranchLog;
use super::commit::committed_despite;
use super::compound;
use super::joint_queue::{JointEnd, Member};
use super::local_transaction::LocalTransaction;
use super::sum::{change_by_sum, draw_answers};
use super::transaction::AtTransaction;
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{AtDatabase, Steps, affected, execute};
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

/// The undo logs to be inserted, each with its branch.
#[derive(Default)]
pub(super) struct UndoLogs(Vec<(Branch, Vec<u8>)>);

/// The work of the branches: done, or to be done along with their undo rows.
pub(super) struct Changes<DB: AtDatabase> {
    /// The answers to their statements.
    pub(super) answers: Vec<Steps<DB>>,
    pub(super) logs: UndoLogs,
    /// Whether undo rows are in the database already.
    pub(super) are_composed: bool,
    /// The statement that carries all of theirs out, if they have not run.
    pub(super) change: Option<(String, DB::Arguments)>,
}

/// Runs branches together and answers them.
pub(super) async fn run<DB: AtDatabase>(shared: &Arc<ResourceState<DB>>, members: Vec<Member<DB>>) {
    let (members, others): (Vec<_>, Vec<_>) = members.into_iter().partition(Member::may_commit);
    others.into_iter().for_each(|member| member.answer(shared, JointEnd::Alone));
    match commit_together(shared, &members).await {
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
    members: &[Member<DB>],
) -> Result<Vec<Steps<DB>>, Failure> {
    let Some(first) = members.first() else { return Ok(Vec::new()) };
    let role = Role::Branch(first.branch.clone());
    // Before a connection is taken: nothing that holds one waits for another.
    let drawn = draw_answers(shared, members).await.map_err(|error| rolled_back(&error))?;
    let begun = AtTransaction::begin_as(Arc::clone(shared), role).await;
    let mut local = begun.map_err(|error| rolled_back(&error))?;
    if local.log.marked {
        // The mark for guarded tables is the first branch's. The database does the same when it
        // notices that the connection is gone.
        let _ = local.rollback().await;
        tracing::debug!("branches run by themselves, since a table is guarded");
        return Err(Failure::RolledBack);
    }
    match change_all(&mut local, members, drawn).await {
        Ok(Changes { answers, logs, are_composed, change }) => {
            commit(local, logs, are_composed, change).await.map(|()| answers)
        }
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
    members: &[Member<DB>],
    drawn: Vec<DB::QueryResult>,
) -> Result<Changes<DB>, sqlx::Error> {
    let changes = match change_by_sum(local, members, drawn).await? {
        Some(changes) => changes,
        None => change_each(local, members).await?,
    };
    changes.logs.require_size(local.shared.identity.undo_bytes_max)?;
    // Its row is locked in the database from here on, so that no other branch of its global changes
    // it.
    if !members.iter().all(Member::may_commit) {
        let reason = "a global has got another branch meanwhile";
        return Err(sqlx::Error::Protocol(reason.to_owned()));
    }
    Ok(changes)
}

async fn change_each<DB: AtDatabase>(
    local: &mut AtTransaction<'static, DB>,
    members: &[Member<DB>],
) -> Result<Changes<DB>, sqlx::Error> {
    let (mut answers, mut logs) = (Vec::with_capacity(members.len()), UndoLogs::default());
    let mut are_composed = false;
    for (place, member) in members.iter().enumerate() {
        local.role = Role::Branch(member.branch.clone());
        local.log = BranchLog::of(&local.role);
        local.composed = member.composed(&local.shared, place == 0);
        let steps = local.run(member.query.clone(), member.managed.clone()).await?;
        // LAST-BRANCH: the undo row is what tells that it has committed.
        if member.is_composed() && affected::<DB>(&steps) > 0 && !local.log.is_composed {
            let reason = "the undo row of a last branch is not composed";
            return Err(sqlx::Error::Protocol(reason.to_owned()));
        }
        answers.push(steps);
        logs.add(&local.log, &member.branch)?;
        are_composed |= local.log.is_composed;
    }
    Ok(Changes { answers, logs, are_composed, change: None })
}

impl UndoLogs {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the log of a branch, if it has changed anything.
    pub(super) fn add(&mut self, log: &BranchLog, branch: &Branch) -> Result<(), sqlx::Error> {
        self.0.extend(undo_log(log, branch)?.map(|log| (branch.clone(), log)));
        Ok(())
    }

    fn require_size(&self, bytes_max: usize) -> Result<(), sqlx::Error> {
        let bytes = self.0.iter().map(|(_, log)| log.len()).sum();
        if bytes > bytes_max { Err(too_large(bytes)) } else { Ok(()) }
    }
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
    UndoLogs(logs): UndoLogs,
    are_composed: bool,
    change: Option<(String, DB::Arguments)>,
) -> Result<(), Failure> {
    let AtTransaction { mut local, shared, .. } = local;
    shared.note_prepared(local.connection());
    if logs.is_empty() && !are_composed {
        // Nothing was changed, so that it makes no difference whether this succeeds.
        let _ = local.rollback().await;
        return Ok(());
    }
    if logs.is_empty() {
        crash_point("before-joint-commit");
        return commit_by_itself(local).await;
    }
    let rows = logs.iter().map(|(branch, log)| (&branch.xid, branch.id, log.as_slice()));
    crash_point("before-joint-commit");
    if local.merges() {
        let (change, mut arguments) = change.unzip();
        let arguments = arguments.get_or_insert_default();
        let insert = undo_table::insert_many::<DB>(arguments, rows);
        let text = match change {
            Some(change) => compound::change_insert_and_commit::<DB>(&change, &insert),
            None => compound::insert_and_commit::<DB>(&insert, None),
        };
        return commit_by_one_call(local, text, std::mem::take(arguments), &logs).await;
    }
    let mut arguments = DB::Arguments::default();
    let insert = undo_table::insert_many::<DB>(&mut arguments, rows);
    let changed = change_and_insert(&mut local, change, (insert, arguments)).await;
    if let Err(error) = changed {
        // The database does the same when it notices that the connection is gone.
        let _ = local.rollback().await;
        return Err(rolled_back(&error));
    }
    commit_by_itself(local).await
}

async fn commit_by_itself<DB: AtDatabase>(
    local: LocalTransaction<'static, DB>,
) -> Result<(), Failure> {
    let Err(error) = local.commit().await else { return Ok(()) };
    let is_certain = error.as_database_error().is_some_and(DB::says_rolled_back);
    Err(if is_certain { rolled_back(&error) } else { Failure::Unknown(error.to_string()) })
}

async fn commit_by_one_call<DB: AtDatabase>(
    mut local: LocalTransaction<'static, DB>,
    text: String,
    arguments: DB::Arguments,
    logs: &[(Branch, Vec<u8>)],
) -> Result<(), Failure> {
    let Err(error) = local.commit_by(BoundQuery::ours(text, arguments)).await else {
        return Ok(());
    };
    // The undo rows of globals that were rolled back meanwhile are gone, those of others are there.
    let branches: Vec<&Branch> = logs.iter().map(|(branch, _)| branch).collect();
    let Err(error) = committed_despite(error, &mut local, &branches).await else { return Ok(()) };
    let is_certain = error.as_database_error().is_some();
    Err(if is_certain { rolled_back(&error) } else { Failure::Unknown(error.to_string()) })
}

async fn change_and_insert<DB: AtDatabase>(
    local: &mut LocalTransaction<'static, DB>,
    change: Option<(String, DB::Arguments)>,
    (insert, arguments): (String, DB::Arguments),
) -> Result<(), sqlx::Error> {
    let connection = local.begun().await?;
    if let Some((text, arguments)) = change {
        let changed = execute::<DB>(connection, text, arguments).await?;
        if changed != 1 {
            let reason = format!("the sum of counters has changed {changed} rows");
            return Err(sqlx::Error::Protocol(reason));
        }
    }
    DB::steps(connection, BoundQuery::ours(insert, arguments)).await.map(drop)
}
