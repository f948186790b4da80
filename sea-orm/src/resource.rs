//! Resources of Handfast, of either mode and any of the databases, as one type.

use futures::future::BoxFuture;
use sea_orm::{DbBackend, ExecResult, QueryResult, Statement};

use crate::local::{Local, OwnedLocal};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::sent;
use crate::sent::{Answer, Rows};

/// A resource that SeaORM can work on: [`AtResource`](handfast::AtResource) or
/// [`XaResource`](handfast::XaResource) of a database whose feature is on. Two-phase commit leaves
/// SQLite out.
pub trait OrmResource: Resource + Clone + 'static {
    /// The kind of its database, as SeaORM names it.
    const BACKEND: DbBackend;
}

/// The work of a local transaction that may be repeated.
pub(crate) type Work<'r> =
    Box<dyn FnMut(Box<dyn Local>) -> BoxFuture<'r, Result<(), Stopped>> + Send + 'r>;

/// Why the work of a local transaction was not committed.
#[derive(Debug)]
pub enum Stopped {
    /// The closure has failed, and has kept its error.
    ByClosure,
    /// The database, or the coordinator, has failed.
    ByDatabase(sqlx::Error),
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        Self::ByDatabase(error)
    }
}

/// The operations that [`Orm`](crate::Orm) needs of a resource.
pub trait Resource: Send + Sync {
    /// The resource id.
    fn id(&self) -> &str;

    /// Returns the rows of a statement as they arrive.
    fn rows(&self, statement: Statement) -> Rows<'_>;

    /// Returns the first row of a statement.
    fn row(&self, statement: Statement) -> Answer<'_, Option<QueryResult>>;

    /// Runs a statement to its end.
    fn execute(&self, statement: Statement) -> Answer<'_, ExecResult>;

    /// Runs a text that is not prepared.
    fn execute_text(&self, text: String) -> Answer<'_, ExecResult>;

    /// Begins a local transaction.
    fn begin(&self) -> Answer<'_, Box<dyn OwnedLocal>>;

    /// Runs work in a local transaction and commits it, repeating it where the mode does.
    fn run_work<'r>(&'r self, work: Work<'r>) -> BoxFuture<'r, Result<(), Stopped>>;
}

/// Implements both traits for the resources of one database.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
macro_rules! impl_resource {
    ($resource:ident, $db:ty, $backend:ident) => {
        impl OrmResource for handfast::$resource<$db> {
            const BACKEND: DbBackend = DbBackend::$backend;
        }

        impl Resource for handfast::$resource<$db> {
            fn id(&self) -> &str {
                self.id()
            }

            fn rows(&self, statement: Statement) -> Rows<'_> {
                sent::rows(self, statement)
            }

            fn row(&self, statement: Statement) -> Answer<'_, Option<QueryResult>> {
                sent::row(self, statement)
            }

            fn execute(&self, statement: Statement) -> Answer<'_, ExecResult> {
                sent::execute(self, statement)
            }

            fn execute_text(&self, text: String) -> Answer<'_, ExecResult> {
                sent::execute_text(self, text)
            }

            fn begin(&self) -> Answer<'_, Box<dyn OwnedLocal>> {
                Box::pin(async move {
                    let local = self.begin().await?;
                    Ok(Box::new(local) as Box<dyn OwnedLocal>)
                })
            }

            fn run_work<'r>(&'r self, mut work: Work<'r>) -> BoxFuture<'r, Result<(), Stopped>> {
                Box::pin(self.try_transaction(move |local| work(Box::new(local))))
            }
        }
    };
}

#[cfg(feature = "mysql")]
impl_resource!(AtResource, sqlx::MySql, MySql);
#[cfg(feature = "postgres")]
impl_resource!(AtResource, sqlx::Postgres, Postgres);
#[cfg(feature = "sqlite")]
impl_resource!(AtResource, sqlx::Sqlite, Sqlite);
#[cfg(feature = "mysql")]
impl_resource!(XaResource, sqlx::MySql, MySql);
#[cfg(feature = "postgres")]
impl_resource!(XaResource, sqlx::Postgres, Postgres);
