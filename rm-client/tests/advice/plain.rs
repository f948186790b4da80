//! The operations of a database that the cases need beside the fixture: arguments, and statements
//! that run past the library and are taken back.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::AtTransaction;
use sqlx::{AssertSqlSafe, Executor, MySql, Pool, Postgres, Row, Sqlite};

use crate::at::{TestDatabase, TextRow};

/// A statement and its arguments.
pub(crate) type Bound = (&'static str, &'static [i64]);

/// The effect of statements that were taken back.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The rows that the last of them returned.
    pub(crate) answer: Vec<TextRow>,
    /// The rows of each query, before the statements were taken back.
    pub(crate) tables: Vec<Vec<TextRow>>,
}

pub(crate) trait PlainSql: TestDatabase {
    /// Executes a statement with arguments in a local transaction of the library.
    fn run_bound<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        statement: Bound,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;

    /// Executes statements past the library, reads, and takes them back.
    fn try_plain<'q>(
        pool: &'q Pool<Self>,
        statements: &'q [Bound],
        queries: &'q [String],
    ) -> BoxFuture<'q, Result<Tried, sqlx::Error>>;
}

macro_rules! texts {
    ($row:expr) => {
        (0..$row.len()).map(|index| $row.try_get_unchecked(index).unwrap()).collect()
    };
}

macro_rules! plain_sql {
    ($($database:ty),*) => { $(
        impl PlainSql for $database {
            fn run_bound<'q>(
                local: &'q mut AtTransaction<'_, Self>,
                (sql, arguments): Bound,
            ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
                async move {
                    let mut query = sqlx::query(sql);
                    for argument in arguments {
                        query = query.bind(*argument);
                    }
                    Ok(query.execute(local).await?.rows_affected())
                }
                .boxed()
            }

            fn try_plain<'q>(
                pool: &'q Pool<Self>,
                statements: &'q [Bound],
                queries: &'q [String],
            ) -> BoxFuture<'q, Result<Tried, sqlx::Error>> {
                async move {
                    let mut local = pool.begin().await?;
                    let mut answer = Vec::new();
                    for (sql, arguments) in statements {
                        let rows = if arguments.is_empty() {
                            local.fetch_all(sqlx::raw_sql(*sql)).await?
                        } else {
                            let mut query = sqlx::query(*sql);
                            for argument in *arguments {
                                query = query.bind(*argument);
                            }
                            query.fetch_all(&mut *local).await?
                        };
                        answer = rows.iter().map(|row| texts!(row)).collect();
                    }
                    let mut tables = Vec::with_capacity(queries.len());
                    for query in queries {
                        let query = sqlx::raw_sql(AssertSqlSafe(query.clone()));
                        let rows = local.fetch_all(query).await?;
                        tables.push(rows.iter().map(|row| texts!(row)).collect());
                    }
                    local.rollback().await?;
                    Ok(Tried { answer, tables })
                }
                .boxed()
            }
        }
    )* };
}

plain_sql!(Postgres, MySql, Sqlite);
