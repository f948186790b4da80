//! Local transactions that are repeated from their start when a global lock is in the way, or when
//! the database has ended them in favour of others.
//!
//! ```text
//! attempt: BEGIN … INSERT undo_log, RegisterBranch(no waiting) ── granted ── COMMIT
//!              └─ a row is locked: ROLLBACK, RegisterBranch(holding nothing, waiting), again
//! ```
//!
//! So a waiting branch holds nothing that others wait for: neither rows of the database nor
//! SQLite's writer lock. The branch keeps its id and its granted rows from attempt to attempt. The
//! last attempt, even if its future is dropped, either commits or reports the branch as failed:
//! otherwise the rows would stay locked until the global is decided.

use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;
use tokio::time::Instant;
use tracing::Instrument;

use super::ahead::CountingStatement;
use super::branch::{OnConflict, Part, Role};
use super::composed::ComposedStatement;
use super::registration::{check_locks, registration, report_failed, report_failed_unawaited};
use super::row_locks::RowLocks;
use super::transaction::AtTransaction;
use crate::at::crash_point::crash_point;
use crate::at::database::AtDatabase;
use crate::at::database::catalogue::Planned;
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::RunningLastBranch;
use crate::fence::is_conflict;

/// How often rows may differ, a table change or the database break a deadlock before the error goes
/// to the caller. Waiting for global locks is bounded by time instead.
const REPEATS_MAX: u32 = 100;

/// The end of one attempt.
pub(crate) enum Attempt {
    Done,
    Again,
}

/// The attempts of one local transaction.
pub(crate) struct Attempts<DB: AtDatabase> {
    pub(super) shared: Arc<ResourceState<DB>>,
    pub(super) role: Role,
    /// The single statement that changes a counter.
    pub(super) counting: Option<Arc<CountingStatement<DB>>>,
    /// The plan of the single statement whose row was granted before anything was sent.
    pub(super) named: Option<Arc<Planned<DB>>>,
    /// Counts it among the last branches that run on the resource.
    pub(super) running_last: Option<RunningLastBranch>,
    /// The single statement of the next attempt, if the database composes its undo row.
    pub(super) composed: Option<ComposedStatement<DB>>,
    /// Whether the next attempt may have its undo row composed. After a failure it may not: the
    /// error does not tell which part failed.
    pub(super) may_compose: bool,
    deadline: Instant,
    repeats: u32,
}

impl<DB: AtDatabase> Attempts<DB> {
    pub(crate) fn new(shared: Arc<ResourceState<DB>>, part: Part) -> Result<Self, sqlx::Error> {
        let role = Role::of(&shared, part, OnConflict::Fail)?;
        let deadline = Instant::now() + shared.lock_timeout;
        let (counting, named, composed) = (None, None, None);
        Ok(Self {
            shared,
            role,
            counting,
            named,
            running_last: None,
            composed,
            may_compose: true,
            deadline,
            repeats: 0,
        })
    }

    pub(crate) async fn begin(&mut self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        let begun = AtTransaction::begin_as(Arc::clone(&self.shared), self.role.clone()).await;
        match begun {
            Ok(local) => Ok(AtTransaction { composed: self.composed.take(), ..local }),
            Err(error) => {
                self.abandon().await;
                Err(error)
            }
        }
    }

    /// Commits; if a global lock is in the way, waits for it with nothing held.
    pub(crate) async fn commit(
        &mut self,
        local: AtTransaction<'_, DB>,
    ) -> Result<Attempt, sqlx::Error> {
        self.adopt(&local);
        if self.is_misjudged(&local) || self.is_joined() {
            return self.start_again(local).await;
        }
        // The commit consumes the log, whose rows a wait for them needs afterwards.
        let (locks, was_broken) = (local.log.locks().clone(), local.log.repeatable);
        // The commit reports what has to be known, unless a locked row is in the way: from COMMIT
        // on, a report that it failed could be wrong.
        self.hand_over();
        let Err(error) = local.commit().await else { return Ok(Attempt::Done) };
        let is_broken = match AtError::of(&error) {
            Some(ours) if ours.is_row_locked() => {
                // The commit has rolled back, so nothing is held in the database while this waits:
                // a cycle of such waiters is in the coordinator's wait-for graph, which refuses it.
                match &self.role {
                    Role::Checked(_) => self.wait_for(&locks).await?,
                    Role::Branch(_) | Role::Plain => self.wait_and_take(&locks).await?,
                }
                crash_point("before-replay");
                return Ok(Attempt::Again);
            }
            // The closure has ignored the failure of its statement.
            Some(ours) => was_broken && matches!(ours, AtError::Ended),
            // PostgreSQL answers each statement of a failed transaction with an error that does not
            // name the deadlock, so the failure that was noted before counts as well.
            None => is_conflict(&error) || (was_broken && error.as_database_error().is_some()),
        };
        // The commit has reported to the coordinator that the branch has failed.
        if !(is_broken && self.may_repeat()) {
            return Err(error);
        }
        self.restart_branch();
        Ok(Attempt::Again)
    }

    /// Whether the rows that were granted ahead are not those that the branch needs, or not in the
    /// mode.
    fn is_misjudged(&self, local: &AtTransaction<'_, DB>) -> bool {
        let Role::Branch(branch) = &self.role else { return false };
        !branch.granted.is_empty() && !branch.granted.cover(local.log.locks())
    }

    /// Whether the lock of the branch was asked for as that of the last, and it does not decide, or
    /// not any more: another branch of the global was begun since.
    fn is_joined(&self) -> bool {
        self.named.is_some() && !(self.decides() && self.may_still_decide())
    }

    fn decides(&self) -> bool {
        matches!(&self.role, Role::Branch(branch) if branch.decides)
    }

    /// Takes over what the local transaction has learned of its branch.
    fn adopt(&mut self, local: &AtTransaction<'_, DB>) {
        if let (Role::Branch(branch), Role::Branch(learned)) = (&mut self.role, &local.role) {
            branch.registered = learned.registered;
            branch.decides = learned.decides;
            branch.granted = learned.granted.clone();
        }
    }

    /// Begins again as a branch that holds nothing. With what was granted ahead, two of them that
    /// need more would wait for each other.
    async fn start_again(&mut self, local: AtTransaction<'_, DB>) -> Result<Attempt, sqlx::Error> {
        if let Some(counting) = &self.counting {
            counting.misjudged();
        }
        if let Some(named) = self.named.take()
            && self.is_misjudged(&local)
        {
            named.misjudged();
        }
        if let Err(error) = local.rollback().await {
            // Without an answer nothing is reported: the locks may be released only when the rows
            // are back for certain.
            self.hand_over();
            return Err(error);
        }
        self.abandon().await;
        self.restart_branch();
        Ok(Attempt::Again)
    }

    pub(super) fn restart_branch(&mut self) {
        if let Role::Branch(branch) = &mut self.role {
            let resource = &self.shared.identity.resource_id;
            *branch = branch.restarted(&self.shared.branches, resource, DB::DIALECT);
        }
    }

    fn may_repeat(&mut self) -> bool {
        self.repeats += 1;
        // The closure of a plain local transaction runs once.
        !matches!(self.role, Role::Plain)
            && self.repeats <= REPEATS_MAX
            && Instant::now() < self.deadline
    }

    /// Rolls back after the closure failed. Returns [`Attempt::Again`] if a statement failed for a
    /// reason that may be gone, and [`Attempt::Done`] if the caller is to see the failure.
    pub(crate) async fn give_up(
        &mut self,
        local: AtTransaction<'_, DB>,
    ) -> Result<Attempt, sqlx::Error> {
        self.adopt(&local);
        if !self.decides() {
            self.named = None;
        }
        self.may_compose &= !local.log.is_composition_refused;
        let broken = local.log.repeatable || local.log.stale_tables;
        let repeatable = broken || local.log.is_composition_refused;
        let unseen = local.log.unseen.clone();
        if let Err(error) = local.rollback().await {
            // The caller sees the closure's error. Without an answer nothing is reported: the locks
            // may be released only when the rows are back for certain.
            tracing::debug!(%error, "local transaction left to the database to roll back");
            self.hand_over();
            return Ok(Attempt::Done);
        }
        if !(repeatable && self.may_repeat()) {
            self.abandon().await;
            return Ok(Attempt::Done);
        }
        // The rows that are granted to the branch are kept for the next attempt.
        self.wait_for(&unseen).await?;
        Ok(Attempt::Again)
    }

    /// Takes rows for the branch, waiting for them with nothing held.
    pub(super) async fn wait_and_take(&mut self, rows: &RowLocks) -> Result<(), sqlx::Error> {
        self.take(rows, |_| {}).await.map(drop)
    }

    /// The same for one after which none joins the global. Returns whether its local commit decides
    /// the global.
    pub(super) async fn wait_and_take_last(
        &mut self,
        rows: &RowLocks,
    ) -> Result<bool, sqlx::Error> {
        self.take(rows, |request| request.is_last = true).await
    }

    async fn take(
        &mut self,
        rows: &RowLocks,
        finish: impl FnOnce(&mut v1::RegisterBranchRequest),
    ) -> Result<bool, sqlx::Error> {
        let (shared, left) = (Arc::clone(&self.shared), self.left());
        let Role::Branch(branch) = &mut self.role else { return Ok(false) };
        let mut request = registration(&shared, branch, rows, left, v1::Holding::Nothing);
        finish(&mut request);
        // From here on the coordinator may know of the branch.
        branch.registered = true;
        let span = branch.span.clone();
        match shared.coordinator.register_branch(request).instrument(span).await {
            Ok(reply) => Ok(reply.decides),
            Err(error) => {
                self.abandon().await;
                Err(AtError::from(error).into())
            }
        }
    }

    /// Waits until no other global holds rows that were read, or changed outside of any.
    async fn wait_for(&mut self, rows: &RowLocks) -> Result<(), sqlx::Error> {
        let (xid, left) = match &self.role {
            Role::Plain => return Ok(()),
            Role::Checked(_) => ("", self.left()),
            Role::Branch(branch) => (branch.xid.as_str(), self.left()),
        };
        let waited = check_locks(&self.shared, xid, rows, left, v1::Holding::Nothing).await;
        if let Err(error) = waited {
            self.abandon().await;
            return Err(error.into());
        }
        Ok(())
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Gives up the granted rows: there will be no further attempt, and nothing is open.
    pub(super) async fn abandon(&mut self) {
        if let Role::Branch(branch) = &mut self.role
            && std::mem::take(&mut branch.registered)
        {
            report_failed(&self.shared, branch).await;
        }
    }

    /// Takes up the duty to report the branch again.
    pub(super) fn take_back(&mut self) {
        if let Role::Branch(branch) = &mut self.role {
            branch.registered = true;
        }
    }

    /// Gives up the duty to report the branch.
    pub(super) fn hand_over(&mut self) {
        if let Role::Branch(branch) = &mut self.role {
            branch.registered = false;
        }
    }
}

/// Dropped between two attempts or within the closure, the branch has sent no COMMIT.
impl<DB: AtDatabase> Drop for Attempts<DB> {
    fn drop(&mut self) {
        if let Role::Branch(branch) = &self.role
            && branch.registered
        {
            report_failed_unawaited(&self.shared, branch);
        }
    }
}
