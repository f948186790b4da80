//! `sqlx::Executor` for the local transactions and resources of AT mode and of two-phase commit.
//!
//! Queries that need no plan are handed on and stream; every other one runs to its end, then
//! answers. The two modes differ in how they classify a query and in how they run a planned one.

use std::future;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use sqlx::Database;

/// How a query goes to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<P> {
    /// Untouched: there is nothing in it to undo or to lock, or no global around it.
    Plain,
    /// By a plan, or as a branch of its own.
    Planned(P),
}

/// One answer to a query: a count or a row.
pub(crate) type QueryItem<DB> =
    Result<Either<<DB as Database>::QueryResult, <DB as Database>::Row>, sqlx::Error>;

/// Returns a stream that ends with the error.
pub(crate) fn failed_stream<T: Send + 'static>(
    error: sqlx::Error,
) -> BoxStream<'static, Result<T, sqlx::Error>> {
    stream::once(future::ready(Err(error))).boxed()
}

/// Returns a future that ends with the error.
pub(crate) fn failed_future<T: Send + 'static>(
    error: sqlx::Error,
) -> BoxFuture<'static, Result<T, sqlx::Error>> {
    future::ready(Err(error)).boxed()
}

/// Implements `sqlx::Executor` for one database: for `&mut $transaction` and for `&$resource`.
///
/// A generic impl over the database would break type inference in code that merely links this
/// crate.
///
/// Both types have `classify`. The transaction has `run`, `connection`, and `split` into its
/// session and a function that takes note of a failure; the resource has `pool` and `run_alone`.
macro_rules! impl_executor {
    ($transaction:ident, $resource:ident, $db:ty) => {
        impl<'c> sqlx::Executor<'c> for &'c mut $transaction<'_, $db> {
            type Database = $db;

            fn fetch_many<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::stream::BoxStream<'e, $crate::executor::QueryItem<$db>>
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};

                use $crate::executor::{Route, failed_stream};

                let query = match $crate::at::BoundQuery::take(query) {
                    Ok(query) => query,
                    Err(error) => return failed_stream(error),
                };
                match self.classify(&query) {
                    Err(error) => failed_stream(error),
                    Ok(Route::Plain) => {
                        let (session, mut note_failure) = self.split();
                        async move { Ok(session.begun().await?.fetch_many(query)) }
                            .try_flatten_stream()
                            .inspect_err(move |error| note_failure(error))
                            .boxed()
                    }
                    Ok(Route::Planned(planned)) => stream::once(self.run(query, planned))
                        .map_ok(|steps| stream::iter(steps).map(Ok))
                        .try_flatten()
                        .boxed(),
                }
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::future::BoxFuture<
                'e,
                Result<Option<<$db as sqlx::Database>::Row>, sqlx::Error>,
            >
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                use either::Either;
                use futures::{FutureExt, TryFutureExt};

                use $crate::executor::{Route, failed_future};

                let query = match $crate::at::BoundQuery::take(query) {
                    Ok(query) => query,
                    Err(error) => return failed_future(error),
                };
                match self.classify(&query) {
                    Err(error) => failed_future(error),
                    Ok(Route::Plain) => {
                        let (session, mut note_failure) = self.split();
                        async move { session.begun().await?.fetch_optional(query).await }
                            .inspect_err(move |error| note_failure(error))
                            .boxed()
                    }
                    Ok(Route::Planned(planned)) => async move {
                        Ok(self.run(query, planned).await?.into_iter().find_map(Either::right))
                    }
                    .boxed(),
                }
            }

            fn prepare_with<'e>(
                self,
                sql: sqlx::SqlStr,
                parameters: &'e [<$db as sqlx::Database>::TypeInfo],
            ) -> futures::future::BoxFuture<
                'e,
                Result<<$db as sqlx::Database>::Statement, sqlx::Error>,
            >
            where
                'c: 'e,
            {
                self.connection().prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: sqlx::SqlStr,
            ) -> futures::future::BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                self.connection().describe(sql)
            }
        }

        impl<'c> sqlx::Executor<'c> for &'c $resource<$db> {
            type Database = $db;

            fn fetch_many<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::stream::BoxStream<'e, $crate::executor::QueryItem<$db>>
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                use futures::{StreamExt, TryFutureExt, stream};

                use $crate::executor::{Route, failed_stream};

                let query = match $crate::at::BoundQuery::take(query) {
                    Ok(query) => query,
                    Err(error) => return failed_stream(error),
                };
                let answers = async move {
                    match self.classify(&query)? {
                        Route::Plain => Ok(self.pool().fetch_many(query)),
                        Route::Planned(planned) => {
                            let steps = self.run_alone(query, planned).await?;
                            Ok(stream::iter(steps).map(Ok).boxed())
                        }
                    }
                };
                $crate::context::scope_of_poll(answers).try_flatten_stream().boxed()
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::future::BoxFuture<
                'e,
                Result<Option<<$db as sqlx::Database>::Row>, sqlx::Error>,
            >
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                use either::Either;
                use futures::FutureExt;

                use $crate::executor::{Route, failed_future};

                let query = match $crate::at::BoundQuery::take(query) {
                    Ok(query) => query,
                    Err(error) => return failed_future(error),
                };
                let answer = async move {
                    match self.classify(&query)? {
                        Route::Plain => self.pool().fetch_optional(query).await,
                        Route::Planned(planned) => {
                            let steps = self.run_alone(query, planned).await?;
                            Ok(steps.into_iter().find_map(Either::right))
                        }
                    }
                };
                $crate::context::scope_of_poll(answer).boxed()
            }

            fn prepare_with<'e>(
                self,
                sql: sqlx::SqlStr,
                parameters: &'e [<$db as sqlx::Database>::TypeInfo],
            ) -> futures::future::BoxFuture<
                'e,
                Result<<$db as sqlx::Database>::Statement, sqlx::Error>,
            >
            where
                'c: 'e,
            {
                self.pool().prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: sqlx::SqlStr,
            ) -> futures::future::BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                self.pool().describe(sql)
            }
        }
    };
}

/// Implements `sqlx::Executor` for `&mut` of the guard that a closure gets: all is handed on to the
/// transaction in it.
macro_rules! impl_executor_of_guard {
    ($transaction:ident, $db:ty) => {
        impl<'c> sqlx::Executor<'c>
            for &'c mut $crate::guard::TransactionGuard<$transaction<'static, $db>>
        {
            type Database = $db;

            fn fetch_many<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::stream::BoxStream<'e, $crate::executor::QueryItem<$db>>
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                (&mut **self).fetch_many(query)
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> futures::future::BoxFuture<
                'e,
                Result<Option<<$db as sqlx::Database>::Row>, sqlx::Error>,
            >
            where
                'c: 'e,
                E: 'q + sqlx::Execute<'q, $db>,
            {
                (&mut **self).fetch_optional(query)
            }

            fn prepare_with<'e>(
                self,
                sql: sqlx::SqlStr,
                parameters: &'e [<$db as sqlx::Database>::TypeInfo],
            ) -> futures::future::BoxFuture<
                'e,
                Result<<$db as sqlx::Database>::Statement, sqlx::Error>,
            >
            where
                'c: 'e,
            {
                (&mut **self).prepare_with(sql, parameters)
            }

            fn describe<'e>(
                self,
                sql: sqlx::SqlStr,
            ) -> futures::future::BoxFuture<'e, Result<sqlx::Describe<$db>, sqlx::Error>>
            where
                'c: 'e,
            {
                (&mut **self).describe(sql)
            }
        }
    };
}

pub(crate) use {impl_executor, impl_executor_of_guard};
