//! `sqlx::Executor` for local transactions and resources: one concrete impl per database.
//!
//! Everything is handed on and streams, once it is seen not to end the transaction.

use std::future;
use std::sync::Arc;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryFutureExt};
use sqlx::{Database, Execute, Executor, SqlStr};

use super::database::XaDatabase;
use super::resource::XaResource;
use super::transaction::XaTransaction;
use crate::at::captured::Captured;
use crate::at::database::Steps;
use crate::context;

/// What a statement answers: counts and rows.
type Answer<DB> = Result<Either<<DB as Database>::QueryResult, <DB as Database>::Row>, sqlx::Error>;

fn failed<T: Send + 'static>(error: sqlx::Error) -> BoxStream<'static, Result<T, sqlx::Error>> {
    stream::once(future::ready(Err(error))).boxed()
}

impl<DB: XaDatabase> XaTransaction<'_, DB> {
    /// Takes a query apart, unless it would end the transaction.
    fn take<'q, E: Execute<'q, DB>>(&mut self, query: E) -> Result<Captured<DB>, sqlx::Error> {
        let query = Captured::take(query)?;
        self.admit(&query)?;
        Ok(query)
    }
}

impl<DB: XaDatabase> XaResource<DB> {
    /// Runs one statement as a branch of its own.
    async fn run_alone(&self, query: Captured<DB>) -> Result<Steps<DB>, sqlx::Error> {
        let shared = Arc::clone(&self.shared);
        let mut local = XaTransaction::begin(shared, context::current()).await?;
        local.admit(&query)?;
        match DB::steps(&mut local.session, query).await {
            Ok(steps) => {
                local.commit().await?;
                Ok(steps)
            }
            Err(error) => {
                // The first error is the one that tells; the branch is gone in any case.
                let _ = local.rollback().await;
                Err(error)
            }
        }
    }
}

// A generic impl over the database would break type inference in code that merely links this crate.
#[cfg(any(feature = "mysql", feature = "postgres"))]
macro_rules! impl_executor {
    ($db:ty) => {
        impl<'c> Executor<'c> for &'c mut XaTransaction<'_, $db> {
            type Database = $db;

            fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Answer<$db>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $db>,
            {
                match self.take(query) {
                    Ok(query) => (&mut *self.session).fetch_many(query),
                    Err(error) => failed(error),
                }
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Option<<$db as Database>::Row>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $db>,
            {
                match self.take(query) {
                    Ok(query) => (&mut *self.session).fetch_optional(query),
                    Err(error) => future::ready(Err(error)).boxed(),
                }
            }

            fn prepare_with<'e>(
                self,
                sql: SqlStr,
                parameters: &'e [<$db as Database>::TypeInfo],
            ) -> BoxFuture<'e, Result<<$db as Database>::Statement, sqlx::Error>>
            where
                'c: 'e,
            {
                (&mut *self.session).prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: SqlStr,
            ) -> BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                (&mut *self.session).describe(sql)
            }
        }

        impl<'c> Executor<'c> for &'c XaResource<$db> {
            type Database = $db;

            fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Answer<$db>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $db>,
            {
                let query = match Captured::take(query) {
                    Ok(query) => query,
                    Err(error) => return failed(error),
                };
                let answers = async move {
                    if context::current().is_none() {
                        return Ok(self.pool().fetch_many(query));
                    }
                    Ok(stream::iter(self.run_alone(query).await?).map(Ok).boxed())
                };
                context::scope_of_poll(answers).try_flatten_stream().boxed()
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Option<<$db as Database>::Row>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $db>,
            {
                let query = match Captured::take(query) {
                    Ok(query) => query,
                    Err(error) => return future::ready(Err(error)).boxed(),
                };
                let answer = async move {
                    if context::current().is_none() {
                        return self.pool().fetch_optional(query).await;
                    }
                    Ok(self.run_alone(query).await?.into_iter().find_map(Either::right))
                };
                context::scope_of_poll(answer).boxed()
            }

            fn prepare_with<'e>(
                self,
                sql: SqlStr,
                parameters: &'e [<$db as Database>::TypeInfo],
            ) -> BoxFuture<'e, Result<<$db as Database>::Statement, sqlx::Error>>
            where
                'c: 'e,
            {
                self.pool().prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: SqlStr,
            ) -> BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                self.pool().describe(sql)
            }
        }
    };
}

#[cfg(feature = "postgres")]
impl_executor!(sqlx::Postgres);
#[cfg(feature = "mysql")]
impl_executor!(sqlx::MySql);
