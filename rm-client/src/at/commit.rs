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
//! Nobody sees the undo row before COMMIT, so that neither has to wait for the other. It goes in
//! before COMMIT also because PostgreSQL answers COMMIT of a failed transaction with a silent
//! ROLLBACK, and this INSERT is what notices.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;

use super::captured::Captured;
use super::compound;
use super::crash_point::crash_point;
use super::database::{AtDatabase, Backend};
use super::error::AtError;
use super::local::Local;
use super::locks::Locks;
use super::resource::Shared;
use super::transaction::{AtTransaction, Branch, Conflict, Part};
use super::undo::UndoLog;
use super::undo_table::{self, Events, Found};
use crate::error::Error;
use crate::unknown_outcome::UnknownOutcomeGuard;

impl<DB: AtDatabase> AtTransaction<'_, DB> {
    /// Commits: phase one, if this is a branch. The rows it wrote stay locked for other globals
    /// until its own is decided.
    ///
    /// # Errors
    /// What the database says, or an [`AtError`]. After an error the local transaction is rolled
    /// back, unless it is [`AtError::CommitUnknown`].
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        match self.part.clone() {
            Part::Plain => self.local.commit().await,
            Part::Checked => {
                let prepared = self.prepare_checked().await;
                self.end_checked(prepared).await
            }
            Part::Branch(mut branch) => {
                let prepared = self.prepare(&mut branch).await;
                self.end_branch(prepared, branch).await
            }
        }
    }

    /// Everything before a branch's COMMIT, and how that goes. Notes in `branch` whether the
    /// coordinator knows of it.
    async fn prepare(&mut self, branch: &mut Branch) -> Result<Ending<DB>, sqlx::Error> {
        self.refuse_incomplete()?;
        let shared = Arc::clone(&self.shared);
        let (note, ending) = self.notes(branch)?;
        let is_idle = self.work.locks().is_empty() && self.work.events == Events::None;
        if is_idle && !branch.registered {
            self.send(note).await?;
            return Ok(ending);
        }
        let wait = match branch.conflict {
            Conflict::Wait if DB::WAITS_WITH_LOCKS => shared.lock_timeout,
            Conflict::Wait | Conflict::Fail => Duration::ZERO,
        };
        let request = registration(&shared, branch, self.work.locks(), wait, HOLDING_LOCKS);
        // Whoever drops the future here has the local transaction rolled back, and the registration
        // may have arrived.
        let (coordinator, failed) = (&shared.coordinator, v1::PhaseOneOutcome::Failed);
        let mut in_doubt = UnknownOutcomeGuard::new(coordinator, &branch.xid, branch.id, failed);
        let (noted, registered) = futures::join!(self.send(note), register(&shared, request));
        in_doubt.disarm();
        // An unanswered registration may have arrived.
        branch.registered |= registered.as_ref().map_or_else(is_unanswered, |()| true);
        noted.map_err(|error| told_by_guard(error, branch))?;
        registered.map_err(AtError::from)?;
        Ok(ending)
    }

    /// What goes to the database before COMMIT, and COMMIT. The undo row is what COMMIT is to keep
    /// beside the application's work; with either of them.
    fn notes(&self, branch: &Branch) -> Result<(Option<Captured<DB>>, Ending<DB>), sqlx::Error> {
        if self.work.items().is_empty() && self.work.events == Events::None {
            let asked = || Captured::plain("SELECT 1".to_owned());
            return Ok((DB::COMMIT_HIDES_FAILURE.then(asked), Ending::Commit));
        }
        let (insert, row) = self.undo_row(branch)?;
        crash_point("before-undo-insert");
        if self.local.is_merged() {
            let call = Captured::ours(compound::insert_and_commit(&insert), row);
            Ok((None, Ending::WithUndoRow(call)))
        } else {
            Ok((Some(Captured::ours(insert, row)), Ending::Commit))
        }
    }

    async fn send(&mut self, call: Option<Captured<DB>>) -> Result<(), sqlx::Error> {
        if let Some(call) = call {
            DB::steps(self.local.begun().await?, call).await?;
        }
        Ok(())
    }

    fn refuse_incomplete(&self) -> Result<(), AtError> {
        self.refuse_ended()?;
        if self.work.half_recorded { Err(AtError::HalfRecorded) } else { Ok(()) }
    }

    fn undo_row(&self, branch: &Branch) -> Result<(String, DB::Arguments), sqlx::Error> {
        let log = UndoLog::encode(self.work.items())
            .map_err(|error| sqlx::Error::Encode(error.into()))?;
        let bytes_max = self.shared.identity.undo_bytes_max;
        if log.len() > bytes_max {
            let (bytes, hint) = (log.len(), DB::UNDO_SIZE_HINT);
            return Err(AtError::UndoTooLarge { bytes, bytes_max, hint }.into());
        }
        Ok(undo_table::insert::<DB>(&branch.xid, branch.id, &log, self.work.events))
    }

    /// COMMIT or ROLLBACK of a branch, and what the coordinator is told.
    async fn end_branch(
        self,
        prepared: Result<Ending<DB>, sqlx::Error>,
        branch: Branch,
    ) -> Result<(), sqlx::Error> {
        let Self { local, shared, .. } = self;
        match prepared {
            Ok(ending) => {
                let brings_row = matches!(ending, Ending::WithUndoRow(_));
                let committing = Committing::new(&shared, &branch);
                let committed = ending.commit(local, &branch).await;
                committing.settled();
                crash_point("after-local-commit");
                match settle(&shared, &branch, committed).await {
                    Err(error) if brings_row => Err(told_by_guard(error, &branch)),
                    settled => settled,
                }
            }
            Err(error) => {
                // A failing rollback changes nothing: the database does the same when it notices
                // that the connection is gone.
                let rolled_back = local.rollback().await;
                if rolled_back.is_ok() && branch.registered {
                    report_failed(&shared, &branch).await;
                }
                Err(error)
            }
        }
    }

    async fn prepare_checked(&mut self) -> Result<(), sqlx::Error> {
        self.refuse_incomplete()?;
        if DB::COMMIT_HIDES_FAILURE {
            self.send(Some(Captured::plain("SELECT 1".to_owned()))).await?;
        }
        let wait = if DB::WAITS_WITH_LOCKS { self.shared.lock_timeout } else { Duration::ZERO };
        check_locks(&self.shared, "", self.work.locks(), wait, HOLDING_LOCKS).await?;
        Ok(())
    }

    async fn end_checked(self, prepared: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        match prepared {
            Ok(()) => self.local.commit().await,
            Err(error) => {
                // As above: the first error is the one that tells.
                let _ = self.local.rollback().await;
                Err(error)
            }
        }
    }

    /// Makes sure that no other global holds rows that a globally committed read has seen.
    pub(super) async fn require_committed_rows(&mut self) -> Result<(), sqlx::Error> {
        if self.work.awaited.is_empty() {
            return Ok(());
        }
        let Part::Branch(branch) = &self.part else { return Ok(()) };
        // Never waits here: what was read is read, and only a repeated read sees what a holder
        // that rolls back puts back.
        let (xid, rows) = (branch.xid.as_str(), mem::take(&mut self.work.awaited));
        crash_point("before-check");
        let checked = check_locks(&self.shared, xid, &rows, Duration::ZERO, HOLDING_LOCKS).await;
        if checked.is_err() {
            // Whoever read does not get to see them, and may go on without.
            self.work.unseen = rows;
        }
        Ok(checked?)
    }
}

/// How a branch's local transaction is committed.
enum Ending<DB: AtDatabase> {
    /// By a COMMIT of its own.
    Commit,
    /// By the call that brings the undo row.
    WithUndoRow(Captured<DB>),
}

impl<DB: AtDatabase> Ending<DB> {
    /// After an error of the database the local transaction is rolled back.
    async fn commit(self, mut local: Local<'_, DB>, branch: &Branch) -> Result<(), sqlx::Error> {
        let call = match self {
            Self::Commit => return local.commit().await.map_err(in_doubt::<DB>),
            Self::WithUndoRow(call) => call,
        };
        let Err(error) = local.commit_by(call).await else { return Ok(()) };
        if error.as_database_error().is_none() {
            return Err(error);
        }
        // Who interrupts the call behind COMMIT fails one that has committed: its row is there.
        match row_stays(&mut local, branch).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            // Of no error of the database: nobody knows.
            Err(unknown) => Err(sqlx::Error::Protocol(format!("{error}; then {unknown}"))),
        }
    }
}

/// An error that does not say that the database has rolled back is none of the database's: a proxy
/// that has lost the server behind it answers as one.
fn in_doubt<DB: Backend>(error: sqlx::Error) -> sqlx::Error {
    let is_told = error.as_database_error().is_none_or(DB::tells_rollback);
    if is_told { error } else { sqlx::Error::Protocol(error.to_string()) }
}

/// Whether a branch's undo row is there when whatever is open has been rolled back.
async fn row_stays<DB: AtDatabase>(
    local: &mut Local<'_, DB>,
    branch: &Branch,
) -> Result<bool, sqlx::Error> {
    local.roll_back().await?;
    let found = undo_table::find::<DB>(local.connection(), branch.xid.as_str(), branch.id).await?;
    Ok(matches!(found, Some(Found::Log { .. })))
}

/// An error of the statement that puts in the undo row.
fn told_by_guard(error: sqlx::Error, branch: &Branch) -> sqlx::Error {
    if undo_table::is_guard_conflict(&error) {
        AtError::GlobalFinished { xid: branch.xid.to_string() }.into()
    } else {
        error
    }
}

pub(super) const HOLDING_LOCKS: v1::Holding = v1::Holding::DatabaseLocks;

/// Tells the coordinator what a COMMIT came to, where it has to know.
async fn settle<DB: Backend>(
    shared: &Arc<Shared<DB>>,
    branch: &Branch,
    committed: Result<(), sqlx::Error>,
) -> Result<(), sqlx::Error> {
    let Err(error) = committed else { return Ok(()) };
    crash_point("before-phase-one-report");
    if error.as_database_error().is_some() {
        // A deferred constraint, for example: the database says itself that it rolled back.
        if branch.registered {
            report_failed(shared, branch).await;
        }
        return Err(error);
    }
    branch.running.doubt();
    if branch.registered {
        let unknown = v1::PhaseOneOutcome::Unknown;
        shared.coordinator.report_outcome(&branch.xid, branch.id, unknown).await;
    }
    Err(AtError::CommitUnknown { reason: error.to_string() }.into())
}

/// The local transaction is rolled back for certain: the branch and its locks can go.
pub(super) async fn report_failed<DB: Backend>(shared: &Arc<Shared<DB>>, branch: &Branch) {
    shared.coordinator.report_outcome(&branch.xid, branch.id, v1::PhaseOneOutcome::Failed).await;
}

/// A COMMIT that is cut off by a dropped future: whether the database got it cannot be known, so
/// the global must not commit, and nobody here learns when the branch has ended.
struct Committing<'b> {
    branch: &'b Branch,
    in_doubt: Option<UnknownOutcomeGuard>,
}

impl<'b> Committing<'b> {
    fn new<DB: Backend>(shared: &Shared<DB>, branch: &'b Branch) -> Self {
        let unknown = v1::PhaseOneOutcome::Unknown;
        let in_doubt =
            || UnknownOutcomeGuard::new(&shared.coordinator, &branch.xid, branch.id, unknown);
        Self { branch, in_doubt: branch.registered.then(in_doubt) }
    }

    fn settled(mut self) {
        if let Some(mut in_doubt) = self.in_doubt.take() {
            in_doubt.disarm();
        }
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if self.in_doubt.is_some() {
            self.branch.running.doubt();
        }
    }
}

async fn register<DB: Backend>(
    shared: &Shared<DB>,
    request: v1::RegisterBranchRequest,
) -> Result<(), Error> {
    crash_point("before-register");
    shared.coordinator.register_branch(request).await?;
    crash_point("after-register");
    Ok(())
}

fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::Unanswered { .. })
}

/// A registration of a branch with rows.
pub(super) fn registration<DB: Backend>(
    shared: &Shared<DB>,
    branch: &Branch,
    rows: &Locks,
    wait: Duration,
    holding: v1::Holding,
) -> v1::RegisterBranchRequest {
    v1::RegisterBranchRequest {
        xid: branch.xid.to_string(),
        branch_id: branch.id,
        resource_id: shared.identity.resource_id.clone(),
        mode: v1::Mode::At.into(),
        rows: rows.to_wire(),
        wait: Some(lock_wait(wait, holding)),
        application_data: Vec::new(),
        // The stream's own.
        client_id: String::new(),
    }
}

/// Waits until no other global than `xid` holds the rows.
pub(super) async fn check_locks<DB: Backend>(
    shared: &Shared<DB>,
    xid: &str,
    rows: &Locks,
    wait: Duration,
    holding: v1::Holding,
) -> Result<(), AtError> {
    if rows.is_empty() {
        return Ok(());
    }
    let request = v1::CheckLocksRequest {
        xid: xid.to_owned(),
        resource_id: shared.identity.resource_id.clone(),
        rows: rows.to_wire(),
        wait: Some(lock_wait(wait, holding)),
    };
    shared.coordinator.check_locks(request).await?;
    Ok(())
}

fn lock_wait(wait: Duration, holding: v1::Holding) -> v1::LockWait {
    let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    v1::LockWait { timeout_ms, holding: holding.into() }
}
