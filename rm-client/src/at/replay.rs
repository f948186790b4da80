//! Local transactions that are repeated from their start when a global lock is in the way, or when
//! the database has ended them in favour of others.
//!
//! ```text
//! attempt: BEGIN … INSERT undo_log, RegisterBranch(no waiting) ── granted ── COMMIT
//!              └─ a row is locked: ROLLBACK, RegisterBranch(holding nothing, waiting), again
//! ```
//!
//! So whoever waits holds nothing that others wait for: neither rows of the database nor SQLite's
//! writer lock. The branch keeps its id and its granted rows from attempt to attempt.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use handfast_proto::v1;
use handfast_rm_core::plan::{Parsed, Reads};
use tokio::time::Instant;

use super::captured::Captured;
use super::commit::{check_locks, registration, report_failed};
use super::crash_point::crash_point;
use super::database::{AtDatabase, Steps};
use super::error::AtError;
use super::locks::Locks;
use super::resource::{AtResource, Shared};
use super::transaction::{AtTransaction, Branch, Conflict, Part};
use crate::context;
use crate::fence::is_conflict;

/// How often rows may differ, a table change or the database break a deadlock before the error goes
/// to the caller. Waiting for global locks is bounded by time instead.
const REPEATS_MAX: u32 = 100;

impl<DB: AtDatabase> AtResource<DB> {
    /// Runs a closure in a local transaction and commits it. Inside a global this is a branch that
    /// waits for rows of other globals without holding a lock of the database, which makes it the
    /// best form for rows that many want: **the closure may run several times**, each time in a
    /// fresh local transaction, so it must do nothing else that cannot be repeated. It is repeated,
    /// too, when the database has failed one of its statements for a deadlock.
    ///
    /// ```no_run
    /// use handfast::outbox::Event;
    ///
    /// # async fn example(stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), sqlx::Error> {
    /// let left = stock
    ///     .transaction(|local| {
    ///         Box::pin(async move {
    ///             let take = "UPDATE stock SET n = n - 1 WHERE id = ? RETURNING n";
    ///             let left: i64 = sqlx::query_scalar(take).bind(7).fetch_one(&mut *local).await?;
    ///             let sale = "INSERT INTO sale (product_id) VALUES (?)";
    ///             sqlx::query(sale).bind(7).execute(&mut *local).await?;
    ///             local.emit(&Event::new("stock", "7").payload("taken")).await?;
    ///             Ok(left)
    ///         })
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The closure boxes its future, as with sqlx's own `Connection::transaction`: the compiler
    /// cannot prove of an `async |local|` closure that it may move between threads, which handlers
    /// of web servers and spawned tasks must. What it borrows has to live as long as the resource.
    ///
    /// A closure that may also refuse for a reason of the application's own goes into
    /// [`try_transaction`](Self::try_transaction).
    ///
    /// # Errors
    /// The closure's own, after which the local transaction is rolled back; what the database says;
    /// or an [`AtError`], such as a locked row after [the lock timeout](super::At::lock_timeout) or
    /// a deadlock.
    pub async fn transaction<'env, T, F>(&'env self, work: F) -> Result<T, sqlx::Error>
    where
        F: for<'local> FnMut(
            &'local mut AtTransaction<'env, DB>,
        ) -> BoxFuture<'local, Result<T, sqlx::Error>>,
    {
        // The error is named here, so that no closure has to name it.
        self.try_transaction(work).await
    }

    /// As [`transaction`](Self::transaction), for a closure whose error is of another type. It has
    /// to be named somewhere, in the closure or where the result goes.
    ///
    /// ```no_run
    /// #[derive(Debug, thiserror::Error)]
    /// enum Failure {
    ///     #[error("sold out")]
    ///     SoldOut,
    ///     #[error(transparent)]
    ///     Database(#[from] sqlx::Error),
    /// }
    ///
    /// # async fn example(stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), Failure> {
    /// let work = stock.try_transaction(|local| {
    ///     Box::pin(async move {
    ///         let take = "UPDATE stock SET n = n - 1 WHERE id = ? AND n > 0";
    ///         let taken = sqlx::query(take).bind(7).execute(&mut *local).await?;
    ///         if taken.rows_affected() == 0 {
    ///             return Err(Failure::SoldOut);
    ///         }
    ///         Ok(())
    ///     })
    /// });
    /// work.await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub async fn try_transaction<'env, T, E, F>(&'env self, mut work: F) -> Result<T, E>
    where
        F: for<'local> FnMut(
            &'local mut AtTransaction<'env, DB>,
        ) -> BoxFuture<'local, Result<T, E>>,
        E: From<sqlx::Error>,
    {
        let mut attempts = Attempts::new(Arc::clone(&self.shared))?;
        loop {
            let mut local: AtTransaction<'env, DB> = attempts.begin().await?;
            match work(&mut local).await {
                Ok(value) => match attempts.commit(local).await? {
                    Attempt::Done => return Ok(value),
                    Attempt::Again => {}
                },
                Err(error) => match attempts.give_up(local).await? {
                    Attempt::Done => return Err(error),
                    Attempt::Again => {}
                },
            }
        }
    }

    /// Runs one statement as a branch of its own.
    pub(super) async fn run_alone(&self, query: Captured<DB>) -> Result<Steps<DB>, sqlx::Error> {
        let mut attempts = Attempts::new(Arc::clone(&self.shared))?;
        loop {
            let mut local = attempts.begin().await?;
            match local.run(query.clone()).await {
                Ok(steps) => match attempts.commit(local).await? {
                    Attempt::Done => return Ok(steps),
                    Attempt::Again => {}
                },
                Err(error) => match attempts.give_up(local).await? {
                    Attempt::Done => return Err(error),
                    Attempt::Again => {}
                },
            }
        }
    }

    /// Whether a query goes to the pool untouched: no global, or nothing in it to undo or lock.
    pub(super) fn passes(&self, query: &Captured<DB>) -> Result<bool, sqlx::Error> {
        let Some(context) = context::current() else { return self.passes_outside(query) };
        let reads = if context.read_committed { Reads::Committed } else { Reads::Local };
        match &*self.shared.catalogue.parse(reads, query.sql()) {
            Ok(Parsed::Pass) => Ok(true),
            Ok(Parsed::Statement(_)) => Ok(false),
            Err(refusal) => Err(AtError::Refused(refusal.clone()).into()),
        }
    }

    /// Outside of a global nothing is in the way of a query, unless the resource takes no work
    /// there; reads it does.
    fn passes_outside(&self, query: &Captured<DB>) -> Result<bool, sqlx::Error> {
        let reads_only = || {
            let parsed = self.shared.catalogue.parse(Reads::Local, query.sql());
            matches!(&*parsed, Ok(Parsed::Pass))
        };
        if self.shared.only_in_global && !reads_only() {
            return Err(self.shared.outside_global().into());
        }
        Ok(true)
    }
}

/// What an attempt came to.
enum Attempt {
    Done,
    Again,
}

/// The attempts of one local transaction.
struct Attempts<DB: AtDatabase> {
    shared: Arc<Shared<DB>>,
    part: Part,
    deadline: Instant,
    repeats: u32,
}

impl<DB: AtDatabase> Attempts<DB> {
    fn new(shared: Arc<Shared<DB>>) -> Result<Self, sqlx::Error> {
        let part = match shared.context()? {
            None => Part::Plain,
            Some(context) => Part::Branch(Branch::new(&shared.branches, context, Conflict::Fail)),
        };
        let deadline = Instant::now() + shared.lock_timeout;
        Ok(Self { shared, part, deadline, repeats: 0 })
    }

    async fn begin(&mut self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        let begun = AtTransaction::begin_part(Arc::clone(&self.shared), self.part.clone()).await;
        if begun.is_err() {
            self.abandon().await;
        }
        begun
    }

    /// Commits; if a global lock is in the way, waits for it with nothing held.
    async fn commit(&mut self, local: AtTransaction<'_, DB>) -> Result<Attempt, sqlx::Error> {
        let (locks, was_broken) = (local.work.locks().clone(), local.work.repeatable);
        let Err(error) = local.commit().await else { return Ok(Attempt::Done) };
        let is_broken = match AtError::of(&error) {
            Some(ours) if ours.is_row_locked() => {
                self.wait_and_take(&locks).await?;
                crash_point("before-replay");
                return Ok(Attempt::Again);
            }
            // The closure has made nothing of its statement's failure.
            Some(ours) => was_broken && matches!(ours, AtError::Ended),
            None => is_conflict(&error) || (was_broken && error.as_database_error().is_some()),
        };
        // Commit has told the coordinator that the branch has failed.
        if !(is_broken && self.may_repeat()) {
            return Err(error);
        }
        if let Part::Branch(branch) = &mut self.part {
            *branch = branch.anew(&self.shared.branches);
        }
        Ok(Attempt::Again)
    }

    fn may_repeat(&mut self) -> bool {
        self.repeats += 1;
        matches!(self.part, Part::Branch(_))
            && self.repeats <= REPEATS_MAX
            && Instant::now() < self.deadline
    }

    /// Rolls back after the closure failed. Again, if a statement failed for a reason that may be
    /// gone; done, if the failure is the caller's to see.
    async fn give_up(&mut self, local: AtTransaction<'_, DB>) -> Result<Attempt, sqlx::Error> {
        let repeatable = local.work.repeatable || local.work.stale_tables;
        let unseen = local.work.unseen.clone();
        if !(repeatable && self.may_repeat()) {
            // Reports the branch as failed where the coordinator knows of it.
            local.rollback().await?;
            return Ok(Attempt::Done);
        }
        let AtTransaction { local: inner, .. } = local;
        inner.rollback().await?;
        self.wait_for(&unseen).await?;
        Ok(Attempt::Again)
    }

    /// Takes rows for the branch, waiting for them with nothing held.
    async fn wait_and_take(&mut self, rows: &Locks) -> Result<(), sqlx::Error> {
        let (shared, left) = (Arc::clone(&self.shared), self.left());
        let Part::Branch(branch) = &mut self.part else { return Ok(()) };
        let request = registration(&shared, branch, rows, left, v1::Holding::Nothing);
        // From here on the coordinator may know of the branch.
        branch.registered = true;
        match shared.coordinator.register_branch(request).await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.abandon().await;
                Err(AtError::from(error).into())
            }
        }
    }

    /// Waits until no other global holds rows that were read.
    async fn wait_for(&mut self, rows: &Locks) -> Result<(), sqlx::Error> {
        let Part::Branch(branch) = &self.part else { return Ok(()) };
        let (xid, left) = (branch.xid.as_str(), self.left());
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

    /// There will be no further attempt, and nothing is open: lets go of what was granted.
    async fn abandon(&mut self) {
        if let Part::Branch(branch) = &mut self.part
            && std::mem::take(&mut branch.registered)
        {
            report_failed(&self.shared, branch).await;
        }
    }
}
