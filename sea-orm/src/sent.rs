//! Statements of SeaORM sent through any executor of sqlx, and the answers in SeaORM's types.
//!
//! The values are bound, and the rows read, by SeaORM's own conversions.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sea_orm::QueryResult;

/// The rows of a statement.
pub(crate) type Rows<'e> = BoxStream<'e, Result<QueryResult, sqlx::Error>>;

/// The answer to a statement.
pub(crate) type Answer<'e, T> = BoxFuture<'e, Result<T, sqlx::Error>>;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod through {
    use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
    use sea_orm::{ExecResult, QueryResult, Statement, Values};
    use sea_query_sqlx::SqlxValues;
    use sqlx::query::Query;
    use sqlx::{AssertSqlSafe, Database, Executor, IntoArguments};

    use super::{Answer, Rows};

    /// Returns the statement as a prepared query, as SeaORM's own connections send it.
    fn query<DB: Database>(statement: Statement) -> Query<'static, DB, SqlxValues>
    where
        SqlxValues: IntoArguments<DB>,
    {
        let values = statement.values.unwrap_or_else(|| Values(Vec::new()));
        // SeaORM has made the text, or the application has written it.
        sqlx::query_with(AssertSqlSafe(statement.sql), SqlxValues(values))
    }

    pub(crate) fn rows<'e, DB: Database, E>(executor: E, statement: Statement) -> Rows<'e>
    where
        E: Executor<'e, Database = DB>,
        SqlxValues: IntoArguments<DB>,
        QueryResult: From<DB::Row>,
    {
        executor.fetch(query::<DB>(statement)).map_ok(QueryResult::from).boxed()
    }

    pub(crate) fn row<'e, DB: Database, E>(
        executor: E,
        statement: Statement,
    ) -> Answer<'e, Option<QueryResult>>
    where
        E: Executor<'e, Database = DB>,
        SqlxValues: IntoArguments<DB>,
        QueryResult: From<DB::Row>,
    {
        let row = executor.fetch_optional(query::<DB>(statement));
        row.map_ok(|row| row.map(QueryResult::from)).boxed()
    }

    pub(crate) fn execute<'e, DB: Database, E>(
        executor: E,
        statement: Statement,
    ) -> Answer<'e, ExecResult>
    where
        E: Executor<'e, Database = DB>,
        SqlxValues: IntoArguments<DB>,
        ExecResult: From<DB::QueryResult>,
    {
        executor.execute(query::<DB>(statement)).map_ok(ExecResult::from).boxed()
    }

    pub(crate) fn execute_text<'e, DB: Database, E>(
        executor: E,
        text: String,
    ) -> Answer<'e, ExecResult>
    where
        E: Executor<'e, Database = DB>,
        ExecResult: From<DB::QueryResult>,
    {
        executor.execute(AssertSqlSafe(text)).map_ok(ExecResult::from).boxed()
    }
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) use through::{execute, execute_text, row, rows};
