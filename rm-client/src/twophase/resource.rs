//! A database that takes part in global transactions by two-phase commit.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;
use handfast_rm_core::two_phase::Node;
use sqlx::{Database, Pool};

use super::branch_handler::XaBranchHandler;
use super::database::XaDatabase;
use super::error::XaError;
use super::held_sessions::HeldSessions;
use super::state::{Sweeper, XaState, aside};
use super::sweep::{self, Swept};
use super::transaction::XaTransaction;
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::guard::TransactionGuard;

/// A database, known to the coordinator, whose local transactions can be branches of a global one
/// that the database itself prepares and then commits or rolls back.
///
/// Cheap to clone. Made by [`Handfast::xa`]. It is a `sqlx::Executor`: outside of a global
/// transaction exactly as its pool is, inside of one each statement is a branch of its own.
///
/// ```no_run
/// # async fn example(handfast: handfast::Handfast, pool: sqlx::PgPool) -> Result<(),
/// sqlx::Error> { let ledger = handfast.xa(pool).node("ledger").await?;
/// let mut local = ledger.begin().await?;
/// sqlx::query("UPDATE account SET cents = cents - $1 WHERE id = $2")
///     .bind(500)
///     .bind(7)
///     .execute(&mut local)
///     .await?;
/// local.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct XaResource<DB: XaDatabase> {
    pub(super) shared: Arc<XaState<DB>>,
}

impl<DB: XaDatabase> Clone for XaResource<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<DB: XaDatabase> fmt::Debug for XaResource<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XaResource").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Handfast {
    /// Describes a resource of two-phase commit: the database behind a pool. Awaiting it makes sure
    /// that the server can prepare and recover, makes this process one that finishes branches of
    /// it, and begins to look for branches that were left prepared.
    ///
    /// # Errors
    /// [`XaError`]: the database is SQLite, its server is too old or does not keep prepared
    /// transactions, the node id is none, or whatever the database says.
    pub fn xa<DB: XaDatabase>(&self, pool: Pool<DB>) -> Xa<DB> {
        Xa {
            coordinator: self.coordinator().clone(),
            node: self.application().to_owned(),
            pool,
            hold_limit: Duration::from_secs(3),
            sweep_every: Duration::from_secs(30),
            orphan_after: Duration::from_secs(60),
        }
    }
}

/// A description of a resource of two-phase commit; await it to have the resource.
#[derive(Debug)]
#[must_use = "a description does nothing until it is awaited"]
pub struct Xa<DB: Database> {
    coordinator: Coordinator,
    pool: Pool<DB>,
    node: String,
    hold_limit: Duration,
    sweep_every: Duration,
    orphan_after: Duration,
}

impl<DB: XaDatabase> Xa<DB> {
    /// Sets the node id, which the database keeps in the names of branches: 1 to 32 letters,
    /// digits, `-`, `_` and `.`. Default: the application's name. Processes with one node id
    /// recover each other's branches, so all processes of a service may share one. Services that
    /// use other coordinators must not: theirs know nothing of these branches, and roll them back.
    pub fn node(mut self, id: impl Into<String>) -> Self {
        self.node = id.into();
        self
    }

    /// How long a session stays with a prepared branch where the server asks for that (MariaDB, and
    /// MySQL before 8.0.29); 3 seconds unless set. After that the session is closed and any process
    /// can finish the branch. Too short: a new connection is made for most branches. Too long:
    /// phase two that reaches another process of the service waits for it. Zero: never held.
    pub fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = limit;
        self
    }

    /// How often to look for branches that were left prepared, 30 seconds unless set. Too short:
    /// the database is queried in vain. Too long: rows stay locked.
    pub fn sweep_every(mut self, every: Duration) -> Self {
        self.sweep_every = every.max(Duration::from_millis(1));
        self
    }

    /// How long the coordinator must not have known the global of a prepared branch before the
    /// branch is rolled back; 60 seconds unless set. Too short: a coordinator that has just lost
    /// the lead may be believed. Too long: rows stay locked.
    pub fn orphan_after(mut self, age: Duration) -> Self {
        self.orphan_after = age;
        self
    }

    async fn open(self) -> Result<XaResource<DB>, XaError> {
        let node = Node::new(&self.node)?;
        let mut connection = self.pool.acquire().await?;
        let sessions = DB::require(&mut connection).await?;
        let identity = DB::identity(&mut connection).await?;
        let listed = DB::prepared(&mut connection, &node, sweep::BRANCHES_MAX).await;
        listed.map_err(|error| XaError::RecoverDenied { reason: error.to_string() })?;
        drop(connection);
        // Half of the pool stays for work that is not prepared yet, or prepared branches could keep
        // each other from ever being finished.
        let held_max = usize::try_from(self.pool.options().get_max_connections() / 2);
        let shared = Arc::new(XaState {
            aside: aside(&self.pool),
            pool: self.pool,
            coordinator: self.coordinator,
            identity,
            node,
            sessions,
            held: HeldSessions::new(held_max.unwrap_or(usize::MAX), self.hold_limit),
            sweeper: Sweeper::new(self.sweep_every, self.orphan_after),
        });
        let handler = Arc::new(XaBranchHandler::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(shared.identity.resource(v1::Mode::Xa), handler);
        sweep::start(&shared);
        Ok(XaResource { shared })
    }
}

impl<DB: XaDatabase> IntoFuture for Xa<DB> {
    type Output = Result<XaResource<DB>, XaError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl<DB: XaDatabase> XaResource<DB> {
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

    /// Begins a local transaction: a branch of the ambient global, or a plain one outside of any.
    ///
    /// # Errors
    /// As `sqlx::Pool::begin`; or [`XaError::NameTooLong`].
    pub async fn begin(&self) -> Result<XaTransaction<'static, DB>, sqlx::Error> {
        XaTransaction::begin(Arc::clone(&self.shared), context::current()).await
    }

    /// Runs a closure in a local transaction and commits it: phase one, inside a global. The
    /// closure runs once.
    ///
    /// ```no_run
    /// # use handfast::XaResource;
    /// # async fn example(ledger: XaResource<sqlx::Postgres>) -> Result<(), sqlx::Error> {
    /// let left = ledger
    ///     .transaction(async |mut local| {
    ///         let debit = "UPDATE account SET cents = cents - 5 RETURNING cents";
    ///         let left: i64 = sqlx::query_scalar(debit).fetch_one(&mut *local).await?;
    ///         sqlx::query("INSERT INTO debit (cents) VALUES (5)").execute(&mut *local).await?;
    ///         Ok(left)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A closure that may also refuse for a reason of the application's own goes into
    /// [`try_transaction`](Self::try_transaction).
    ///
    /// # Errors
    /// The closure's own, after which the local transaction is rolled back; what the database says;
    /// or an [`XaError`].
    pub async fn transaction<T, F, R>(&self, work: F) -> Result<T, sqlx::Error>
    where
        F: FnOnce(TransactionGuard<XaTransaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, sqlx::Error>>,
    {
        // The error is named here, so that no closure has to name it.
        self.try_transaction(work).await
    }

    /// As [`transaction`](Self::transaction), for a closure whose error is of another type. It has
    /// to be named somewhere, in the closure or where the result goes.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub async fn try_transaction<T, E, F, R>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(TransactionGuard<XaTransaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<sqlx::Error>,
    {
        let shared = Arc::clone(&self.shared);
        let local = XaTransaction::begin(shared, context::current()).await?;
        let (guard, back) = TransactionGuard::lend(local);
        let ended = Box::pin(work(guard)).await;
        let local = back.taken().ok_or(XaError::Kept).map_err(sqlx::Error::from)?;
        match ended {
            Ok(value) => {
                local.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The closure's error is the one to report. A rollback fails only with the
                // connection, and then the database rolls back what was open on it.
                if let Err(error) = local.rollback().await {
                    tracing::debug!(%error, "the branch is left to the database to roll back");
                }
                Err(error)
            }
        }
    }

    /// Looks for prepared branches of this node now, beside the timer, and finishes those that are
    /// decided.
    ///
    /// # Errors
    /// When the database or the coordinator cannot be asked; what was finished until then stays so.
    pub async fn sweep(&self) -> Result<Swept, XaError> {
        sweep::sweep(&self.shared).await
    }
}
