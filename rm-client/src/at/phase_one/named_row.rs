//! A last branch of one statement that gives the key of its row as whole numbers.
//!
//! ```text
//! RegisterBranch │ change, undo row, COMMIT │ report
//! ```
//!
//! The row is known before anything is sent to the database, so its lock is asked for first. While
//! the coordinator is asked, nothing is locked in the database. After it, nothing is left that
//! could be refused: one call does the rest where the database can compose the undo row. Everywhere
//! else the local transaction runs as any other, and has its row already.
//!
//! One that runs alone on its resource, and is the only branch of its global, runs as any other:
//! the coordinator answers its registration before it is stored (`commit`). On SQLite, where all
//! writers wait for each other, others share local transactions (`joint_queue`).
//!
//! LAST-BRANCH: nothing joins a global behind a registration that decides it. So the order of
//! registrations, by which branches are rolled back, is that of their changes also here, where the
//! change comes after the registration. A branch that does not decide must not do this: one that
//! registers after it may have changed the row before it.

use std::sync::Arc;

use either::Either;
use handfast_rm_core::plan::{ComposedEnd, Statement};
use sqlx::Database;
use tracing::Instrument;

use super::attempts::Attempts;
use super::branch::{Branch, Role};
use super::commit::{Committing, committed_despite, report_commit_error};
use super::composed::{self, only_row};
use super::compound;
use super::local_transaction::LocalTransaction;
use super::registration::{report_decided, report_failed};
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Planned;
use crate::at::database::{AtDatabase, Steps, affected};
use crate::at::database_wait::reported;
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::RunningLastBranch;
use crate::trace;

impl<DB: AtDatabase> Attempts<DB> {
    /// Takes the lock of the only row that the statement can change, if that is given by whole
    /// numbers. The branch may decide its global.
    pub(super) async fn take_named(
        &mut self,
        query: &BoundQuery<DB>,
        statement: &Statement,
    ) -> Result<(), sqlx::Error> {
        let Some(planned) = self.known_plan(query, statement) else { return Ok(()) };
        let Some(rows) = only_row(&planned, query) else { return Ok(()) };
        let Role::Branch(branch) = &self.role else { return Ok(()) };
        let running =
            self.running_last.insert(RunningLastBranch::start(&self.shared.last_branches_running));
        if running.is_alone() && branch.is_only() {
            self.may_compose = DB::COMPOSES_ALONE;
            return Ok(());
        }
        branch.let_others_begin().await;
        if !branch.may_decide() {
            self.running_last = None;
            return Ok(());
        }
        crash_point("before-register");
        let decides = self.wait_and_take_last(&rows).await?;
        crash_point("after-register");
        if !decides {
            self.give_back().await;
            return Ok(());
        }
        if let Role::Branch(branch) = &mut self.role {
            (branch.granted, branch.decides) = (rows, true);
        }
        self.named = Some(planned);
        Ok(())
    }

    /// Whether the global has no other branch open in this process, which it would commit unseen.
    pub(super) fn may_still_decide(&self) -> bool {
        matches!(&self.role, Role::Branch(branch) if branch.may_decide())
    }

    /// Whether the branch is to share a local transaction with others: those of a database that has
    /// one writer at a time wait for each other's syncs.
    pub(super) fn joins_writers(&self) -> bool {
        !DB::WAITS_WITH_LOCKS && self.shared.merges
    }

    /// Takes note of the local commit of a joint local transaction, in which the branch has changed
    /// its row or found none to change.
    pub(super) async fn report_joint_commit(&mut self, branch: &Branch, has_changed: bool) {
        if has_changed {
            report_decided(&self.shared, branch);
            return;
        }
        self.named = None;
        branch.note_last_commit_failed();
        report_failed(&self.shared, branch).await;
        self.restart_branch();
    }

    /// Gives up what was granted. The branch runs as any other.
    async fn give_back(&mut self) {
        self.named = None;
        self.abandon().await;
        self.restart_branch();
    }

    /// Carries out a statement whose row is granted, with its undo row and its COMMIT, in one call.
    /// `None`: it is to run as any other; nothing of it is left.
    pub(crate) async fn run_whole(
        &mut self,
        query: &BoundQuery<DB>,
    ) -> Result<Option<Steps<DB>>, sqlx::Error> {
        let Role::Branch(branch) = &self.role else { return Ok(None) };
        let (branch, shared) = (branch.clone(), Arc::clone(&self.shared));
        let Some(planned) = self.named.clone() else { return Ok(None) };
        let call = composed::call(&shared, &planned, query, &branch, ComposedEnd::Commit);
        let Some(call) = call else { return Ok(None) };
        let mut counted = None;
        if composed::counts_undo_row::<DB>() {
            counted = shared.answers.draw(&shared.connections, 1).await?.pop();
            if counted.is_none() {
                self.give_back().await;
                return Ok(None);
            }
        }
        let mut local = LocalTransaction::by_library(&shared.connections, true).await?;
        if !self.may_still_decide() {
            self.give_back().await;
            return Ok(None);
        }
        shared.note_prepared(local.connection());
        let changes = [("UPDATE", &*planned.loaded.table.name)].into_iter();
        trace::record_changes(&branch.span, changes, branch.granted.len());
        // From here on the branch reports itself.
        self.hand_over();
        let ended = commit_whole(&shared, &branch, local, &planned, call);
        let ended = ended.instrument(branch.span.clone());
        match ended.await {
            Ok(Outcome::Changed(steps)) => {
                Ok(Some(counted.map_or(steps, |counted| vec![Either::Left(counted)])))
            }
            Ok(Outcome::Unmet(steps)) => {
                shared.answers.keep(counted.into_iter().collect());
                self.named = None;
                self.restart_branch();
                Ok(composed::is_sure::<DB>().then_some(steps))
            }
            Err(error) if error.as_database_error().is_some() => {
                tracing::debug!(%error, "branch not committed in one call; it runs as others do");
                if DB::is_schema_mismatch(&error) {
                    shared.catalogue.forget_tables();
                }
                composed::note_refusal(&planned, &error);
                self.named = None;
                self.restart_branch();
                Ok(None)
            }
            Err(unknown) => Err(unknown),
        }
    }
}

/// The effect of a statement on the row that it names.
enum Outcome<DB: Database> {
    /// It is changed, and the global is committed.
    Changed(Steps<DB>),
    /// There is no such row, or its condition does not hold. The branch is gone.
    Unmet(Steps<DB>),
}

async fn commit_whole<DB: AtDatabase>(
    shared: &ResourceState<DB>,
    branch: &Branch,
    mut local: LocalTransaction<'static, DB>,
    planned: &Planned<DB>,
    call: BoundQuery<DB>,
) -> Result<Outcome<DB>, sqlx::Error> {
    crash_point("before-local-commit");
    let committing = Committing::new(shared, branch);
    let sent = send_whole(&mut local, branch, planned, call);
    let ended = reported(shared, branch.xid.as_str(), sent).await;
    // From here on a dropped future does not withdraw the report of this outcome.
    committing.settled();
    crash_point("after-local-commit");
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(error) => return Err(report_commit_error(shared, branch, error).await),
    };
    match &outcome {
        Outcome::Changed(_) => report_decided(shared, branch),
        Outcome::Unmet(_) => {
            branch.note_last_commit_failed();
            report_failed(shared, branch).await;
        }
    }
    Ok(outcome)
}

async fn send_whole<DB: AtDatabase>(
    local: &mut LocalTransaction<'static, DB>,
    branch: &Branch,
    planned: &Planned<DB>,
    call: BoundQuery<DB>,
) -> Result<Outcome<DB>, sqlx::Error> {
    let answered = local.run_whole(call).await;
    let error = match answered.map(|steps| composed::answer(planned, ComposedEnd::Commit, steps)) {
        Ok(steps) if affected::<DB>(&steps) > 0 => return Ok(Outcome::Changed(steps)),
        Ok(steps) => return Ok(Outcome::Unmet(steps)),
        Err(error) => error,
    };
    committed_despite(error, local, &[branch]).await?;
    Ok(Outcome::Changed(counted_one(local).await?))
}

/// An answer that counts one row, of a call that has committed and failed.
async fn counted_one<DB: AtDatabase>(
    local: &mut LocalTransaction<'static, DB>,
) -> Result<Steps<DB>, sqlx::Error> {
    let counted = BoundQuery::plain(DB::COUNTS_ONE.to_owned());
    DB::steps(local.connection(), counted).await.map(compound::last_answer::<DB>)
}
