//! A local transaction that may be a branch of a global one.

use std::fmt;
use std::sync::Arc;

use handfast_rm_core::plan::{Parsed, Reads};

use super::begin::begin;
use super::captured::Captured;
use super::database::{AtDatabase, Steps};
use super::error::AtError;
use super::local::Local;
use super::resource::Shared;
use super::running::{RunningBranch, RunningBranches};
use super::statement::Run;
use super::work::Work;
use crate::context::Context;
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
    pub(super) local: Local<'t, DB>,
    pub(super) shared: Arc<Shared<DB>>,
    pub(super) part: Part,
    pub(super) work: Work,
}

/// What the local transaction is part of.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Nothing: exactly sqlx's transaction.
    Plain,
    /// Nothing, but its commit respects the rows that globals hold.
    Checked,
    /// A global.
    Branch(Branch),
}

/// A branch, registered or to be.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) xid: Xid,
    pub(super) id: u64,
    /// Kept until the local transaction has ended.
    pub(super) running: Arc<RunningBranch>,
    pub(super) reads: Reads,
    pub(super) conflict: Conflict,
    /// Whether the coordinator may know of the branch.
    pub(super) registered: bool,
}

/// What to do at commit when another global holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Wait, holding the database's locks.
    Wait,
    /// Fail, so that the caller can let go of them, wait with nothing held, and repeat.
    Fail,
}

impl Branch {
    pub(super) fn new(
        branches: &Arc<RunningBranches>,
        context: Context,
        conflict: Conflict,
    ) -> Self {
        let reads = if context.read_committed { Reads::Committed } else { Reads::Local };
        let running = branches.start(&context.xid);
        let id = running.id;
        Self { xid: context.xid, id, running, reads, conflict, registered: false }
    }

    /// Another branch for the same work, of which the coordinator does not know.
    pub(super) fn anew(&self, branches: &Arc<RunningBranches>) -> Self {
        let running = branches.start(&self.xid);
        Self { id: running.id, running, registered: false, ..self.clone() }
    }
}

impl<DB: AtDatabase> AtTransaction<'static, DB> {
    pub(super) async fn begin(
        shared: Arc<Shared<DB>>,
        context: Option<Context>,
    ) -> Result<Self, sqlx::Error> {
        let part = match context {
            None => Part::Plain,
            Some(context) => Part::Branch(Branch::new(&shared.branches, context, Conflict::Wait)),
        };
        Self::begin_part(shared, part).await
    }

    pub(super) async fn begin_checked(shared: Arc<Shared<DB>>) -> Result<Self, sqlx::Error> {
        Self::begin_part(shared, Part::Checked).await
    }

    pub(super) async fn begin_part(
        shared: Arc<Shared<DB>>,
        part: Part,
    ) -> Result<Self, sqlx::Error> {
        let local = match &part {
            Part::Plain => Local::Driven(begin(&shared.pool).await?),
            Part::Branch(_) if shared.merges => Local::merged(shared.pool.acquire().await?),
            Part::Checked | Part::Branch(_) => Local::Driven(DB::begin(&shared.pool).await?),
        };
        Ok(Self { local, shared, part, work: Work::default() })
    }
}

impl<DB: AtDatabase> AtTransaction<'_, DB> {
    /// The global that this is a branch of.
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        match &self.part {
            Part::Branch(branch) => Some(&branch.xid),
            Part::Plain | Part::Checked => None,
        }
    }

    /// Rolls back the local transaction.
    ///
    /// # Errors
    /// As `sqlx::Transaction::rollback`. The database rolls back all the same, when it notices that
    /// the connection is gone.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        let registered = self.registered_branch();
        self.local.rollback().await?;
        if let Some(branch) = registered {
            super::commit::report_failed(&self.shared, &branch).await;
        }
        Ok(())
    }

    /// Sets a savepoint. The name may be set again; the newest counts.
    ///
    /// # Errors
    /// What the database says.
    pub async fn savepoint(&mut self, name: &str) -> Result<(), sqlx::Error> {
        self.refuse_ended()?;
        let ours = self.work.next_savepoint();
        self.control("SAVEPOINT", &ours).await?;
        self.work.set_savepoint(name);
        Ok(())
    }

    /// Takes back everything since a savepoint, which stays set. On PostgreSQL this also makes a
    /// transaction usable again in which a statement has failed.
    ///
    /// # Errors
    /// [`AtError::UnknownSavepoint`], or what the database says.
    pub async fn rollback_to(&mut self, name: &str) -> Result<(), sqlx::Error> {
        let ours = self.require_savepoint(name)?;
        self.control("ROLLBACK TO SAVEPOINT", &ours).await?;
        self.work.roll_back_to(name);
        Ok(())
    }

    /// Gives up a savepoint and those set after it. What was done since stays.
    ///
    /// # Errors
    /// [`AtError::UnknownSavepoint`], or what the database says.
    pub async fn release_savepoint(&mut self, name: &str) -> Result<(), sqlx::Error> {
        let ours = self.require_savepoint(name)?;
        self.control("RELEASE SAVEPOINT", &ours).await?;
        self.work.release_savepoint(name);
        Ok(())
    }

    /// What the database knows the savepoint by.
    fn require_savepoint(&self, name: &str) -> Result<String, AtError> {
        self.refuse_ended()?;
        let unknown = || AtError::UnknownSavepoint { name: name.to_owned() };
        self.work.savepoint(name).ok_or_else(unknown)
    }

    async fn control(&mut self, verb: &str, savepoint: &str) -> Result<(), sqlx::Error> {
        let control = Captured::plain(format!("{verb} {savepoint}"));
        DB::steps(self.local.begun().await?, control).await?;
        Ok(())
    }

    pub(super) fn registered_branch(&self) -> Option<Branch> {
        match &self.part {
            Part::Branch(branch) if branch.registered => Some(branch.clone()),
            Part::Branch(_) | Part::Plain | Part::Checked => None,
        }
    }

    pub(super) fn reads(&self) -> Reads {
        match &self.part {
            Part::Branch(branch) => branch.reads,
            Part::Plain | Part::Checked => Reads::Local,
        }
    }

    /// Whether a query goes to the database untouched: no global, or nothing in it to undo or lock.
    pub(super) fn passes(&self, query: &Captured<DB>) -> Result<bool, sqlx::Error> {
        if matches!(self.part, Part::Plain) {
            return Ok(true);
        }
        self.refuse_ended()?;
        let parsed = self.shared.catalogue.parse(self.reads(), query.sql());
        match &*parsed {
            Ok(Parsed::Pass) => Ok(true),
            // What could only be rolled back is not worth running, and after a statement that was
            // cut off nobody knows whether the database still has the transaction open.
            Ok(Parsed::Statement(_)) if self.work.half_recorded => {
                Err(AtError::HalfRecorded.into())
            }
            Ok(Parsed::Statement(_)) => Ok(false),
            Err(refusal) => Err(AtError::Refused(refusal.clone()).into()),
        }
    }

    /// Runs a statement that needs a plan, to its end.
    pub(super) async fn run(&mut self, query: Captured<DB>) -> Result<Steps<DB>, sqlx::Error> {
        let result = self.run_planned(query).await;
        if let Err(error) = &result {
            self.note_failure(error);
        }
        result
    }

    async fn run_planned(&mut self, query: Captured<DB>) -> Result<Steps<DB>, sqlx::Error> {
        let (shared, reads) = (Arc::clone(&self.shared), self.reads());
        let parsed = shared.catalogue.parse(reads, query.sql());
        let planned = shared.catalogue.plan(self.local.connection(), reads, &parsed, &query);
        let Some(planned) = planned.await? else {
            return DB::steps(self.local.begun().await?, query).await;
        };
        let begins = planned.plan.reads_first() && self.local.begins_with_next_call();
        let merges = self.local.is_merged();
        let connection = if begins { self.local.connection() } else { self.local.begun().await? };
        let (work, loaded) = (&mut self.work, &*planned.loaded);
        let run = Run { connection, begins, merges, work, loaded, query };
        let steps = run.carry_out(&planned.plan).await?;
        if begins {
            self.local.has_begun();
        }
        self.require_committed_rows().await?;
        Ok(steps)
    }

    /// Remembers what a failed statement means for the rest of the local transaction.
    pub(super) fn note_failure(&mut self, error: &sqlx::Error) {
        match AtError::of(error) {
            Some(ours) => self.work.repeatable |= ours.is_repeatable(),
            None => {
                self.work.failed::<DB>(error);
                if DB::is_schema_mismatch(error) {
                    self.shared.catalogue.forget_tables();
                    self.work.stale_tables = true;
                }
            }
        }
    }

    pub(super) fn refuse_ended(&self) -> Result<(), AtError> {
        if self.work.ended { Err(AtError::Ended) } else { Ok(()) }
    }
}

impl<DB: AtDatabase> fmt::Debug for AtTransaction<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtTransaction").field("part", &self.part).finish_non_exhaustive()
    }
}
