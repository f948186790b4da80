//! A local transaction as SeaORM sees it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, TryStreamExt};
use handfast::Xid;
use handfast::outbox::Event;
use sea_orm::{
    AccessMode, ConnectionTrait, DbBackend, DbErr, ExecResult, IsolationLevel, QueryResult,
    Statement, StreamTrait, TransactionError, TransactionOptions, TransactionSession,
    TransactionTrait,
};

use crate::error::{exec_error, query_error};
use crate::local::{Local, OwnedLocal};
use crate::nesting::{Level, Nesting, Open, ROOT};
use crate::options;
use crate::values::admit;

/// A local transaction, in the place of SeaORM's `DatabaseTransaction`: a branch of the ambient
/// global, or a plain one outside of any; or one that is nested in such a transaction, as a
/// savepoint.
///
/// Dropped without [`commit`](Self::commit), it is rolled back. While a transaction is nested in
/// it, only the inner one runs statements.
///
/// ```no_run
/// # async fn example(shop: handfast_sea_orm::Orm) -> Result<(), sea_orm::DbErr> {
/// use sea_orm::{ConnectionTrait, TransactionTrait};
///
/// let local = shop.begin().await?;
/// local.execute_unprepared("INSERT INTO sale (product) VALUES (7)").await?;
/// let gift = local.begin().await?; // A savepoint.
/// if gift.execute_unprepared("INSERT INTO gift (product) VALUES (7)").await.is_ok() {
///     gift.commit().await?;
/// } else {
///     gift.rollback().await?; // The sale stays.
/// }
/// local.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
pub struct OrmTransaction {
    nesting: Arc<Nesting>,
    level: Level,
    xid: Option<Xid>,
    ended: bool,
}

impl fmt::Debug for OrmTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OrmTransaction");
        shown.field("xid", &self.xid).field("level", &self.level).finish_non_exhaustive()
    }
}

impl OrmTransaction {
    pub(crate) fn owned(backend: DbBackend, local: Box<dyn OwnedLocal>) -> Self {
        let xid = local.xid().cloned();
        Self::root(Nesting::new(backend, Open::Owned(local)), xid)
    }

    /// A transaction whose end is the lender's.
    pub(crate) fn lent(backend: DbBackend, local: Box<dyn Local>) -> Self {
        let xid = local.xid().cloned();
        Self::root(Nesting::new(backend, Open::Lent(local)), xid)
    }

    fn root(nesting: Nesting, xid: Option<Xid>) -> Self {
        Self { nesting: Arc::new(nesting), level: ROOT, xid, ended: false }
    }

    /// The global that this is part of.
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        self.xid.as_ref()
    }

    /// Emits an event: it leaves when the global has committed, and is gone when the global, or
    /// this transaction, rolls back. Outside of a global it leaves when the local transaction has
    /// committed.
    ///
    /// ```no_run
    /// # async fn example(local: handfast_sea_orm::OrmTransaction)
    /// # -> Result<(), sea_orm::DbErr> {
    /// use handfast::outbox::Event;
    ///
    /// local.emit(&Event::new("stock", "7").payload("taken")).await?;
    /// local.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An `OutboxError` inside the `DbErr`, for [`cause`](crate::cause) to find; or what the
    /// database says, after which the local transaction is to be rolled back.
    pub async fn emit(&self, event: &Event) -> Result<(), DbErr> {
        let (mut entered, event) = (self.nesting.enter(self.level).await?, event.clone());
        entered.run(|local| local.emit(event)).await.map_err(exec_error)
    }

    /// Commits: phase one, if this is a branch. A nested transaction gives its changes to the one
    /// around it.
    ///
    /// # Errors
    /// The database's error, or a failure of Handfast. After an error it is rolled back, unless
    /// whether it was committed is unknown: `HF-AT-COMMIT-UNKNOWN`, `HF-XA-PREPARE-UNKNOWN`.
    pub async fn commit(mut self) -> Result<(), DbErr> {
        match self.level {
            ROOT => self.nesting.commit().await?,
            nested => self.nesting.release(nested).await?,
        }
        self.ended = true;
        Ok(())
    }

    /// Rolls back.
    ///
    /// # Errors
    /// The database's error. A local transaction is rolled back all the same, when the database
    /// notices that the connection is gone.
    pub async fn rollback(mut self) -> Result<(), DbErr> {
        match self.level {
            ROOT => self.nesting.roll_back().await?,
            nested => self.nesting.roll_back_to(nested).await?,
        }
        self.ended = true;
        Ok(())
    }
}

impl Drop for OrmTransaction {
    fn drop(&mut self) {
        if !self.ended {
            self.nesting.abandon(self.level);
        }
    }
}

#[async_trait]
impl ConnectionTrait for OrmTransaction {
    fn get_database_backend(&self) -> DbBackend {
        self.nesting.backend
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        admit(self.nesting.backend, &statement)?;
        let mut entered = self.nesting.enter(self.level).await?;
        entered.run(|local| local.execute(statement)).await.map_err(exec_error)
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let mut entered = self.nesting.enter(self.level).await?;
        entered.run(|local| local.execute_text(sql.to_owned())).await.map_err(exec_error)
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        admit(self.nesting.backend, &statement)?;
        let mut entered = self.nesting.enter(self.level).await?;
        entered.run(|local| local.row(statement)).await.map_err(query_error)
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        admit(self.nesting.backend, &statement)?;
        let mut entered = self.nesting.enter(self.level).await?;
        entered.run(|local| local.rows(statement).try_collect().boxed()).await.map_err(query_error)
    }
}

impl StreamTrait for OrmTransaction {
    type Stream<'a>
        = BoxStream<'a, Result<QueryResult, DbErr>>
    where
        Self: 'a;

    fn get_database_backend(&self) -> DbBackend {
        self.nesting.backend
    }

    fn stream_raw<'a>(
        &'a self,
        statement: Statement,
    ) -> Pin<Box<dyn Future<Output = Result<Self::Stream<'a>, DbErr>> + 'a + Send>> {
        Box::pin(async move {
            admit(self.nesting.backend, &statement)?;
            Ok(self.nesting.enter(self.level).await?.into_rows(statement))
        })
    }
}

#[async_trait]
impl TransactionTrait for OrmTransaction {
    type Transaction = OrmTransaction;

    async fn begin(&self) -> Result<OrmTransaction, DbErr> {
        let level = self.nesting.nest(self.level).await?;
        let (nesting, xid) = (Arc::clone(&self.nesting), self.xid.clone());
        Ok(OrmTransaction { nesting, level, xid, ended: false })
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
        options::refuse_nested(options)?;
        self.begin().await
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

#[async_trait]
impl TransactionSession for OrmTransaction {
    async fn commit(self) -> Result<(), DbErr> {
        self.commit().await
    }

    async fn rollback(self) -> Result<(), DbErr> {
        self.rollback().await
    }
}

/// Runs a closure in a transaction, and commits or rolls back as the closure ends.
pub(crate) async fn run_and_end<F, T, E>(
    transaction: OrmTransaction,
    work: F,
) -> Result<T, TransactionError<E>>
where
    F: for<'c> FnOnce(
            &'c OrmTransaction,
        ) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
        + Send,
    E: fmt::Display + fmt::Debug,
{
    match work(&transaction).await {
        Ok(value) => {
            transaction.commit().await.map_err(TransactionError::Connection)?;
            Ok(value)
        }
        Err(error) => {
            // The closure's error is the one to report. A rollback that fails is made up for: of a
            // local transaction by the database, of a savepoint before the next statement.
            if let Err(error) = transaction.rollback().await {
                tracing::debug!(%error, "the transaction is left to be rolled back");
            }
            Err(TransactionError::Transaction(error))
        }
    }
}
