//! The local transaction behind a tree of SeaORM's transactions, and the savepoints in it.
//!
//! ```text
//! begin ── SAVEPOINT 1 ── SAVEPOINT 2 ── statements ── RELEASE 2 ── … ── commit
//! root      nested         nested in it, the innermost: only this one may run statements
//! ```
//!
//! A handle that is dropped cannot wait for the database. It leaves its savepoint in `abandoned`,
//! and whatever comes next through another handle first rolls back to it.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sea_orm::{DbBackend, DbErr, QueryResult, Statement};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::{OrmError, exec_error, query_error};
use crate::local::{Local, OwnedLocal};

/// The number of a transaction among those of its local transaction. None is given twice.
pub(crate) type Level = u64;

/// The local transaction itself.
pub(crate) const ROOT: Level = 0;

/// A local transaction that is open, and whose it is to end.
pub(crate) enum Open {
    /// Ended by the root.
    Owned(Box<dyn OwnedLocal>),
    /// Ended by the lender.
    Lent(Box<dyn Local>),
}

/// A local transaction and the savepoints in it, shared by the handles of all levels.
pub(crate) struct Nesting {
    pub(crate) backend: DbBackend,
    state: Mutex<State>,
    /// The levels that are to be rolled back, at most one for each handle.
    abandoned: std::sync::Mutex<Vec<Level>>,
    stream_open: AtomicBool,
    /// Set while the database is asked. A caller that goes away meanwhile leaves it set.
    in_use: AtomicBool,
}

struct State {
    /// `None` when the root has ended.
    open: Option<Open>,
    /// The levels whose savepoints are set, from the outermost to the innermost.
    savepoints: Vec<Level>,
    /// The newest level.
    newest: Level,
}

impl Nesting {
    pub(crate) fn new(backend: DbBackend, open: Open) -> Self {
        let state = State { open: Some(open), savepoints: Vec::new(), newest: ROOT };
        let (abandoned, stream_open) = (std::sync::Mutex::default(), AtomicBool::new(false));
        let in_use = AtomicBool::new(false);
        Self { backend, state: Mutex::new(state), abandoned, stream_open, in_use }
    }

    /// Waits for the local transaction, on behalf of the innermost level.
    ///
    /// # Errors
    /// An [`OrmError`] if the level is not the innermost, has ended, or has an open stream, or if a
    /// statement was cut off; what the database says if what was abandoned cannot be rolled back.
    pub(crate) async fn enter(&self, level: Level) -> Result<Entered<'_>, DbErr> {
        let mut entered = self.lock().await?;
        entered.refuse_cut_off()?;
        entered.roll_back_abandoned().await?;
        let innermost = entered.state.savepoints.last().copied().unwrap_or(ROOT);
        match level {
            _ if level == innermost => Ok(entered),
            _ if level == ROOT || entered.state.savepoints.contains(&level) => {
                Err(OrmError::NestedOpen.into())
            }
            _ => Err(OrmError::Ended.into()),
        }
    }

    async fn lock(&self) -> Result<Entered<'_>, OrmError> {
        // A caller that reads a stream and waits here for its end would wait for itself.
        if self.stream_open.load(Ordering::Acquire) {
            return Err(OrmError::StreamOpen);
        }
        let state = self.state.lock().await;
        Ok(Entered { nesting: self, state, streams: false })
    }

    /// Sets a savepoint within a level.
    pub(crate) async fn nest(&self, level: Level) -> Result<Level, DbErr> {
        let mut entered = self.enter(level).await?;
        let inner = entered.state.newest + 1;
        // Cut off before it is noted, a savepoint is in no one's way.
        entered.control("SAVEPOINT", inner).await?;
        entered.state.newest = inner;
        entered.state.savepoints.push(inner);
        Ok(inner)
    }

    /// Gives a nested level's changes to the one around it.
    pub(crate) async fn release(&self, level: Level) -> Result<(), DbErr> {
        let mut entered = self.enter(level).await?;
        // Until the database has answered. If it fails, the level around it must not go on with
        // changes whose commit has failed.
        self.abandon(level);
        entered.control("RELEASE SAVEPOINT", level).await?;
        entered.state.savepoints.pop();
        self.with_abandoned(|abandoned| abandoned.retain(|other| *other != level));
        Ok(())
    }

    /// Takes back a nested level's changes, with whatever is nested in it.
    pub(crate) async fn roll_back_to(&self, level: Level) -> Result<(), DbErr> {
        self.abandon(level);
        let mut entered = self.lock().await?;
        entered.refuse_cut_off()?;
        entered.roll_back_abandoned().await
    }

    /// Commits the local transaction; a lent one is left to its lender.
    pub(crate) async fn commit(&self) -> Result<(), DbErr> {
        let mut entered = self.enter(ROOT).await?;
        match entered.state.open.take() {
            Some(Open::Owned(local)) => local.commit().await.map_err(exec_error),
            Some(Open::Lent(_)) => Ok(()),
            None => Err(OrmError::Ended.into()),
        }
    }

    /// Rolls the local transaction back; a lent one is left to its lender.
    pub(crate) async fn roll_back(&self) -> Result<(), DbErr> {
        let mut entered = self.lock().await?;
        let is_cut_off = entered.refuse_cut_off().is_err();
        match entered.state.open.take() {
            // Dropped, it is rolled back without a call that could wait for the lost answer.
            Some(Open::Owned(_)) if is_cut_off => Ok(()),
            Some(Open::Owned(local)) => local.roll_back().await.map_err(exec_error),
            Some(Open::Lent(_)) => Ok(()),
            None => Err(OrmError::Ended.into()),
        }
    }

    /// Takes note that a level ends by a rollback, which may come later.
    pub(crate) fn abandon(&self, level: Level) {
        self.with_abandoned(|abandoned| abandoned.push(level));
        // Nothing else is ever done through the root, so the local transaction can go at once. If
        // it is in use, it goes with the last handle.
        if level == ROOT
            && let Ok(mut state) = self.state.try_lock()
        {
            state.open = None;
        }
    }

    fn with_abandoned<T>(&self, run: impl FnOnce(&mut Vec<Level>) -> T) -> T {
        run(&mut self.abandoned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The local transaction in use.
pub(crate) struct Entered<'n> {
    nesting: &'n Nesting,
    state: MutexGuard<'n, State>,
    streams: bool,
}

impl Entered<'_> {
    /// Runs something in the local transaction. If this is dropped before its end, nothing more can
    /// be done there: where the driver stands between the calls is unknown.
    pub(crate) async fn run<T, E: Into<sqlx::Error>>(
        &mut self,
        work: impl for<'e> FnOnce(&'e mut (dyn Local + 'static)) -> BoxFuture<'e, Result<T, E>>,
    ) -> Result<T, sqlx::Error> {
        let used = Used::by(self.nesting);
        let answer = work(self.local()?).await;
        used.no_more();
        answer.map_err(Into::into)
    }

    /// Streams rows, and then lets others in again.
    pub(crate) fn into_rows<'s>(
        mut self,
        statement: Statement,
    ) -> BoxStream<'s, Result<QueryResult, DbErr>>
    where
        Self: 's,
    {
        self.nesting.stream_open.store(true, Ordering::Release);
        self.streams = true;
        let rows = async_stream::try_stream! {
            let nesting = self.nesting;
            let mut rows = self.local()?.rows(statement);
            loop {
                let used = Used::by(nesting);
                let row = rows.next().await;
                used.no_more();
                let Some(row) = row else { break };
                yield row.map_err(query_error)?;
            }
        };
        rows.boxed()
    }

    fn refuse_cut_off(&self) -> Result<(), OrmError> {
        if self.nesting.in_use.load(Ordering::Acquire) { Err(OrmError::CutOff) } else { Ok(()) }
    }

    /// The open local transaction.
    fn local(&mut self) -> Result<&mut (dyn Local + 'static), OrmError> {
        match self.state.open.as_mut() {
            Some(Open::Owned(local)) => Ok(local.as_mut()),
            Some(Open::Lent(local)) => Ok(local.as_mut()),
            None => Err(OrmError::Ended),
        }
    }

    /// Rolls back to the savepoints of handles that were dropped.
    async fn roll_back_abandoned(&mut self) -> Result<(), DbErr> {
        let abandoned = self.nesting.with_abandoned(|abandoned| abandoned.clone());
        if abandoned.contains(&ROOT) {
            self.state.open = None;
            return Err(OrmError::Ended.into());
        }
        // The outermost takes along those within it. One that is not set is gone already, with one
        // that was around it.
        let outermost = self.state.savepoints.iter().position(|level| abandoned.contains(level));
        if let Some(position) = outermost {
            let level = self.state.savepoints[position];
            self.control("ROLLBACK TO SAVEPOINT", level).await?;
            self.control("RELEASE SAVEPOINT", level).await?;
            self.state.savepoints.truncate(position);
        }
        // Only when it is done: cut off, it is tried again.
        self.nesting.with_abandoned(|all| all.retain(|level| !abandoned.contains(level)));
        Ok(())
    }

    async fn control(&mut self, verb: &str, level: Level) -> Result<(), DbErr> {
        let text = format!("{verb} hf_orm_{level}");
        self.run(|local| local.execute_text(text)).await.map(drop).map_err(exec_error)
    }
}

/// A mark that the database is being asked. Dropped without [`Used::no_more`], it stays.
struct Used<'n>(&'n AtomicBool);

impl<'n> Used<'n> {
    fn by(nesting: &'n Nesting) -> Self {
        nesting.in_use.store(true, Ordering::Release);
        Self(&nesting.in_use)
    }

    fn no_more(self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.streams {
            self.nesting.stream_open.store(false, Ordering::Release);
        }
    }
}
