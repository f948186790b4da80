//! The local transaction underneath: the driver's, or one that the library begins and ends itself.
//!
//! ```text
//! one by one:    BEGIN │ read │ change │ read │ undo row │ COMMIT
//! merged:        BEGIN, read │ change, read │ undo row, COMMIT
//! whole:         BEGIN, change, undo row, COMMIT
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use handfast_rm_core::plan::Dialect;
use sqlx::Transaction;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{Backend, Steps};
use crate::at::kept_connections::{KeptConnection, KeptConnections};

/// How long a dropped transaction may take to be rolled back. Then its connection is closed, and
/// the server rolls it back. Too long: the pool lacks the connection for as long. Too short:
/// healthy connections of slow databases are made again.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(5);

/// A local transaction, open or about to be.
pub(crate) enum LocalTransaction<'t, DB: Backend> {
    /// Begun and ended by the driver.
    ByDriver(Transaction<'t, DB>),
    /// Begun and ended by texts of the library's own.
    ByLibrary(LibraryTransaction<DB>),
}

impl<DB: Backend> LocalTransaction<'_, DB> {
    /// A local transaction that the library begins: along with the first statement if it `merges`.
    pub(super) async fn by_library(
        connections: &Arc<KeptConnections<DB>>,
        merges: bool,
    ) -> Result<Self, sqlx::Error> {
        let (kept, state) = (Some(connections.acquire().await?), State::Ready);
        let connections = Arc::clone(connections);
        Ok(Self::ByLibrary(LibraryTransaction { kept, connections, merges, state, works: true }))
    }

    /// Whether it begins and ends along with its first and its last statement.
    pub(super) fn merges(&self) -> bool {
        matches!(self, Self::ByLibrary(library) if library.merges)
    }

    /// The connection, for what does not need the transaction.
    pub(super) fn connection(&mut self) -> &mut DB::Connection {
        match self {
            Self::ByDriver(transaction) => transaction,
            Self::ByLibrary(library) => library.connection(),
        }
    }

    /// The connection with the transaction open on it.
    pub(crate) async fn begun(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        match self {
            Self::ByDriver(transaction) => Ok(transaction),
            Self::ByLibrary(library) => library.begun().await,
        }
    }

    /// Whether the next call has to begin the transaction. The caller says when it
    /// [`has_begun`](Self::has_begun).
    pub(super) fn begins_with_next_call(&mut self) -> bool {
        match self {
            Self::ByLibrary(library) if library.merges && library.state == State::Ready => {
                // Before the call is sent: cut off or failed, it may have begun the transaction or
                // not.
                library.state = State::Unknown;
                true
            }
            Self::ByLibrary(_) | Self::ByDriver(_) => false,
        }
    }

    pub(super) fn has_begun(&mut self) {
        if let Self::ByLibrary(library) = self {
            library.state = State::Open;
        }
    }

    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::ByDriver(transaction) => transaction.commit().await,
            Self::ByLibrary(mut library) => match library.state {
                State::Open => library.end("COMMIT").await,
                // The only call has failed, so there is nothing to commit.
                State::Ready | State::Unknown => library.end(DB::ROLLBACK).await,
            },
        }
    }

    /// Commits by a last call that says COMMIT itself. After an error of the database the
    /// transaction may still be open.
    pub(super) async fn commit_by(&mut self, call: BoundQuery<DB>) -> Result<(), sqlx::Error> {
        DB::steps(self.begun().await?, call).await?;
        // Only after an answer. Without one the state stays open, so that what may be left is
        // rolled back when this is dropped.
        if let Self::ByLibrary(library) = self {
            (library.state, library.works) = (State::Ready, true);
        }
        Ok(())
    }

    /// Runs a call that begins and ends the transaction itself.
    pub(super) async fn run_whole(
        &mut self,
        call: BoundQuery<DB>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let begins = self.begins_with_next_call();
        let ended = DB::steps(self.connection(), call).await;
        if let (true, Self::ByLibrary(library)) = (begins, self) {
            library.works = ended.is_ok();
            // A single statement that fails is rolled back. In a compound one it may have been any.
            let is_over = |error: &sqlx::Error| {
                error.as_database_error().is_some() && DB::DIALECT == Dialect::Postgres
            };
            if ended.as_ref().map_or_else(is_over, |_| true) {
                library.state = State::Ready;
            }
        }
        ended
    }

    /// Rolls back what a last call may have left open.
    pub(super) async fn roll_back_failed_call(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::ByDriver(_) => Ok(()),
            Self::ByLibrary(library) => library.end(DB::ROLLBACK).await,
        }
    }

    pub(super) async fn rollback(self) -> Result<(), sqlx::Error> {
        match self {
            Self::ByDriver(transaction) => transaction.rollback().await,
            Self::ByLibrary(mut library) => library.end(DB::ROLLBACK).await,
        }
    }
}

/// A connection of the pool with a transaction that the driver does not know of.
pub(crate) struct LibraryTransaction<DB: Backend> {
    /// `Some` until this is dropped.
    kept: Option<KeptConnection<DB>>,
    connections: Arc<KeptConnections<DB>>,
    merges: bool,
    state: State,
    /// Whether its last call is known to have succeeded: it was neither cut off nor failed.
    works: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None is open.
    Ready,
    /// The call that begins it has not succeeded.
    Unknown,
    Open,
}

impl<DB: Backend> LibraryTransaction<DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self.works = false;
        let kept = self.kept.as_mut().expect("it is taken when this is dropped");
        &mut kept.connection
    }

    async fn begun(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        if self.state != State::Open {
            // A first call that failed may have begun a transaction. Nothing of it may be
            // committed.
            self.end(DB::ROLLBACK).await?;
            self.state = State::Unknown;
            self.send(DB::BEGIN).await?;
            self.state = State::Open;
        }
        Ok(self.connection())
    }

    async fn end(&mut self, verb: &str) -> Result<(), sqlx::Error> {
        if self.state != State::Ready {
            self.send(verb).await?;
            self.state = State::Ready;
        }
        Ok(())
    }

    async fn send(&mut self, text: &str) -> Result<(), sqlx::Error> {
        DB::steps(self.connection(), BoundQuery::plain(text.to_owned())).await?;
        self.works = true;
        Ok(())
    }
}

/// Rolls back what may be open, behind whatever is under way, before the pool gets its connection
/// back.
impl<DB: Backend> Drop for LibraryTransaction<DB> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if self.state == State::Ready {
            // The pool looks at one that may not work.
            if self.works {
                self.connections.release(kept);
            }
            return;
        }
        let mut connection = kept.connection;
        // A connection that is closed is rolled back by the server.
        let Ok(runtime) = Handle::try_current() else { return connection.close_on_drop() };
        runtime.spawn(async move {
            let rollback = BoundQuery::plain(DB::ROLLBACK.to_owned());
            // A call that was cut off may have left driver and server out of step: then nothing
            // answers.
            let rolled_back = timeout(ROLLBACK_LIMIT, DB::steps(&mut connection, rollback)).await;
            let why = match rolled_back {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(elapsed) => elapsed.to_string(),
            };
            tracing::debug!(why, "connection closed instead of rolled back");
            connection.close_on_drop();
        });
    }
}

impl<DB: Backend> fmt::Debug for LocalTransaction<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByDriver(_) => "ByDriver",
            Self::ByLibrary(_) => "ByLibrary",
        })
    }
}
