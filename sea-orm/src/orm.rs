//! A resource as SeaORM sees it.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use sea_orm::{
    AccessMode, ConnectionTrait, DbBackend, DbErr, ExecResult, IsolationLevel, QueryResult,
    Statement, StreamTrait, TransactionError, TransactionOptions, TransactionTrait,
};

use crate::error::{exec_error, query_error};
use crate::options;
use crate::resource::{OrmResource, Resource, Stopped, Work};
use crate::transaction::{OrmTransaction, run_and_end};
use crate::values::admit;

/// A database that takes part in global transactions, in the place of SeaORM's
/// `DatabaseConnection`.
///
/// Cheap to clone. Outside of a global transaction it is as the pool of its resource is. Inside of
/// one each writing statement is a branch of its own; [`begin`](TransactionTrait::begin) and
/// [`transaction`](TransactionTrait::transaction) make several of them one branch.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(handfast: handfast::Handfast, pool: sqlx::PgPool)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use handfast_sea_orm::Orm;
///
/// let shop = Orm::on(&handfast.at(pool.clone()).await?); // AT mode
/// let ledger = Orm::on(&handfast.xa(pool).await?); // two-phase commit
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Orm {
    resource: Arc<dyn Resource>,
    backend: DbBackend,
}

impl fmt::Debug for Orm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orm").field("resource", &self.resource.id()).finish_non_exhaustive()
    }
}

impl Orm {
    /// Gives SeaORM a resource, of AT mode or of two-phase commit.
    #[must_use]
    pub fn on<R: OrmResource>(resource: &R) -> Self {
        Self { resource: Arc::new(resource.clone()), backend: R::BACKEND }
    }

    /// Runs a closure in a local transaction and commits it. In AT mode this is the best form for
    /// rows that many want: a branch that meets a row of another global waits for it without
    /// holding a lock of the database, and so **the closure may run several times**, each time in
    /// a fresh local transaction; it must do nothing else that cannot be repeated. It is repeated,
    /// too, when the database has failed one of its statements for a deadlock. By two-phase commit
    /// and outside of a global it runs once.
    ///
    /// ```no_run
    /// # async fn example(shop: handfast_sea_orm::Orm) -> Result<(), sea_orm::DbErr> {
    /// use sea_orm::ConnectionTrait;
    ///
    /// let taken = shop.repeatable_transaction(|local| {
    ///     Box::pin(async move {
    ///         let take = "UPDATE stock SET units = units - 1 WHERE id = 7 AND units > 0";
    ///         let taken = local.execute_unprepared(take).await?;
    ///         local.execute_unprepared("INSERT INTO sale (product) VALUES (7)").await?;
    ///         Ok(taken.rows_affected())
    ///     })
    /// });
    /// let taken = taken.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A closure that may also refuse for a reason of the application's own goes into
    /// [`try_repeatable_transaction`](Self::try_repeatable_transaction).
    ///
    /// # Errors
    /// The closure's own, after which the local transaction is rolled back; what the database says;
    /// or a failure of Handfast, which [`cause`](crate::cause) finds: a locked row after the lock
    /// timeout, a deadlock.
    pub async fn repeatable_transaction<'env, T, F>(&'env self, work: F) -> Result<T, DbErr>
    where
        F: for<'c> FnMut(&'c OrmTransaction) -> BoxFuture<'c, Result<T, DbErr>> + Send + 'env,
        T: Send + 'env,
    {
        // The error is named here, so that no closure has to name it.
        self.try_repeatable_transaction(work).await
    }

    /// As [`repeatable_transaction`](Self::repeatable_transaction), for a closure whose error is of
    /// another type. It has to be named somewhere, in the closure or where the result goes.
    ///
    /// # Errors
    /// As [`repeatable_transaction`](Self::repeatable_transaction).
    pub async fn try_repeatable_transaction<'env, T, E, F>(&'env self, work: F) -> Result<T, E>
    where
        F: for<'c> FnMut(&'c OrmTransaction) -> BoxFuture<'c, Result<T, E>> + Send + 'env,
        T: Send + 'env,
        E: From<DbErr> + Send + 'env,
    {
        let answer = Arc::new(Mutex::new(None));
        let work = self.keeping_answer(work, Arc::clone(&answer));
        match self.resource.run_work(work).await {
            Err(Stopped::ByDatabase(error)) => Err(exec_error(error).into()),
            Ok(()) | Err(Stopped::ByClosure) => {
                let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
                answer.take().expect("work that has ended has left its answer")
            }
        }
    }

    /// Makes work of a closure, which leaves its answer aside: the type of the work does not know
    /// the closure's types.
    fn keeping_answer<'env, T, E, F>(
        &self,
        closure: F,
        answer: Arc<Mutex<Option<Result<T, E>>>>,
    ) -> Work<'env>
    where
        F: for<'c> FnMut(&'c OrmTransaction) -> BoxFuture<'c, Result<T, E>> + Send + 'env,
        T: Send + 'env,
        E: From<DbErr> + Send + 'env,
    {
        let (backend, closure) = (self.backend, Arc::new(Mutex::new(closure)));
        Box::new(move |local| {
            let (closure, answer) = (Arc::clone(&closure), Arc::clone(&answer));
            Box::pin(async move {
                let transaction = OrmTransaction::lent(backend, local);
                let working = {
                    let mut closure = closure.lock().unwrap_or_else(PoisonError::into_inner);
                    (*closure)(&transaction)
                };
                let result = match working.await {
                    Ok(value) => transaction.commit().await.map(|()| value).map_err(E::from),
                    Err(error) => Err(error),
                };
                let ended = result.as_ref().map(drop).map_err(|_| Stopped::ByClosure);
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                ended
            })
        })
    }
}

#[async_trait]
impl ConnectionTrait for Orm {
    fn get_database_backend(&self) -> DbBackend {
        self.backend
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        admit(self.backend, &statement)?;
        self.resource.execute(statement).await.map_err(exec_error)
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.resource.execute_text(sql.to_owned()).await.map_err(exec_error)
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        admit(self.backend, &statement)?;
        self.resource.row(statement).await.map_err(query_error)
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        admit(self.backend, &statement)?;
        self.resource.rows(statement).try_collect().await.map_err(query_error)
    }
}

impl StreamTrait for Orm {
    type Stream<'a> = BoxStream<'a, Result<QueryResult, DbErr>>;

    fn get_database_backend(&self) -> DbBackend {
        self.backend
    }

    fn stream_raw<'a>(
        &'a self,
        statement: Statement,
    ) -> Pin<Box<dyn Future<Output = Result<Self::Stream<'a>, DbErr>> + 'a + Send>> {
        Box::pin(async move {
            admit(self.backend, &statement)?;
            Ok(self.resource.rows(statement).map_err(query_error).boxed())
        })
    }
}

#[async_trait]
impl TransactionTrait for Orm {
    type Transaction = OrmTransaction;

    async fn begin(&self) -> Result<OrmTransaction, DbErr> {
        self.begin_with_options(TransactionOptions::default()).await
    }

    async fn begin_with_config(
        &self,
        isolation_level: Option<IsolationLevel>,
        access_mode: Option<AccessMode>,
    ) -> Result<OrmTransaction, DbErr> {
        let sqlite_transaction_mode = None;
        let options = TransactionOptions { isolation_level, access_mode, sqlite_transaction_mode };
        self.begin_with_options(options).await
    }

    async fn begin_with_options(
        &self,
        options: TransactionOptions,
    ) -> Result<OrmTransaction, DbErr> {
        let mut local = self.resource.begin().await.map_err(exec_error)?;
        if let Some(text) = options::statement(self.backend, options, local.xid().is_some())? {
            local.execute_text(text).await.map_err(exec_error)?;
        }
        Ok(OrmTransaction::owned(self.backend, local))
    }

    async fn transaction<F, T, E>(&self, work: F) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(
                &'c OrmTransaction,
            ) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
            + Send,
        T: Send,
        E: fmt::Display + fmt::Debug + Send,
    {
        self.transaction_with_config(work, None, None).await
    }

    async fn transaction_with_config<F, T, E>(
        &self,
        work: F,
        isolation_level: Option<IsolationLevel>,
        access_mode: Option<AccessMode>,
    ) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(
                &'c OrmTransaction,
            ) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
            + Send,
        T: Send,
        E: fmt::Display + fmt::Debug + Send,
    {
        let transaction = self.begin_with_config(isolation_level, access_mode).await;
        run_and_end(transaction.map_err(TransactionError::Connection)?, work).await
    }
}
