//! Statements with their arguments, for services that are generic over the product: an action in
//! TCC mode or a consumer of events is a type with its database in it.

use futures::TryFutureExt;
use futures::future::{BoxFuture, FutureExt};
use handfast::{AtDatabase, AtTransaction};
use sqlx::{Database, MySql, Postgres, Sqlite};

use crate::database::Sql;

/// A value that a statement is given.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(&'a str),
}

impl From<i64> for Argument<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// A database product that runs statements of the examples.
pub trait Dialect: AtDatabase {
    /// Runs a statement and returns how many rows it has changed.
    fn execute<'c>(
        connection: &'c mut <Self as Database>::Connection,
        sql: Sql,
        arguments: &[Argument<'c>],
    ) -> BoxFuture<'c, Result<u64, sqlx::Error>>;

    /// As [`execute`](Self::execute), in a local transaction that may be a branch in AT mode.
    fn execute_in_branch<'c>(
        local: &'c mut AtTransaction<'_, Self>,
        sql: Sql,
        arguments: &[Argument<'c>],
    ) -> BoxFuture<'c, Result<u64, sqlx::Error>>;
}

/// Binds the arguments and executes.
macro_rules! bound {
    ($text:expr, $arguments:expr, $executor:expr) => {{
        let mut query = sqlx::query($text);
        for argument in $arguments {
            query = match *argument {
                Argument::Number(number) => query.bind(number),
                Argument::Text(text) => query.bind(text),
            };
        }
        query.execute($executor).map_ok(|changed| changed.rows_affected()).boxed()
    }};
}

macro_rules! impl_dialect {
    ($database:ty, $way:ident) => {
        impl Dialect for $database {
            fn execute<'c>(
                connection: &'c mut <Self as Database>::Connection,
                sql: Sql,
                arguments: &[Argument<'c>],
            ) -> BoxFuture<'c, Result<u64, sqlx::Error>> {
                bound!(sql.$way, arguments, connection)
            }

            fn execute_in_branch<'c>(
                local: &'c mut AtTransaction<'_, Self>,
                sql: Sql,
                arguments: &[Argument<'c>],
            ) -> BoxFuture<'c, Result<u64, sqlx::Error>> {
                bound!(sql.$way, arguments, local)
            }
        }
    };
}

impl_dialect!(Postgres, numbered);
impl_dialect!(MySql, plain);
impl_dialect!(Sqlite, numbered);
