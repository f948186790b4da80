//! A bare insert: the statement that a batch cannot do without.

use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::{MySql, Pool, Postgres};

use crate::at::BenchDatabase;

type Answer<'q, T> = BoxFuture<'q, Result<T, sqlx::Error>>;

/// A table of the columns of the store's journal, without its rules.
pub(super) trait BareTable: BenchDatabase {
    /// Creates the table.
    fn make_table(pool: &Pool<Self>) -> Answer<'_, ()>;
    /// Inserts a row in a transaction of its own.
    fn insert<'q>(pool: &'q Pool<Self>, number: i64, bytes: &'q [u8]) -> Answer<'q, ()>;
    /// Returns the newest batches of the store's journal, at most 300.
    fn newest_batches(pool: &Pool<Self>) -> Answer<'_, Vec<Vec<u8>>>;
}

macro_rules! bare_table {
    ($database:ty, $table:expr, $insert:expr) => {
        impl BareTable for $database {
            fn make_table(pool: &Pool<Self>) -> Answer<'_, ()> {
                async move { sqlx::raw_sql($table).execute(pool).await.map(drop) }.boxed()
            }

            fn insert<'q>(pool: &'q Pool<Self>, number: i64, bytes: &'q [u8]) -> Answer<'q, ()> {
                let query = sqlx::query($insert).bind("default").bind(number).bind(1_i64);
                let query = query.bind(1_i64).bind(bytes);
                async move { query.execute(pool).await.map(drop) }.boxed()
            }

            fn newest_batches(pool: &Pool<Self>) -> Answer<'_, Vec<Vec<u8>>> {
                let newest = "SELECT batch FROM tc_journal ORDER BY number DESC LIMIT 300";
                async move { sqlx::query_scalar(newest).fetch_all(pool).await }.boxed()
            }
        }
    };
}

bare_table!(
    Postgres,
    "CREATE TABLE bare (namespace text NOT NULL, number bigint NOT NULL, epoch bigint NOT NULL, \
     at bigint NOT NULL, batch bytea NOT NULL, PRIMARY KEY (namespace, number))",
    "INSERT INTO bare (namespace, number, epoch, at, batch) VALUES ($1, $2, $3, $4, $5)"
);
bare_table!(
    MySql,
    "CREATE TABLE bare (namespace VARCHAR(64) NOT NULL, number BIGINT NOT NULL, \
     epoch BIGINT NOT NULL, at BIGINT NOT NULL, batch LONGBLOB NOT NULL, \
     PRIMARY KEY (namespace, number)) ENGINE = InnoDB",
    "INSERT INTO bare (namespace, number, epoch, at, batch) VALUES (?, ?, ?, ?, ?)"
);
