//! A local transaction that may be a branch of a global one.

use std::fmt;
use std::sync::Arc;

use handfast_rm_core::plan::{ComposedEnd, Reads, Savepoint, Statement, StatementRefusal};
use sqlx::SqlStr;

use super::branch::{OnConflict, Part, Role};
use super::branch_log::BranchLog;
use super::composed::{ComposedStatement, answer, is_sure, note_refusal};
use super::compound;
use super::local_transaction::LocalTransaction;
use super::statement::StatementRun;
use crate::at::crash_point::crash_point;
use crate::at::database::begin::{begin, begin_by};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::{Managed, Planned};
use crate::at::database::{AtDatabase, Steps, affected};
use crate::at::database_wait::reported;
use crate::at::error::AtError;
use crate::at::guarded::{self, Mark};
use crate::at::resource_state::ResourceState;
use crate::executor::Route;
use crate::trace;
use crate::xid::Xid;

/// A local transaction: a branch of the ambient global, or a plain one outside of any.
///
/// `&mut` of it is a `sqlx::Executor`. Inside a global each write is planned before it runs and its
/// rows are read before and after; what cannot be undone exactly is refused before it runs. Dropped
/// without [`commit`](Self::commit), it is rolled back.
///
/// It gives no access to the connection underneath, so that no SQL slips past the images.
#[must_use = "a local transaction that is dropped is rolled back"]
pub struct AtTransaction<'t, DB: AtDatabase> {
    pub(super) local: LocalTransaction<'t, DB>,
    pub(super) shared: Arc<ResourceState<DB>>,
    pub(super) role: Role,
    pub(super) log: BranchLog,
    /// Its only statement, if the database composes its undo row.
    pub(super) composed: Option<ComposedStatement<DB>>,
}

impl<DB: AtDatabase> AtTransaction<'static, DB> {
    pub(crate) async fn begin(
        shared: Arc<ResourceState<DB>>,
        part: Part,
    ) -> Result<Self, sqlx::Error> {
        let role = Role::of(&shared, part, OnConflict::Wait)?;
        Self::begin_as(shared, role).await
    }

    pub(super) async fn begin_as(
        shared: Arc<ResourceState<DB>>,
        role: Role,
    ) -> Result<Self, sqlx::Error> {
        let mut log = BranchLog::of(&role);
        let local = match &role {
            // As sqlx begins it: on SQLite a branch takes the writer lock at BEGIN, a plain one
            // does not.
            Role::Plain => LocalTransaction::ByDriver(begin(&shared.pool).await?),
            Role::Checked(_) | Role::Branch(_) if shared.merges => {
                LocalTransaction::by_library(&shared.connections, true).await?
            }
            Role::Checked(_) | Role::Branch(_) => {
                let mark = shared.catalogue.knows_guards().then(|| mark_of(&role)).flatten();
                let marked = mark.and_then(|mark| mark.begin::<DB>());
                log.marked = marked.is_some();
                match marked {
                    Some(text) => {
                        LocalTransaction::ByDriver(begin_by(&shared.pool, Some(text)).await?)
                    }
                    None if shared.connections.keep_any() => {
                        LocalTransaction::by_library(&shared.connections, false).await?
                    }
                    None => LocalTransaction::ByDriver(DB::begin(&shared.pool).await?),
                }
            }
        };
        Ok(Self { local, shared, role, log, composed: None })
    }
}

impl<'t, DB: AtDatabase> AtTransaction<'t, DB> {
    /// The global that this is a branch of.
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        match &self.role {
            Role::Branch(branch) => Some(&branch.xid),
            Role::Plain | Role::Checked(_) => None,
        }
    }

    /// Rolls back the local transaction.
    ///
    /// # Errors
    /// As `sqlx::Transaction::rollback`. The database rolls back all the same, when it notices that
    /// the connection is gone.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        // The coordinator does not know of the branch before its commit, unless it is one of
        // several attempts, which then report it.
        self.local.rollback().await
    }

    /// Sets a savepoint. The name may be set again; the newest counts.
    ///
    /// `SAVEPOINT name` as text does the same, under the name as the database reads it: in lower
    /// case, but as it is written where it is quoted on PostgreSQL.
    ///
    /// # Errors
    /// The database's error.
    pub async fn savepoint(&mut self, name: &str) -> Result<(), sqlx::Error> {
        self.set_savepoint(name).await.map(drop)
    }

    async fn set_savepoint(&mut self, name: &str) -> Result<Steps<DB>, sqlx::Error> {
        self.refuse_ended()?;
        let ours = self.log.next_savepoint();
        let steps = self.control("SAVEPOINT", &ours).await?;
        self.log.set_savepoint(name);
        Ok(steps)
    }

    /// Takes back everything since a savepoint, which stays set. On PostgreSQL this also makes a
    /// transaction usable again in which a statement has failed.
    ///
    /// # Errors
    /// [`AtError::UnknownSavepoint`], or what the database says.
    pub async fn rollback_to(&mut self, name: &str) -> Result<(), sqlx::Error> {
        self.return_to(name).await.map(drop)
    }

    async fn return_to(&mut self, name: &str) -> Result<Steps<DB>, sqlx::Error> {
        let ours = self.require_savepoint(name)?;
        // The database first. If this is cut off in between, the log has items too many, whose rows
        // an undo finds as they were before. With items too few, a change would have no undo.
        let steps = self.control("ROLLBACK TO SAVEPOINT", &ours).await?;
        self.log.roll_back_to(name);
        Ok(steps)
    }

    /// Gives up a savepoint and those set after it. What was done since stays.
    ///
    /// # Errors
    /// [`AtError::UnknownSavepoint`], or what the database says.
    pub async fn release_savepoint(&mut self, name: &str) -> Result<(), sqlx::Error> {
        self.release(name).await.map(drop)
    }

    async fn release(&mut self, name: &str) -> Result<Steps<DB>, sqlx::Error> {
        let ours = self.require_savepoint(name)?;
        let steps = self.control("RELEASE SAVEPOINT", &ours).await?;
        self.log.release_savepoint(name);
        Ok(steps)
    }

    /// Returns the name by which the database knows the savepoint.
    fn require_savepoint(&self, name: &str) -> Result<String, AtError> {
        self.refuse_ended()?;
        let unknown = || AtError::UnknownSavepoint { name: name.to_owned() };
        self.log.savepoint(name).ok_or_else(unknown)
    }

    async fn control(&mut self, verb: &str, savepoint: &str) -> Result<Steps<DB>, sqlx::Error> {
        let control = BoundQuery::plain(format!("{verb} {savepoint}"));
        DB::steps(self.local.begun().await?, control).await
    }

    pub(super) fn reads(&self) -> Reads {
        match &self.role {
            Role::Branch(branch) => branch.reads,
            Role::Plain | Role::Checked(_) => Reads::Local,
        }
    }

    /// Decides how a query goes to the database. A statement is parsed here and nowhere else.
    pub(crate) fn classify(&self, query: &BoundQuery<DB>) -> Result<Route<Managed>, sqlx::Error> {
        if matches!(self.role, Role::Plain) {
            self.shared.note_outside(query.sql());
            return Ok(Route::Plain);
        }
        self.refuse_ended()?;
        let route = self.shared.catalogue.classify(self.reads(), query.sql())?;
        // A change that could only be rolled back is not worth running, and after a statement that
        // was cut off it is unknown whether the database still has the transaction open.
        match route {
            Route::Planned(Managed::Statement(_) | Managed::Several(_))
                if self.log.half_recorded =>
            {
                Err(AtError::HalfRecorded.into())
            }
            Route::Planned(_) | Route::Plain => Ok(route),
        }
    }

    /// Runs a statement that does not go to the database as it is, to its end.
    pub(crate) async fn run(
        &mut self,
        query: BoundQuery<DB>,
        managed: Managed,
    ) -> Result<Steps<DB>, sqlx::Error> {
        match managed {
            Managed::Statement(statement) => self.run_planned(query, statement).await,
            Managed::Savepoint(savepoint) => self.move_savepoint(&savepoint).await,
            Managed::Several(_) if query.argument_count() > 0 => {
                Err(AtError::Refused(StatementRefusal::SeveralStatements).into())
            }
            Managed::Several(parts) => self.run_several(&parts).await,
        }
    }

    /// Runs the statements of one text, each as if it came by itself. One that is refused keeps all
    /// of them from running; the first that fails ends them.
    async fn run_several(
        &mut self,
        parts: &[(SqlStr, Route<Managed>)],
    ) -> Result<Steps<DB>, sqlx::Error> {
        let (shared, reads) = (Arc::clone(&self.shared), self.reads());
        for (text, route) in parts {
            let Route::Planned(Managed::Statement(statement)) = route else { continue };
            let (connection, query) = (self.local.connection(), BoundQuery::of_text(text.clone()));
            shared.catalogue.plan(connection, reads, statement, &query).await?;
        }
        let mut steps = Steps::<DB>::new();
        for (text, route) in parts {
            let query = BoundQuery::of_text(text.clone());
            steps.extend(match route {
                Route::Plain => {
                    let passed = DB::steps(self.local.begun().await?, query).await;
                    passed.inspect_err(|error| self.note_failure(error))?
                }
                // Boxed, since the future of this would hold itself.
                Route::Planned(managed) => Box::pin(self.run(query, managed.clone())).await?,
            });
        }
        Ok(steps)
    }

    async fn move_savepoint(&mut self, savepoint: &Savepoint) -> Result<Steps<DB>, sqlx::Error> {
        match savepoint {
            Savepoint::Set(name) => self.set_savepoint(name).await,
            Savepoint::RollBackTo(name) => self.return_to(name).await,
            Savepoint::Release(name) => self.release(name).await,
        }
    }

    /// Runs a statement that needs a plan.
    pub(crate) async fn run_planned(
        &mut self,
        query: BoundQuery<DB>,
        statement: Arc<Statement>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let (shared, xid) = (Arc::clone(&self.shared), self.xid().cloned());
        let work = self.execute_planned(query, &statement);
        let result = match xid {
            Some(xid) => reported(&shared, xid.as_str(), work).await,
            None => work.await,
        };
        if let Err(error) = &result {
            self.note_failure(error);
        }
        result
    }

    async fn execute_planned(
        &mut self,
        query: BoundQuery<DB>,
        statement: &Statement,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let (shared, reads) = (Arc::clone(&self.shared), self.reads());
        let connection = self.local.connection();
        let planned = shared.catalogue.plan(connection, reads, statement, &query).await?;
        if let Some(statement) =
            self.composed.take().filter(|it| Arc::ptr_eq(&it.planned, &planned))
            && let Some(steps) = self.run_composed(statement).await?
        {
            return Ok(steps);
        }
        // The catalogue was read outside of the transaction, so that the first call can still begin
        // it together with the read of the rows.
        let mut mark = self.missing_mark(&planned);
        let begins = planned.plan.reads_first() && self.local.begins_with_next_call();
        if !begins && let Some(mark) = mark.take() {
            self.mark(&mark).await?;
        }
        let marks = mark.is_some();
        let merges = self.local.merges();
        let connection = if begins { self.local.connection() } else { self.local.begun().await? };
        let (log, loaded, tables) = (&mut self.log, &planned.loaded, &*planned.tables);
        let catalogue = &shared.catalogue;
        let run = StatementRun {
            connection,
            begins,
            mark,
            merges,
            log,
            loaded,
            tables,
            catalogue,
            query,
        };
        let steps = run.execute(&planned.plan).await?;
        // An error may come from before or behind START TRANSACTION, so only success counts.
        if begins {
            self.local.has_begun();
            self.log.marked |= marks;
        }
        self.require_committed_rows().await?;
        Ok(steps)
    }

    /// Runs a composed statement, and begins the local transaction if it has not
    /// begun. `None`: it has changed nothing, and is to run as any other.
    async fn run_composed(
        &mut self,
        statement: ComposedStatement<DB>,
    ) -> Result<Option<Steps<DB>>, sqlx::Error> {
        let ComposedStatement { planned, row, call, end } = statement;
        crash_point("before-undo-insert");
        let begins = end != ComposedEnd::Within && self.local.begins_with_next_call();
        let connection = if begins { self.local.connection() } else { self.local.begun().await? };
        let ended = DB::steps(connection, call).await;
        if let Err(error) = &ended {
            self.log.is_composition_refused = true;
            note_refusal(&planned, error);
        }
        let steps = answer(&planned, end, ended?);
        if begins {
            self.local.has_begun();
        }
        if affected::<DB>(&steps) == 0 {
            return Ok(is_sure::<DB>().then_some(steps));
        }
        if let Role::Branch(branch) = &self.role {
            let changes = [("UPDATE", &*planned.loaded.table.name)].into_iter();
            trace::record_changes(&branch.span, changes, row.len());
        }
        self.log.composed(row);
        Ok(Some(steps))
    }

    /// The mark that the triggers of guarded tables have to see before this statement.
    fn missing_mark(&self, planned: &Planned<DB>) -> Option<Mark> {
        if self.log.marked || !planned.fires_guard() { None } else { mark_of(&self.role) }
    }

    /// Marks the local transaction for the triggers of guarded tables, and begins it with that if
    /// it has not begun.
    async fn mark(&mut self, mark: &Mark) -> Result<(), sqlx::Error> {
        if self.local.begins_with_next_call() {
            let call = mark.query::<DB>(compound::begin_and::<DB>(Mark::text::<DB>()));
            DB::steps(self.local.connection(), call).await?;
            self.local.has_begun();
        } else {
            guarded::mark::<DB>(self.local.begun().await?, mark).await?;
        }
        self.log.marked = true;
        Ok(())
    }

    /// Splits off the local transaction from the log, which takes note of a failed statement.
    pub(crate) fn split(&mut self) -> (&mut LocalTransaction<'t, DB>, impl FnMut(&sqlx::Error)) {
        let Self { local, log, .. } = self;
        (local, move |error: &sqlx::Error| log.failed::<DB>(error))
    }

    /// The connection, for calls that do not need the transaction.
    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        self.local.connection()
    }

    /// Remembers what a failed statement means for the rest of the local transaction.
    pub(super) fn note_failure(&mut self, error: &sqlx::Error) {
        match AtError::of(error) {
            Some(ours) => self.log.repeatable |= ours.is_repeatable(),
            None => {
                self.log.failed::<DB>(error);
                if DB::is_schema_mismatch(error) {
                    // The table was altered after it was described. The repeat reads the catalogue
                    // again.
                    self.shared.catalogue.forget_tables();
                    self.log.stale_tables = true;
                }
            }
        }
    }

    pub(super) fn refuse_ended(&self) -> Result<(), AtError> {
        if self.log.ended { Err(AtError::Ended) } else { Ok(()) }
    }
}

impl<DB: AtDatabase> fmt::Debug for AtTransaction<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtTransaction").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The mark of a local transaction for the triggers of guarded tables. One that asks the
/// coordinator before it commits has no need of being refused by them, and waits instead.
fn mark_of(role: &Role) -> Option<Mark> {
    match role {
        Role::Plain => None,
        Role::Checked(_) => Some(Mark::Pass),
        Role::Branch(branch) => Some(Mark::Branch(branch.xid.clone(), branch.id)),
    }
}
