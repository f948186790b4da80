//! A database that takes part in global transactions by two-phase commit.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use handfast_proto::v1;
use handfast_rm_core::two_phase::{BranchName, Node};
use sqlx::{Database, Pool};

use super::database::{Sessions, XaDatabase};
use super::error::XaError;
use super::hold::Held;
use super::lease::Lease;
use super::phase_two::XaPhaseTwo;
use super::sweep::{self, Sweeper, Swept};
use super::transaction::XaTransaction;
use crate::at::database::Identity;
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// How long the connection aside is kept without use.
const ASIDE_IDLE_MAX: Duration = Duration::from_secs(10);

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
    pub(super) shared: Arc<Shared<DB>>,
}

/// What all clones of a resource, its transactions and its phase two share.
#[derive(Debug)]
pub(super) struct Shared<DB: XaDatabase> {
    pub(super) pool: Pool<DB>,
    /// One connection, made where the pool has none left.
    aside: Pool<DB>,
    pub(super) coordinator: Coordinator,
    pub(super) identity: Identity,
    pub(super) node: Node,
    pub(super) sessions: Sessions,
    pub(super) held: Held<DB>,
    pub(super) sweeper: Sweeper,
}

/// As the pool makes them, but one, and not for long after it was of use.
fn aside<DB: Database>(pool: &Pool<DB>) -> Pool<DB> {
    let options = pool.options().clone().min_connections(0).max_connections(1);
    let options = options.idle_timeout(ASIDE_IDLE_MAX);
    options.connect_lazy_with(pool.connect_options().as_ref().clone())
}

impl<DB: XaDatabase> Shared<DB> {
    /// A session to carry out decisions in. Where all of the pool's are in use, perhaps by those
    /// who wait for the very rows that the decision frees, it is one aside.
    pub(super) async fn session_for_decisions(&self) -> Result<Lease<DB>, sqlx::Error> {
        let pool = &self.pool;
        let is_used_up =
            pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections();
        Lease::acquire(if is_used_up { &self.aside } else { pool }).await
    }

    /// Names a branch: positive and 63 bits, drawn so that no two processes draw the same.
    pub(super) fn name_branch(&self, xid: &Xid) -> BranchName {
        let branch = (rand::random::<u64>() >> 1).max(1);
        BranchName { node: self.node.clone(), branch, xid: xid.text().clone() }
    }
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
    /// Whose the branches are, in the names that the database knows them by: 1 to 32 letters,
    /// digits, `-`, `_` and `.`. Default: the application's name. Processes with one node id
    /// recover each other's branches, so all processes of a service may share one. Services that
    /// use other coordinators must not: theirs know nothing of these branches, and roll them back.
    pub fn node(mut self, id: impl Into<String>) -> Self {
        self.node = id.into();
        self
    }

    /// How long a session stays with a prepared branch where the server asks for that (MariaDB, and
    /// MySQL before 8.0.29); 3 seconds unless set. After that the session is closed and any process
    /// can finish the branch. Too short: connections are made anew for most branches. Too long:
    /// phase two that reaches another process of the service waits for it. Zero: never held.
    pub fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = limit;
        self
    }

    /// How often to look for branches that were left prepared, 30 seconds unless set. Too short:
    /// the database is asked for nothing. Too long: rows stay locked.
    pub fn sweep_every(mut self, every: Duration) -> Self {
        self.sweep_every = every.max(Duration::from_millis(1));
        self
    }

    /// How long a prepared branch must have been seen, the coordinator knowing nothing of its
    /// global, before it is rolled back; 60 seconds unless set. Too short: a coordinator that has
    /// just lost the lead may be believed. Too long: rows stay locked.
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
        let shared = Arc::new(Shared {
            aside: aside(&self.pool),
            pool: self.pool,
            coordinator: self.coordinator,
            identity,
            node,
            sessions,
            held: Held::new(held_max.unwrap_or(usize::MAX), self.hold_limit),
            sweeper: Sweeper::new(self.sweep_every, self.orphan_after),
        });
        let resource = v1::Resource {
            id: shared.identity.resource_id.clone(),
            mode: v1::Mode::Xa.into(),
            label: shared.identity.label.clone(),
        };
        let phase_two = Arc::new(XaPhaseTwo::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(resource, phase_two);
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
    /// The resource id: the database's own identity, the same through whatever URL it is reached.
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
    ///     .transaction(|local| {
    ///         Box::pin(async move {
    ///             let debit = "UPDATE account SET cents = cents - 5 RETURNING cents";
    ///             let left: i64 = sqlx::query_scalar(debit).fetch_one(&mut *local).await?;
    ///             sqlx::query("INSERT INTO debit (cents) VALUES (5)").execute(&mut *local).await?;
    ///             Ok(left)
    ///         })
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
    pub async fn transaction<'env, T, F>(&'env self, work: F) -> Result<T, sqlx::Error>
    where
        F: for<'local> FnOnce(
            &'local mut XaTransaction<'env, DB>,
        ) -> BoxFuture<'local, Result<T, sqlx::Error>>,
    {
        // The error is named here, so that no closure has to name it.
        self.try_transaction(work).await
    }

    /// As [`transaction`](Self::transaction), for a closure whose error is of another type. It has
    /// to be named somewhere, in the closure or where the result goes.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub async fn try_transaction<'env, T, E, F>(&'env self, work: F) -> Result<T, E>
    where
        F: for<'local> FnOnce(
            &'local mut XaTransaction<'env, DB>,
        ) -> BoxFuture<'local, Result<T, E>>,
        E: From<sqlx::Error>,
    {
        let shared = Arc::clone(&self.shared);
        let mut local: XaTransaction<'env, DB> =
            XaTransaction::begin(shared, context::current()).await?;
        match work(&mut local).await {
            Ok(value) => {
                local.commit().await?;
                Ok(value)
            }
            Err(error) => {
                local.rollback().await?;
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
