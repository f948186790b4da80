//! Makes a database a resource: looks for the client tables, asks for the database's identity, and
//! makes this process one that finishes branches of it.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;
use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use super::counter::{Counter, DeclaredCounter};
use super::database::catalogue::Catalogue;
use super::database::{AtDatabase, Backend, LOCK_TIMEOUT};
use super::error::AtError;
use super::kept_connections::KeptConnections;
use super::leftovers::{LeftRows, Leftovers};
use super::phase_one::{AnswerStock, JointQueues, Part};
use super::phase_two::{AtBranchHandler, remove_stale_guards};
use super::resource::AtResource;
use super::resource_state::{OutsideWatch, PreparedWatch, ResourceState};
use super::running_branches::RunningBranches;
use crate::connect::Handfast;
use crate::coordinator::Coordinator;

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
            unlocked_parents: Vec::new(),
            counters: Vec::new(),
            lock_timeout: LOCK_TIMEOUT,
            compound_statements: true,
            only_in_global: false,
            connections_kept: 0,
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
    unlocked_parents: Vec<String>,
    counters: Vec<DeclaredCounter>,
    lock_timeout: Duration,
    compound_statements: bool,
    only_in_global: bool,
    connections_kept: usize,
}

impl<DB: AtDatabase> At<DB> {
    /// Vouches that a trigger writes nothing but columns of the row that it fires for. Without this
    /// a statement that would fire a trigger is refused, unless the trigger's body shows as much,
    /// because what a trigger writes elsewhere is not undone; so is one whose undo would fire it.
    ///
    /// The trigger fires during the undo too: an INSERT trigger when a DELETE is undone. Columns
    /// that it has then filled with something else are written back once more: past the triggers on
    /// SQLite, and on PostgreSQL where the account may set `session_replication_role`, the columns
    /// belong to no foreign key and no constraint of the table is deferrable. Elsewhere an UPDATE
    /// of these columns alone writes them, which the trigger may override. There these come back:
    /// what follows from the row alone; what a trigger on `UPDATE OF` other columns fills in; what
    /// a trigger leaves alone if the statement itself changes it, such as
    /// `diesel_manage_updated_at` or a `WHEN` that compares the old value with the new; what an
    /// INSERT trigger fills in, if no UPDATE trigger does. These do not: a time that every UPDATE
    /// sets (`NEW.updated_at = now()`), which is that of the undo; a number that every UPDATE
    /// counts up, which is higher than before.
    pub fn trust_trigger(mut self, name: impl Into<String>) -> Self {
        self.trusted_triggers.push(name.into());
        self
    }

    /// Leaves the rows of a table unlocked where rows of other tables refer to them.
    ///
    /// Without this, a row that is inserted, or whose foreign key is assigned, takes a shared
    /// global lock on the row that it refers to. So it waits where another global has inserted or
    /// changed that row and is undecided: were that global rolled back, its row could not be
    /// removed any more. The price is that a global which changes the row waits for all globals
    /// that have written rows that refer to it. Set this for tables whose rows many others refer to
    /// and which are changed often, such as the balance of a customer with many orders, if rows
    /// that refer to them are not written before their own global has committed. The table is named
    /// as in the catalogue, with or without its schema.
    pub fn unlocked_parent(mut self, table: impl Into<String>) -> Self {
        self.unlocked_parents.push(table.into());
        self
    }

    /// Declares that a column is a counter: all who change it add to it or take from it. Statements
    /// that do nothing else, such as
    ///
    /// ```sql
    /// UPDATE stock SET units = units - ? WHERE id = ? AND units >= ?
    /// ```
    ///
    /// then do not wait for each other, also in undecided globals, and a rollback gives back what
    /// its global has taken instead of writing the value of before. All other statements on the row
    /// wait for them, as before.
    ///
    /// The WHERE names the row by its whole primary key, and may guard the counter against its
    /// bound; the amounts are arguments or numbers. The column holds whole numbers, and belongs to
    /// no key, unique index or foreign key. Declare the same in every process that writes the
    /// table: one that does not is only slower, since its statements and theirs wait for each
    /// other. The table is named as in the catalogue, with or without its schema.
    ///
    /// ```no_run
    /// # async fn example(handfast: handfast::Handfast, pool: sqlx::SqlitePool)
    /// # -> Result<(), handfast::AtError> {
    /// use handfast::Counter;
    ///
    /// let stock = handfast.at(pool).counter("stock", "units", Counter::at_least(0)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn counter(
        mut self,
        table: impl Into<String>,
        column: impl Into<String>,
        counter: Counter,
    ) -> Self {
        let (table, column) = (table.into(), column.into());
        self.counters.push(DeclaredCounter { table, column, counter });
        self
    }

    /// How long a branch waits for rows that other globals hold, 30 seconds unless set. Too short,
    /// and a busy row fails transactions that only had to queue; too long, and a caller waits for a
    /// global that is stuck.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Whether a branch may send several statements in one call where that can be, which it does by
    /// default: on MariaDB with `BEGIN NOT ATOMIC`, where an UPDATE of one row takes three calls
    /// instead of six, and on SQLite, where three take the place of five. Set this to `false`
    /// behind a proxy that does not know compound statements.
    pub fn compound_statements(mut self, allowed: bool) -> Self {
        self.compound_statements = allowed;
        self
    }

    /// Refuses work outside of a global: local transactions, and statements that write. Without
    /// this they are plain local ones there (the first is warned of, once the resource has been
    /// used in a global), so that a service that was called without its XID (no
    /// [`XidLayer`](crate::propagation::XidLayer), a proxy that drops the header) commits at once
    /// what the caller cannot roll back. Reads are taken everywhere, and so is
    /// [`begin_checked`](AtResource::begin_checked), which is for outside.
    pub fn only_in_global(mut self) -> Self {
        self.only_in_global = true;
        self
    }

    /// Keeps up to so many connections between branches, none unless set.
    ///
    /// sqlx asks the database whether a connection works when it comes back to the pool, and by
    /// default again when it is taken. That is one or two round trips for each branch, as many as
    /// some branches need themselves. Kept connections spare them: set it to the number of branches
    /// that run at a time. On PostgreSQL they do not serve processes that write
    /// [guarded](crate::guarded) tables.
    ///
    /// A kept connection is missing in the pool. It goes back after 10 ms in which no branch has
    /// needed it, and after a second in any case; others may wait that long for it if the pool is
    /// exhausted. Between two branches `before_acquire` and `after_release` of the pool are not
    /// called, so leave this at none if they do what each use of a connection depends on, such as
    /// naming a tenant. A connection that is lost while it is kept is noticed by the next branch.
    pub fn keep_connections(mut self, max: usize) -> Self {
        self.connections_kept = max;
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
            self.unlocked_parents,
            self.counters,
        );
        let merges = self.compound_statements && identity.takes_compounds;
        let (branches, stale_guards) = RunningBranches::new();
        tokio::spawn(remove_stale_guards(self.pool.clone(), stale_guards));
        let guarded_leftovers = Leftovers::deleted_from(&self.pool, LeftRows::Guarded);
        let lost_undo_rows = Arc::new(Leftovers::deleted_from(&self.pool, LeftRows::Undo));
        let prepared = PreparedWatch::of(&self.pool);
        let connections = KeptConnections::new(self.pool.clone(), self.connections_kept);
        let shared = Arc::new(ResourceState {
            pool: self.pool,
            connections: Arc::new(connections),
            coordinator: self.coordinator,
            identity,
            catalogue,
            branches,
            lock_timeout: self.lock_timeout,
            merges,
            only_in_global: self.only_in_global,
            outside: OutsideWatch::default(),
            prepared,
            guarded_leftovers,
            lost_undo_rows,
            joint_queues: JointQueues::default(),
            last_branches_running: Arc::default(),
            answers: AnswerStock::default(),
        });
        // Last of all: phase two may be asked for as soon as the coordinator knows the resource.
        let handler = Arc::new(AtBranchHandler::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(shared.identity.resource(v1::Mode::At), handler);
        Ok(AtResource { shared, part: Part::Branch })
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
