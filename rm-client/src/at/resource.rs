//! A database that takes part in global transactions in AT mode.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;
use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use super::catalogue::Catalogue;
use super::database::{AtDatabase, Backend, Identity, LOCK_TIMEOUT};
use super::error::AtError;
use super::phase_two::{AtPhaseTwo, remove_stale_guards};
use super::running::RunningBranches;
use super::transaction::AtTransaction;
use crate::connect::Handfast;
use crate::context::{self, Context};
use crate::coordinator::Coordinator;

/// A database, known to the coordinator, whose local transactions can be branches of a global one.
///
/// Cheap to clone. Made by [`Handfast::at`]. It is a `sqlx::Executor`: outside of a global
/// transaction exactly as its pool is, inside of one each writing statement is a branch of its own.
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
    pub(crate) shared: Arc<Shared<DB>>,
}

/// What all clones of a resource, its transactions and its phase two share.
#[derive(Debug)]
pub(crate) struct Shared<DB: Backend> {
    pub(crate) pool: Pool<DB>,
    pub(crate) coordinator: Coordinator,
    pub(crate) identity: Identity,
    pub(crate) catalogue: Catalogue<DB>,
    pub(crate) branches: Arc<RunningBranches>,
    pub(crate) lock_timeout: Duration,
    /// Whether branches send several statements in one call.
    pub(crate) merges: bool,
    /// Whether work outside of a global is refused.
    pub(super) only_in_global: bool,
}

impl<DB: Backend> Shared<DB> {
    /// The global that a local transaction is to be a branch of; none, where it is a plain one.
    pub(super) fn context(&self) -> Result<Option<Context>, AtError> {
        let context = context::current();
        if context.is_none() && self.only_in_global {
            return Err(self.outside_global());
        }
        if context.is_none() {
            let resource = &self.identity.resource_id;
            tracing::debug!(%resource, "no XID: plain local transaction");
        }
        Ok(context)
    }

    pub(super) fn outside_global(&self) -> AtError {
        AtError::OutsideGlobal { resource: self.identity.resource_id.clone() }
    }
}

impl<DB: AtDatabase> Clone for AtResource<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<DB: AtDatabase> fmt::Debug for AtResource<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtResource").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Handfast {
    /// Describes an AT resource: the database behind a pool. Awaiting it looks for the client
    /// tables, asks the database for its identity and makes this process one that finishes branches
    /// of it.
    ///
    /// # Errors
    /// [`AtError::ClientTableMissing`] if [`Handfast::migrate`] was never run there, and whatever
    /// the database says.
    pub fn at<DB: AtDatabase>(&self, pool: Pool<DB>) -> At<DB> {
        At {
            coordinator: self.coordinator().clone(),
            pool,
            trusted_triggers: Vec::new(),
            lock_timeout: LOCK_TIMEOUT,
            compound_statements: true,
            only_in_global: false,
        }
    }
}

/// A description of an AT resource; await it to have the resource.
#[derive(Debug)]
#[must_use = "a description does nothing until it is awaited"]
pub struct At<DB: Database> {
    coordinator: Coordinator,
    pool: Pool<DB>,
    trusted_triggers: Vec<String>,
    lock_timeout: Duration,
    compound_statements: bool,
    only_in_global: bool,
}

impl<DB: AtDatabase> At<DB> {
    /// Vouches that a trigger writes nothing but columns of the row that it fires for. Without this
    /// a statement that would fire a trigger is refused, because what a trigger writes elsewhere is
    /// not undone; so is one whose undo would fire it.
    ///
    /// The trigger fires during the undo too: an INSERT trigger when a DELETE is undone. A column
    /// that it fills with something that does not follow from the row, such as the time or a
    /// counter, holds what it fills in then, and not what was there before.
    pub fn trust_trigger(mut self, name: impl Into<String>) -> Self {
        self.trusted_triggers.push(name.into());
        self
    }

    /// How long a branch waits for rows that other globals hold, 30 seconds unless set. Too short,
    /// and a busy row fails transactions that only had to queue; too long, and a caller waits for a
    /// global that is stuck.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Whether a branch may send several statements in one call where the server takes that, which
    /// it does unless told otherwise. MariaDB alone does, with `BEGIN NOT ATOMIC`: an UPDATE of one
    /// row takes three calls instead of six. Set this to `false` behind a proxy that does not know
    /// compound statements.
    pub fn compound_statements(mut self, allowed: bool) -> Self {
        self.compound_statements = allowed;
        self
    }

    /// Refuses work outside of a global: local transactions, and statements that write. Without
    /// this they are plain local ones there, so that a service that was called without its XID (no
    /// [`XidLayer`](crate::propagation::XidLayer), a proxy that drops the header) commits at once
    /// what the caller cannot roll back. Reads are taken everywhere, and so is
    /// [`begin_checked`](AtResource::begin_checked), which is for outside.
    pub fn only_in_global(mut self) -> Self {
        self.only_in_global = true;
        self
    }

    async fn open(self) -> Result<AtResource<DB>, AtError> {
        let mut connection = self.pool.acquire().await?;
        require_client_tables::<DB>(&mut connection).await?;
        let identity = DB::identity(&mut connection).await?;
        drop(connection);
        let catalogue = Catalogue::new(
            identity.resource_id.clone(),
            identity.only_schema.clone(),
            self.trusted_triggers,
        );
        let merges = self.compound_statements && identity.takes_compounds;
        let (branches, stale_guards) = RunningBranches::new();
        tokio::spawn(remove_stale_guards(self.pool.clone(), stale_guards));
        let shared = Arc::new(Shared {
            pool: self.pool,
            coordinator: self.coordinator,
            identity,
            catalogue,
            branches,
            lock_timeout: self.lock_timeout,
            merges,
            only_in_global: self.only_in_global,
        });
        let resource = v1::Resource {
            id: shared.identity.resource_id.clone(),
            mode: v1::Mode::At.into(),
            label: shared.identity.label.clone(),
        };
        let phase_two = Arc::new(AtPhaseTwo::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(resource, phase_two);
        Ok(AtResource { shared })
    }
}

impl<DB: AtDatabase> IntoFuture for At<DB> {
    type Output = Result<AtResource<DB>, AtError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

async fn require_client_tables<DB: Backend>(
    connection: &mut PoolConnection<DB>,
) -> Result<(), AtError> {
    for table in handfast_migrations::client_tables() {
        if !DB::has_client_table(connection, table).await? {
            return Err(AtError::ClientTableMissing {
                table: (*table).to_owned(),
                resource: format!("this {} database", DB::NAME),
                folder: DB::FOLDER,
            });
        }
    }
    Ok(())
}

impl<DB: AtDatabase> AtResource<DB> {
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
    /// Its commit waits for rows that other globals hold while it holds its own database locks,
    /// which everyone else then waits for; [`AtResource::transaction`] does not. On SQLite, whose
    /// one writer lock would stop all writers, commit does not wait at all.
    ///
    /// # Errors
    /// As `sqlx::Pool::begin`; [`AtError::OutsideGlobal`] outside of a global, if the resource is
    /// [for globals only](At::only_in_global).
    pub async fn begin(&self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        let context = self.shared.context()?;
        AtTransaction::begin(Arc::clone(&self.shared), context).await
    }

    /// Begins a local transaction outside of any global one, whose commit makes sure that no global
    /// holds the rows it has written or read FOR UPDATE. So a service that does not take part in
    /// globals can still respect their isolation.
    ///
    /// # Errors
    /// [`AtError::CheckedInsideGlobal`] inside a global, else as `sqlx::Pool::begin`.
    pub async fn begin_checked(&self) -> Result<AtTransaction<'static, DB>, sqlx::Error> {
        if let Some(context) = context::current() {
            return Err(AtError::CheckedInsideGlobal { xid: context.xid.to_string() }.into());
        }
        AtTransaction::begin_checked(Arc::clone(&self.shared)).await
    }
}
