//! Phase one ends: undo row and registration side by side, then local COMMIT.
//!
//! ```text
//! statements … ─┬─ INSERT undo_log ─┬─ COMMIT
//!               │         │         │     └─ no answer: report Unknown
//!               │         └─ guard row there: the global is already rolled back
//!               └─ RegisterBranch ──┘
//!                         └─ refused: local rollback, nothing stays
//! ```
//!
//! A merged local transaction sends the undo row in one call with COMMIT, after the registration.
//!
//! The local COMMIT of a [last branch](crate::AtResource::last) may decide its global. It is
//! reported, and the answer is not waited for: a coordinator that does not hear of it asks whether
//! the undo row is there.
//!
//! The undo row is not visible before COMMIT, so neither call has to wait for the other. It goes in
//! before COMMIT also because PostgreSQL answers COMMIT of a failed transaction with a silent
//! ROLLBACK, and this INSERT is what notices.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;
use tracing::Instrument;

use super::branch::{Branch, OnConflict, Role};
use super::compound;
use super::local_transaction::LocalTransaction;
use super::registration::{
    HOLDING_LOCKS, check_locks, failed_if_dropped, is_unanswered, register, registration,
    report_decided, report_failed,
};
use super::transaction::AtTransaction;
use crate::at::crash_point::crash_point;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::error_class::says_server_is_lost;
use crate::at::database::{AtDatabase, Backend};
use crate::at::error::AtError;
use crate::at::guarded;
use crate::at::resource_state::ResourceState;
use crate::at::undo::log::UndoLog;
use crate::at::undo::table::{self as undo_table, BranchEvents, Found};
use crate::last_commit::Known;
use crate::trace;
use crate::unknown_outcome::UnknownOutcomeGuard;

impl<DB: AtDatabase> AtTransaction<'_, DB> {
    /// Commits: phase one, if this is a branch. The rows it wrote stay locked for other globals
    /// until its own is decided.
    ///
    /// # Errors
    /// The database's error, or an [`AtError`]. After an error the local transaction is rolled
    /// back, unless it is [`AtError::CommitUnknown`].
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        match self.role.clone() {
            Role::Plain => self.local.commit().await,
            Role::Checked(on_conflict) => {
                let prepared = self.prepare_checked(on_conflict).await;
                self.end_checked(prepared).await
            }
            Role::Branch(mut branch) => {
                let span = branch.span.clone();
                if !self.log.is_composed {
                    let changes = self.log.items().iter().map(|it| (it.kind.word(), &*it.table));
                    trace::record_changes(&span, changes, self.log.locks().len());
                }
                let committed = async {
                    if self.is_unmet(&branch) {
                        return self.end_unmet(branch).await;
                    }
                    let prepared = self.prepare(&mut branch).await;
                    self.end_branch(prepared, branch).await
                };
                committed.instrument(span).await
            }
        }
    }

    /// Whether the local commit was to decide the global, and no row was found that the branch
    /// could change.
    fn is_unmet(&self, branch: &Branch) -> bool {
        branch.decides && self.refuse_incomplete().is_ok() && !self.has_undo_row(branch)
    }

    /// Ends a branch that has changed nothing. The global goes on without it.
    async fn end_unmet(self, branch: Branch) -> Result<(), sqlx::Error> {
        let Self { local, shared, .. } = self;
        let mut cut_off = failed_if_dropped(&shared, &branch);
        // A failing rollback leaves nothing behind either.
        let _ = local.rollback().await;
        cut_off.disarm();
        report_failed(&shared, &branch).await;
        Ok(())
    }

    /// Does everything that precedes a branch's COMMIT, and returns how to commit. Notes in
    /// `branch` whether the coordinator may know of it.
    async fn prepare(&mut self, branch: &mut Branch) -> Result<Ending<DB>, sqlx::Error> {
        // A future that is dropped in here has its local transaction rolled back, and a
        // registration may have arrived.
        let mut cut_off = failed_if_dropped(&self.shared, branch);
        let prepared = self.register_and_send(branch).await;
        cut_off.disarm();
        prepared
    }

    async fn register_and_send(&mut self, branch: &mut Branch) -> Result<Ending<DB>, sqlx::Error> {
        self.refuse_incomplete()?;
        let shared = Arc::clone(&self.shared);
        let (undo_row, ending) = self.undo_row_call(branch)?;
        if matches!(ending, Ending::Commit) {
            self.unmark().await?;
        }
        let is_idle = self.log.locks().is_empty() && self.log.events == BranchEvents::None;
        if is_idle && !branch.registered {
            self.send(undo_row).await?;
            return Ok(ending);
        }
        // The coordinator has stored the branch with these rows. If it has rolled the branch back
        // since, a guard row is in the place of the undo row, or bars it from being committed.
        let has_its_rows = branch.registered
            && !branch.granted.is_empty()
            && branch.granted.cover(self.log.locks());
        if has_its_rows && branch.keeps_its_place() {
            let sent = self.send(undo_row).await;
            sent.map_err(|error| map_guard_conflict(error, branch))?;
            crash_point("before-local-commit");
            return Ok(ending);
        }
        branch.let_others_begin().await;
        let wait = wait_for_rows(&shared, branch.on_conflict);
        let mut request = registration(&shared, branch, self.log.locks(), wait, HOLDING_LOCKS);
        // LAST-BRANCH: the undo row is what tells the coordinator later that it has committed.
        request.is_last = self.has_undo_row(branch) && branch.may_decide();
        // If the coordinator loses the global in a crash, the undo row stays for a while. It must
        // not hold back an event meanwhile, nor a writer.
        branch.may_be_lost = request.is_last
            && branch.is_only()
            && self.log.events == BranchEvents::None
            && !shared.catalogue.knows_guards();
        request.may_be_lost = branch.may_be_lost;
        let (sent, registered) = futures::join!(self.send(undo_row), register(&shared, request));
        // An unanswered registration may have arrived.
        branch.registered |= registered.as_ref().map_or_else(is_unanswered, |_| true);
        sent.map_err(|error| map_guard_conflict(error, branch))?;
        branch.decides = registered.map_err(AtError::from)?;
        crash_point("before-local-commit");
        Ok(ending)
    }

    /// Returns the call to make before COMMIT, and how to commit. One of them carries the undo row,
    /// if there is one, so that the same COMMIT makes it durable with the application's work.
    fn undo_row_call(
        &self,
        branch: &Branch,
    ) -> Result<(Option<BoundQuery<DB>>, Ending<DB>), sqlx::Error> {
        if self.log.is_composed {
            return Ok((None, Ending::Commit));
        }
        if !self.has_undo_row(branch) {
            // There is no INSERT that would fail instead.
            return Ok((failing_if_failed::<DB>(), Ending::Commit));
        }
        let (insert, row) = self.undo_row(branch)?;
        crash_point("before-undo-insert");
        if self.local.merges() {
            let unmark = guarded::unmark_text::<DB>().filter(|_| self.log.marked);
            let call = BoundQuery::ours(compound::insert_and_commit::<DB>(&insert, unmark), row);
            Ok((None, Ending::WithUndoRow(call)))
        } else {
            Ok((Some(BoundQuery::ours(insert, row)), Ending::Commit))
        }
    }

    /// Whether the branch has an undo row. One that decides its global has one for the row that was
    /// granted to it, changed or not: it tells the coordinator that the branch has committed.
    fn has_undo_row(&self, branch: &Branch) -> bool {
        let decides_by_row = branch.decides && !self.log.locks().is_empty();
        self.log.is_composed
            || !self.log.items().is_empty()
            || self.log.events != BranchEvents::None
            || decides_by_row
    }

    /// Takes back the mark for guarded tables, which would outlast the local transaction.
    async fn unmark(&mut self) -> Result<(), sqlx::Error> {
        if self.log.marked {
            guarded::unmark::<DB>(self.local.begun().await?).await?;
        }
        Ok(())
    }

    async fn send(&mut self, call: Option<BoundQuery<DB>>) -> Result<(), sqlx::Error> {
        if let Some(call) = call {
            DB::steps(self.local.begun().await?, call).await?;
        }
        Ok(())
    }

    fn refuse_incomplete(&self) -> Result<(), AtError> {
        self.refuse_ended()?;
        if self.log.half_recorded { Err(AtError::HalfRecorded) } else { Ok(()) }
    }

    fn undo_row(&self, branch: &Branch) -> Result<(String, DB::Arguments), sqlx::Error> {
        let log =
            UndoLog::encode(self.log.items()).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let bytes_max = self.shared.identity.undo_bytes_max;
        if log.len() > bytes_max {
            let (bytes, hint) = (log.len(), DB::UNDO_SIZE_HINT);
            return Err(AtError::UndoTooLarge { bytes, bytes_max, hint }.into());
        }
        Ok(undo_table::insert::<DB>(&branch.xid, branch.id, &log, self.log.events))
    }

    /// Commits or rolls back a branch, and reports to the coordinator where it has to know.
    async fn end_branch(
        self,
        prepared: Result<Ending<DB>, sqlx::Error>,
        branch: Branch,
    ) -> Result<(), sqlx::Error> {
        let Self { mut local, shared, .. } = self;
        shared.note_prepared(local.connection());
        match prepared {
            Ok(ending) => {
                let brings_row = matches!(ending, Ending::WithUndoRow(_));
                let committing = Committing::new(&shared, &branch);
                let committed = ending.commit(local, &branch).await;
                // From here on a dropped future does not withdraw the report of this outcome.
                committing.settled();
                crash_point("after-local-commit");
                let Err(error) = committed else {
                    if branch.decides {
                        report_decided(&shared, &branch);
                    }
                    return Ok(());
                };
                let error = report_commit_error(&shared, &branch, error).await;
                // The call that commits may bring the undo row too, so that its error is the guard
                // row's.
                Err(if brings_row { map_guard_conflict(error, &branch) } else { error })
            }
            Err(error) => {
                roll_back_branch(local, &shared, &branch, &error).await;
                Err(error)
            }
        }
    }

    async fn prepare_checked(&mut self, on_conflict: OnConflict) -> Result<(), sqlx::Error> {
        self.refuse_incomplete()?;
        self.unmark().await?;
        let shared = Arc::clone(&self.shared);
        let (wait, rows) = (wait_for_rows(&shared, on_conflict), self.log.locks().clone());
        // The database keeps the rows locked until COMMIT, so no branch can write them after this
        // check.
        let checked = check_locks(&shared, "", &rows, wait, HOLDING_LOCKS);
        let (alive, checked) = futures::join!(self.send(failing_if_failed::<DB>()), checked);
        alive?;
        Ok(checked?)
    }

    async fn end_checked(self, prepared: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        match prepared {
            Ok(()) => self.local.commit().await,
            Err(error) => {
                // The first error is the one to report.
                let _ = self.local.rollback().await;
                Err(error)
            }
        }
    }

    /// Makes sure that no other global holds rows that a globally committed read has seen.
    pub(super) async fn require_committed_rows(&mut self) -> Result<(), sqlx::Error> {
        if self.log.awaited.is_empty() {
            return Ok(());
        }
        let Role::Branch(branch) = &self.role else { return Ok(()) };
        // Never waits here: the rows are read already, and only another read would see what a
        // holder that rolls back restores.
        let (xid, rows) = (branch.xid.as_str(), mem::take(&mut self.log.awaited));
        crash_point("before-check");
        let checked = check_locks(&self.shared, xid, &rows, Duration::ZERO, HOLDING_LOCKS).await;
        if checked.is_err() {
            // The application does not get to see these rows, and may go on without them.
            self.log.unseen = rows;
        }
        Ok(checked?)
    }
}

/// Returns how long a local transaction may wait with its rows locked for those that others hold.
fn wait_for_rows<DB: Backend>(shared: &ResourceState<DB>, on_conflict: OnConflict) -> Duration {
    match on_conflict {
        // On SQLite it holds the only writer lock, which the rollback of the row's holder needs.
        OnConflict::Wait if DB::WAITS_WITH_LOCKS => shared.lock_timeout,
        OnConflict::Wait | OnConflict::Fail => Duration::ZERO,
    }
}

/// PostgreSQL answers COMMIT of a failed transaction with a silent ROLLBACK. Returns a statement
/// that fails in its place.
fn failing_if_failed<DB: AtDatabase>() -> Option<BoundQuery<DB>> {
    DB::COMMIT_HIDES_FAILURE.then(|| BoundQuery::plain("SELECT 1".to_owned()))
}

/// How a branch's local transaction is committed.
enum Ending<DB: AtDatabase> {
    /// By a COMMIT of its own.
    Commit,
    /// By the call that brings the undo row.
    WithUndoRow(BoundQuery<DB>),
}

impl<DB: AtDatabase> Ending<DB> {
    /// After an error of the database the local transaction is rolled back.
    async fn commit(
        self,
        mut local: LocalTransaction<'_, DB>,
        branch: &Branch,
    ) -> Result<(), sqlx::Error> {
        let call = match self {
            Self::Commit => return local.commit().await.map_err(as_unanswered::<DB>),
            Self::WithUndoRow(call) => call,
        };
        match local.commit_by(call).await {
            Ok(()) => Ok(()),
            Err(error) => committed_despite(error, &mut local, &[branch]).await,
        }
    }
}

/// Turns an error that does not say that the database has rolled back into one that leaves the
/// outcome open: a proxy that has lost the server behind it answers like a database.
fn as_unanswered<DB: Backend>(error: sqlx::Error) -> sqlx::Error {
    let is_certain = error.as_database_error().is_none_or(DB::says_rolled_back);
    if is_certain { error } else { sqlx::Error::Protocol(error.to_string()) }
}

/// Succeeds if a call that says COMMIT itself has committed although it failed: it may have been
/// interrupted after its COMMIT. Then the undo row of one of its branches is there.
///
/// # Errors
/// `error` if it has not committed; one that is not the database's if that is unknown.
pub(super) async fn committed_despite<DB: AtDatabase>(
    error: sqlx::Error,
    local: &mut LocalTransaction<'_, DB>,
    branches: &[&Branch],
) -> Result<(), sqlx::Error> {
    match error.as_database_error() {
        None => return Err(error),
        // What its session was doing may still be carried out, unseen by another one.
        Some(of_proxy) if says_server_is_lost(of_proxy) => {
            return Err(sqlx::Error::Protocol(error.to_string()));
        }
        Some(_) => {}
    }
    for branch in branches {
        match undo_row_exists(local, branch).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(unknown) => return Err(sqlx::Error::Protocol(format!("{error}; then {unknown}"))),
        }
    }
    Err(error)
}

/// Rolls back what is open, and returns whether the branch's undo row is there.
async fn undo_row_exists<DB: AtDatabase>(
    local: &mut LocalTransaction<'_, DB>,
    branch: &Branch,
) -> Result<bool, sqlx::Error> {
    // A call that failed before its COMMIT leaves the transaction open. A search within that
    // transaction would find its undo row, and the branch would count as committed.
    local.roll_back_failed_call().await?;
    let found = undo_table::find::<DB>(local.connection(), branch.xid.as_str(), branch.id).await?;
    Ok(matches!(found, Some(Found::Log { .. })))
}

/// Maps an error of the statement that inserts the undo row: a conflict with the guard row means
/// that the global is finished.
fn map_guard_conflict(error: sqlx::Error, branch: &Branch) -> sqlx::Error {
    if undo_table::is_guard_conflict(&error) {
        AtError::GlobalFinished { xid: branch.xid.to_string() }.into()
    } else {
        error
    }
}

/// Rolls back a branch that does not commit for this error.
async fn roll_back_branch<DB: AtDatabase>(
    local: LocalTransaction<'_, DB>,
    shared: &ResourceState<DB>,
    branch: &Branch,
    error: &sqlx::Error,
) {
    let mut cut_off = branch.registered.then(|| failed_if_dropped(shared, branch));
    // A failing rollback changes nothing: the database does the same when it notices that the
    // connection is gone.
    let rolled_back = local.rollback().await;
    if let Some(cut_off) = &mut cut_off {
        cut_off.disarm();
    }
    // The next attempt has the same id and keeps the rows. A report would give them up and, late,
    // remove a branch that has committed meanwhile.
    let is_repeated = branch.on_conflict == OnConflict::Fail
        && AtError::of(error).is_some_and(AtError::is_row_locked);
    if rolled_back.is_ok() && branch.registered && !is_repeated {
        report_failed(shared, branch).await;
    }
}

/// Reports a COMMIT that has failed to the coordinator, where it has to know. Returns the error for
/// the caller.
pub(super) async fn report_commit_error<DB: Backend>(
    shared: &ResourceState<DB>,
    branch: &Branch,
    error: sqlx::Error,
) -> sqlx::Error {
    crash_point("before-phase-one-report");
    if error.as_database_error().is_some() {
        // A deferred constraint, for example: the database says itself that it rolled back.
        branch.note_last_commit_failed();
        if branch.registered {
            report_failed(shared, branch).await;
        }
        return error;
    }
    // Before the report is awaited: dropped meanwhile, the branch must not count as ended, or a
    // rollback would leave out the guard row that bars a late COMMIT.
    branch.running.mark_in_doubt();
    if branch.registered {
        let unknown = v1::PhaseOneOutcome::Unknown;
        shared.coordinator.report_outcome(&branch.xid, branch.id, unknown).await;
    }
    AtError::CommitUnknown { reason: error.to_string() }.into()
}

/// A COMMIT that is cut off by a dropped future: whether the database got it cannot be known, so
/// the global must not commit, and this process does not learn when the branch has ended.
pub(super) struct Committing<'b> {
    branch: &'b Branch,
    in_doubt: Option<UnknownOutcomeGuard>,
}

impl<'b> Committing<'b> {
    pub(super) fn new<DB: Backend>(shared: &ResourceState<DB>, branch: &'b Branch) -> Self {
        // Code beside this may ask for a rollback meanwhile, and must not take it for certain.
        branch.note_last_commit(Known::InDoubt);
        let unknown = v1::PhaseOneOutcome::Unknown;
        let in_doubt =
            || UnknownOutcomeGuard::new(&shared.coordinator, &branch.xid, branch.id, unknown);
        Self { branch, in_doubt: branch.registered.then(in_doubt) }
    }

    pub(super) fn settled(mut self) {
        if let Some(mut in_doubt) = self.in_doubt.take() {
            in_doubt.disarm();
        }
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if self.in_doubt.is_some() {
            self.branch.running.mark_in_doubt();
        }
    }
}
