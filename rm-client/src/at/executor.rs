//! `sqlx::Executor` for local transactions and resources: one concrete impl per database.
//!
//! Reads that need no plan are handed on and stream; everything else runs to its end, then answers.

use std::future;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use sqlx::{Database, Execute, Executor, SqlStr};

use super::captured::Captured;
use super::resource::AtResource;
use super::transaction::AtTransaction;
use crate::context;

/// What a statement answers: counts and rows.
type Answer<DB> = Result<Either<<DB as Database>::QueryResult, <DB as Database>::Row>, sqlx::Error>;

fn failed<T: Send + 'static>(error: sqlx::Error) -> BoxStream<'static, Result<T, sqlx::Error>> {
    stream::once(future::ready(Err(error))).boxed()
}

// A generic impl over the database would break type inference in code that merely links this crate.
macro_rules! impl_executor {
    ($db:ty) => {
        impl<'c> Executor<'c> for &'c mut AtTransaction<'_, $db> {
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
                match self.passes(&query) {
                    Err(error) => failed(error),
                    Ok(true) => {
                        let AtTransaction { local, work, .. } = self;
                        async move { Ok(local.begun().await?.fetch_many(query)) }
                            .try_flatten_stream()
                            .inspect_err(move |error| work.failed::<$db>(error))
                            .boxed()
                    }
                    Ok(false) => stream::once(self.run(query))
                        .map_ok(|steps| stream::iter(steps).map(Ok))
                        .try_flatten()
                        .boxed(),
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
                let query = match Captured::take(query) {
                    Ok(query) => query,
                    Err(error) => return future::ready(Err(error)).boxed(),
                };
                match self.passes(&query) {
                    Err(error) => future::ready(Err(error)).boxed(),
                    Ok(true) => {
                        let AtTransaction { local, work, .. } = self;
                        async move { local.begun().await?.fetch_optional(query).await }
                            .inspect_err(move |error| work.failed::<$db>(error))
                            .boxed()
                    }
                    Ok(false) => async move {
                        Ok(self.run(query).await?.into_iter().find_map(Either::right))
                    }
                    .boxed(),
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
                self.local.connection().prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: SqlStr,
            ) -> BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                self.local.connection().describe(sql)
            }
        }

        impl<'c> Executor<'c> for &'c AtResource<$db> {
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
                    if self.passes(&query)? {
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
                    if self.passes(&query)? {
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
#[cfg(feature = "sqlite")]
impl_executor!(sqlx::Sqlite);
