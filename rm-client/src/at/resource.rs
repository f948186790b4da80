//! A database that takes part in global transactions in AT mode.

use std::fmt;
use std::sync::Arc;

use handfast_rm_core::plan::{Reads, StatementRefusal};
use sqlx::Pool;

use super::database::bound_query::BoundQuery;
use super::database::catalogue::Managed;
use super::database::{AtDatabase, Steps};
use super::error::AtError;
use super::phase_one::{AtTransaction, Attempt, Attempts, Part};
use super::resource_state::ResourceState;
use crate::context;
use crate::executor::Route;
use crate::guard::TransactionGuard;

/// A database, known to the coordinator, whose local transactions can be branches of a global one.
///
/// Cheap to clone. Made by [`Handfast::at`](crate::Handfast::at). It is a `sqlx::Executor`: outside
/// of a global transaction exactly as its pool is, inside of one each writing statement is a branch
/// of its own.
///
/// ```no_run
/// # async fn example(handfast: handfast::Handfast, pool: sqlx::SqlitePool) -> Result<(),
/// sqlx::Error> { let stock = handfast.at(pool).await?;
/// let mut local = stock.begin().await?;
/// sqlx::query("UPDATE stock SET units = units - 1 WHERE product_id = ?")
///     .bind(7)
///     .execute(&mut local)
///     .await?;
/// local.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct AtResource<DB: AtDatabase> {
    pub(super) shared: Arc<ResourceState<DB>>,
    /// The part that its local transactions take in globals.
    pub(super) part: Part,
}

impl<DB: AtDatabase> Clone for AtResource<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), part: self.part }
    }
}

impl<DB: AtDatabase> fmt::Debug for AtResource<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtResource").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl<DB: AtDatabase> AtResource<DB> {
    /// The resource id: the database's own identity, the same for every URL that leads to it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.identity.resource_id
    }

    /// The pool, for work that no global transaction should know of.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        &self.shared.pool
    }

    /// Returns this resource for the last branch of a global: where nothing but its commit is left
    /// to do, the local commit of the branch commits the global. That saves the caller a round trip
    /// to the coordinator and its sync.
    ///
    /// ```no_run
    /// # async fn example(handfast: handfast::Handfast, orders: handfast::AtResource<sqlx::Sqlite>,
    /// # stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), Box<dyn std::error::Error>> {
    /// let take = "UPDATE stock SET units = units - 1 WHERE product_id = 7";
    /// let place = "INSERT INTO orders (product_id) VALUES (7)";
    /// let order = handfast.transaction("place-order");
    /// let placed = order.run(async |_tx| {
    ///     sqlx::query(take).execute(&stock).await?;
    ///     // From here on the order is placed.
    ///     sqlx::query(place).execute(&orders.last()).await
    /// });
    /// placed.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Once the commit of that branch has succeeded, the global is committed: an error that the
    /// closure returns after it cannot roll it back
    /// ([`TransactionError::Committed`](crate::TransactionError::Committed)), and no further branch
    /// can join. All other work of the global has to be done before, that of other processes too.
    ///
    /// A branch that finds nothing to write, or whose global began in another process, has
    /// participants in two-phase commit, is set rollback-only, or has another branch open in this
    /// process, is a branch as any other, and the end of the closure decides. An UPDATE that leaves
    /// its row as it was may count as either.
    ///
    /// If the process is killed between the local commit and its report to the coordinator, the
    /// coordinator asks the database when the global's timeout is over, and commits.
    #[must_use]
    pub fn last(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), part: Part::LastBranch }
    }

    /// Returns this resource for work in this database alone, outside of any global: transactions
    /// in one phase, whose commit makes sure that no global holds the rows that they have written,
    /// or read FOR UPDATE. They take no lock, leave no undo row, and cost one round trip to the
    /// coordinator, which stores nothing.
    ///
    /// So an action that changes one database needs no global and is still isolated from those that
    /// change several. [`transaction`](Self::transaction) and single statements wait with nothing
    /// held, and are repeated; [`begin`](Self::begin) waits holding its rows.
    ///
    /// ```no_run
    /// # async fn example(stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), sqlx::Error> {
    /// let count = "UPDATE stock SET units = 40 WHERE product_id = 7";
    /// sqlx::query(count).execute(&stock.checked()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the answer to the commit is lost, the outcome is unknown as it is without a coordinator:
    /// nothing but the rows themselves tells it.
    ///
    /// Within a global a local transaction of it does not begin:
    /// [`AtError::CheckedInsideGlobal`].
    #[must_use]
    pub fn checked(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), part: Part::Checked }
    }

    /// Begins a local transaction: a branch of the ambient global, or a plain one outside of any.
    ///
    /// Its commit waits for rows that other globals hold while it holds its own database locks,
    /// which other writers then wait for; [`AtResource::transaction`] does not. On SQLite, whose
    /// one writer lock would stop all writers, commit does not wait at all.
    ///
    /// # Errors
    /// As `sqlx::Pool::begin`; [`AtError::OutsideGlobal`] outside of a global, if the resource is
    /// [for globals only](super::At::only_in_global).
    pub async fn begin(&self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        AtTransaction::begin(Arc::clone(&self.shared), self.part).await
    }

    /// Begins a local transaction outside of any global one, whose commit makes sure that no global
    /// holds the rows it has written or read FOR UPDATE. So a service that does not take part in
    /// globals can still respect their isolation.
    ///
    /// # Errors
    /// [`AtError::CheckedInsideGlobal`] inside a global, else as `sqlx::Pool::begin`.
    pub async fn begin_checked(&self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        self.checked().begin().await
    }

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
    ///     .transaction(async |mut local| {
    ///         let take = "UPDATE stock SET n = n - 1 WHERE id = ? RETURNING n";
    ///         let left: i64 = sqlx::query_scalar(take).bind(7).fetch_one(&mut *local).await?;
    ///         let sale = "INSERT INTO sale (product_id) VALUES (?)";
    ///         sqlx::query(sale).bind(7).execute(&mut *local).await?;
    ///         local.emit(&Event::new("stock", "7").payload("taken")).await?;
    ///         Ok(left)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The closure borrows what it uses, and cannot change it: it may run again. It gets the local
    /// transaction in a [`TransactionGuard`] and not as `&mut`: otherwise the compiler could not
    /// prove that handlers of web servers and spawned tasks may move between threads.
    ///
    /// A closure that may also refuse for a reason of the application's own goes into
    /// [`try_transaction`](Self::try_transaction).
    ///
    /// # Errors
    /// The closure's own, after which the local transaction is rolled back; what the database says;
    /// or an [`AtError`], such as a locked row after [the lock timeout](super::At::lock_timeout) or
    /// a deadlock.
    pub async fn transaction<T, F, R>(&self, work: F) -> Result<T, sqlx::Error>
    where
        F: FnMut(TransactionGuard<AtTransaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, sqlx::Error>>,
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
    /// let work = stock.try_transaction(async |mut local| {
    ///     let take = "UPDATE stock SET n = n - 1 WHERE id = ? AND n > 0";
    ///     let taken = sqlx::query(take).bind(7).execute(&mut *local).await?;
    ///     if taken.rows_affected() == 0 {
    ///         return Err(Failure::SoldOut);
    ///     }
    ///     Ok(())
    /// });
    /// work.await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub async fn try_transaction<T, E, F, R>(&self, mut work: F) -> Result<T, E>
    where
        F: FnMut(TransactionGuard<AtTransaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<sqlx::Error>,
    {
        let mut attempts = Attempts::new(Arc::clone(&self.shared), self.part)?;
        loop {
            let (guard, back) = TransactionGuard::lend(attempts.begin().await?);
            let ended = Box::pin(work(guard)).await;
            let local = back.taken().ok_or(AtError::Kept).map_err(sqlx::Error::from)?;
            match ended {
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
    pub(super) async fn run_alone(
        &self,
        query: BoundQuery<DB>,
        managed: Managed,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let mut attempts = Attempts::new(Arc::clone(&self.shared), self.part)?;
        if let Managed::Statement(statement) = &managed {
            attempts.take_ahead(&query, statement).await?;
        }
        if let Some(steps) = attempts.run_joined(&query, &managed).await? {
            return Ok(steps);
        }
        if let Some(steps) = attempts.run_whole(&query).await? {
            return Ok(steps);
        }
        loop {
            attempts.compose(&query, &managed);
            let mut local = attempts.begin().await?;
            match local.run(query.clone(), managed.clone()).await {
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

    /// Decides how a query goes to the database. A statement is parsed here and nowhere else.
    pub(super) fn classify(&self, query: &BoundQuery<DB>) -> Result<Route<Managed>, sqlx::Error> {
        let reads = match context::current() {
            Some(context) if context.read_committed => Reads::Committed,
            Some(_) => Reads::Local,
            None if self.part == Part::Checked => Reads::Local,
            None => return self.classify_outside(query),
        };
        match self.shared.catalogue.classify(reads, query.sql())? {
            Route::Plain => Ok(Route::Plain),
            route @ Route::Planned(Managed::Statement(_) | Managed::Several(_)) => Ok(route),
            Route::Planned(Managed::Savepoint(_)) => {
                // Its local transaction would end with it.
                let statement = "SAVEPOINT".to_owned();
                Err(AtError::Refused(StatementRefusal::TransactionControl { statement }).into())
            }
        }
    }

    /// Classifies a query outside of a global: it runs untouched, unless the resource takes only
    /// reads there.
    fn classify_outside(&self, query: &BoundQuery<DB>) -> Result<Route<Managed>, sqlx::Error> {
        let reads_only = || {
            let route = self.shared.catalogue.classify(Reads::Local, query.sql());
            matches!(route, Ok(Route::Plain))
        };
        if self.shared.only_in_global && !reads_only() {
            return Err(self.shared.outside_global().into());
        }
        self.shared.note_outside(query.sql());
        Ok(Route::Plain)
    }
}
