//! The operations that the test needs from each database: a pair of fresh databases, statements
//! with and without the library, comparable values.

use std::path::Path;
use std::time::Duration;

use either::Either;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use handfast::{AtDatabase, AtError, AtTransaction};
use handfast_rm_core::plan::Dialect;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions, Connection as _, Decode, Executor, MySql, Pool,
    Postgres, Row, Sqlite, Transaction, TypeInfo, ValueRef,
};

use crate::columns::{mysql, postgres, sqlite};
use crate::statement::{Bound, Kind, Statement};
use crate::witness::Witness;

/// MySQL: refusals that may come when the statement has run already, so that the branch can only be
/// rolled back.
const LATE_REFUSALS: [&str; 2] = ["HF-AT-KEY-CHANGED", "HF-AT-ROW-REFERS-TO-ITSELF"];

/// A row as texts; `None` is NULL.
pub(crate) type TextRow = Vec<Option<String>>;

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) affected: u64,
    /// Sorted, since the statement has no ORDER BY. Each value consists of its type and its bytes.
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// A database for the library, its twin, and a guard that keeps both alive.
pub(crate) struct Twins<DB: AtDatabase> {
    pub(crate) ours: Pool<DB>,
    pub(crate) plain: Pool<DB>,
    pub(crate) directory: Option<tempfile::TempDir>,
    /// The changes that the first database reports.
    pub(crate) witness: Witness,
}

/// A database product of which the test can create a pair.
pub(crate) trait Twin: AtDatabase {
    const SPEAKS: Dialect;
    const TITLE: &'static str;
    /// Whether a failed statement leaves the transaction unusable without a savepoint.
    const FAILURE_ENDS: bool;
    /// Whether a failed statement may leave part of its changes without a savepoint, which the
    /// library sets by itself.
    const KEEPS_HALVES: bool;

    /// Two fresh databases that sync nothing, with the types that columns are declared with.
    fn create() -> BoxFuture<'static, Twins<Self>>;

    /// Restores the server's settings.
    fn end(ours: &Pool<Self>) -> BoxFuture<'_, ()>;

    /// Whether the library may find only while a statement runs that it cannot undo it exactly. If
    /// MySQL generates a row's number and no unique column identifies the row (NULL was bound), no
    /// read finds it. A text of SQLite need not be UTF-8.
    fn may_withdraw(statement: &Statement, error: &AtError) -> bool {
        let upserts = [Kind::Upsert, Kind::Replace, Kind::InsertIgnore];
        match Self::SPEAKS {
            Dialect::MySql => {
                let missed = matches!(error, AtError::RowsDiffer { .. })
                    || error.to_string().contains("after the upsert");
                missed && upserts.contains(&statement.kind) || LATE_REFUSALS.contains(&error.code())
            }
            Dialect::Sqlite => matches!(error, AtError::Value { .. }),
            Dialect::Postgres => false,
        }
    }

    /// Returns an SQL expression whose text differs for any two values of a column.
    fn shown(name: &str, type_text: &str) -> String;

    /// Executes a statement through the library.
    fn ours<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        statement: &'q Statement,
    ) -> BoxFuture<'q, Result<Answer, sqlx::Error>>;

    /// Executes a statement without the library.
    fn plain<'q>(
        local: &'q mut Transaction<'static, Self>,
        statement: &'q Statement,
    ) -> BoxFuture<'q, Result<Answer, sqlx::Error>>;

    /// Executes SQL without the library, in a transaction.
    fn control<'q>(
        local: &'q mut Transaction<'static, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>>;

    /// Executes SQL without the library, outside a transaction.
    fn raw<'q>(pool: &'q Pool<Self>, sql: &'q str) -> BoxFuture<'q, Result<u64, sqlx::Error>>;

    /// Reads rows of texts.
    fn texts<'q>(
        pool: &'q Pool<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;

    /// Copies the number generators to the plain database after a rollback of a global, since
    /// generated numbers are not returned.
    fn align<'q>(ours: &'q Pool<Self>, plain: &'q Pool<Self>) -> BoxFuture<'q, ()>;

    /// Closes the prepared statements of a pool's connections, where closing one by one delays the
    /// call behind each.
    fn close_prepared(_: &Pool<Self>) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// Reads rows of texts in a transaction.
    fn texts_in<'q>(
        local: &'q mut Transaction<'static, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;
}

/// The implementation is the same text for each database, but the types differ.
macro_rules! execution {
    ($db:ty) => {
        fn ours<'q>(
            local: &'q mut AtTransaction<'_, Self>,
            statement: &'q Statement,
        ) -> BoxFuture<'q, Result<Answer, sqlx::Error>> {
            let query = query!($db, statement, &statement.sql);
            async move { answered!($db, Executor::fetch_many(local, query)) }.boxed()
        }

        fn plain<'q>(
            local: &'q mut Transaction<'static, Self>,
            statement: &'q Statement,
        ) -> BoxFuture<'q, Result<Answer, sqlx::Error>> {
            let sql = statement.plain_sql.as_ref().unwrap_or(&statement.sql);
            let query = query!($db, statement, sql);
            async move { answered!($db, Executor::fetch_many(&mut **local, query)) }.boxed()
        }

        fn control<'q>(
            local: &'q mut Transaction<'static, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<(), sqlx::Error>> {
            let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
            async move { query.execute(&mut **local).await.map(|_| ()) }.boxed()
        }

        fn raw<'q>(pool: &'q Pool<Self>, sql: &'q str) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
            async move { Ok(query.execute(pool).await?.rows_affected()) }.boxed()
        }

        fn texts<'q>(
            pool: &'q Pool<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
            async move { query.fetch_all(pool).await?.iter().map(text_row!()).collect() }.boxed()
        }

        fn texts_in<'q>(
            local: &'q mut Transaction<'static, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
            async move { query.fetch_all(&mut **local).await?.iter().map(text_row!()).collect() }
                .boxed()
        }
    };
}

macro_rules! text_row {
    () => {
        |row| (0..row.len()).map(|index| row.try_get_unchecked(index)).collect()
    };
}

macro_rules! query {
    ($db:ty, $statement:expr, $sql:expr) => {{
        let mut query = sqlx::query::<$db>(AssertSqlSafe($sql.clone()));
        for argument in &$statement.arguments {
            query = match argument {
                Bound::Null => query.bind(None::<String>),
                Bound::Whole(number) => query.bind(*number),
                Bound::Text(text) => query.bind(text.clone()),
            };
        }
        query
    }};
}

macro_rules! answered {
    ($db:ty, $stream:expr) => {{
        let steps: Vec<_> = $stream.try_collect().await?;
        let mut answer = Answer { affected: 0, rows: Vec::new() };
        for step in &steps {
            match step {
                Either::Left(result) => answer.affected += result.rows_affected(),
                Either::Right(row) => {
                    let ours = row.columns().iter().map(|column| column.name().starts_with("hf_"));
                    let own = ours.enumerate().filter(|(_, ours)| !ours);
                    let cells = own.map(|(index, _)| {
                        let value = row.try_get_raw(index)?;
                        cell_of::<$db>(value)
                    });
                    answer.rows.push(cells.collect::<Result<_, sqlx::Error>>()?);
                }
            }
        }
        answer.rows.sort();
        Ok(answer)
    }};
}

/// Returns the bytes of a value, or `None` for NULL.
fn cell_of<DB: Cell>(value: DB::ValueRef<'_>) -> Result<Option<Vec<u8>>, sqlx::Error> {
    DB::cell(value)
}

trait Cell: sqlx::Database {
    fn cell(value: Self::ValueRef<'_>) -> Result<Option<Vec<u8>>, sqlx::Error>;
}

impl Cell for Postgres {
    fn cell(value: Self::ValueRef<'_>) -> Result<Option<Vec<u8>>, sqlx::Error> {
        if value.is_null() {
            return Ok(None);
        }
        value.as_bytes().map(|bytes| Some(bytes.to_vec())).map_err(sqlx::Error::Decode)
    }
}

impl Cell for MySql {
    /// The driver takes a date of zeroes for NULL, so its answer is not used.
    fn cell(value: Self::ValueRef<'_>) -> Result<Option<Vec<u8>>, sqlx::Error> {
        Ok(<&[u8] as Decode<MySql>>::decode(value).ok().map(<[u8]>::to_vec))
    }
}

impl Cell for Sqlite {
    fn cell(value: Self::ValueRef<'_>) -> Result<Option<Vec<u8>>, sqlx::Error> {
        if value.is_null() {
            return Ok(None);
        }
        let mut cell = value.type_info().name().as_bytes().to_vec();
        let bytes =
            match cell.as_slice() {
                b"INTEGER" => <i64 as Decode<Sqlite>>::decode(value)
                    .map(|number| number.to_be_bytes().to_vec()),
                b"REAL" => <f64 as Decode<Sqlite>>::decode(value)
                    .map(|number| number.to_be_bytes().to_vec()),
                _ => <Vec<u8> as Decode<Sqlite>>::decode(value),
            };
        cell.extend(bytes.map_err(sqlx::Error::Decode)?);
        Ok(Some(cell))
    }
}

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `cargo xtask test`, which starts servers")
    })
}

fn fresh_name() -> String {
    format!("differential_{}", uuid::Uuid::new_v4().simple())
}

impl Twin for Postgres {
    const SPEAKS: Dialect = Dialect::Postgres;
    const TITLE: &'static str = "PostgreSQL";
    const FAILURE_ENDS: bool = true;
    const KEEPS_HALVES: bool = false;

    /// Creates two schemas of one database, so that a type that both use is the same type.
    fn create() -> BoxFuture<'static, Twins<Self>> {
        async {
            let url = server("HANDFAST_TEST_POSTGRES");
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let options = options.options([("synchronous_commit", "off")]);
            let name = fresh_name();
            let mut server = options.clone().connect().await.unwrap();
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
            let options = options.database(&name);
            let pool = || sqlx::postgres::PgPoolOptions::new().max_connections(4);
            let ours = pool().connect_with(options.clone()).await.unwrap();
            Self::raw(&ours, "CREATE SCHEMA twin").await.unwrap();
            for sql in postgres::TYPES {
                Self::raw(&ours, sql).await.unwrap();
            }
            let options = options.options([("search_path", "twin,public")]);
            let plain = pool().connect_with(options).await.unwrap();
            Twins { ours, plain, directory: None, witness: Witness::default() }
        }
        .boxed()
    }

    fn end(_: &Pool<Self>) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn shown(name: &str, _: &str) -> String {
        postgres::shown(name)
    }

    fn align<'q>(_: &'q Pool<Self>, _: &'q Pool<Self>) -> BoxFuture<'q, ()> {
        // A local transaction that is rolled back does not return its numbers either, so both are
        // equal.
        std::future::ready(()).boxed()
    }

    execution!(Postgres);
}

impl Twin for MySql {
    const SPEAKS: Dialect = Dialect::MySql;
    const TITLE: &'static str = "MariaDB";
    const FAILURE_ENDS: bool = false;
    const KEEPS_HALVES: bool = false;

    /// Syncing is a setting of the server: it is off until [`Twin::end`].
    fn create() -> BoxFuture<'static, Twins<Self>> {
        async {
            let (ours, plain) = (mysql_database().await, mysql_database().await);
            Self::raw(&ours, "SET GLOBAL innodb_flush_log_at_trx_commit = 0").await.unwrap();
            Twins { ours, plain, directory: None, witness: Witness::default() }
        }
        .boxed()
    }

    fn end(ours: &Pool<Self>) -> BoxFuture<'_, ()> {
        async {
            Self::raw(ours, "SET GLOBAL innodb_flush_log_at_trx_commit = 1").await.unwrap();
        }
        .boxed()
    }

    fn shown(name: &str, type_text: &str) -> String {
        mysql::shown(name, type_text)
    }

    fn align<'q>(_: &'q Pool<Self>, _: &'q Pool<Self>) -> BoxFuture<'q, ()> {
        // A local transaction that is rolled back does not return its numbers either, so both are
        // equal.
        std::future::ready(()).boxed()
    }

    fn close_prepared(pool: &Pool<Self>) -> BoxFuture<'_, ()> {
        async {
            let mut all = Vec::new();
            for _ in 0..pool.size() {
                all.push(pool.acquire().await.unwrap());
            }
            for connection in &mut all {
                connection.clear_cached_statements().await.unwrap();
            }
        }
        .boxed()
    }

    execution!(MySql);
}

impl Twin for Sqlite {
    const SPEAKS: Dialect = Dialect::Sqlite;
    const TITLE: &'static str = "SQLite";
    const FAILURE_ENDS: bool = false;
    const KEEPS_HALVES: bool = true;

    fn create() -> BoxFuture<'static, Twins<Self>> {
        async {
            let directory = tempfile::tempdir().unwrap();
            let (witness, pool) = (Witness::default(), SqlitePoolOptions::new().max_connections(4));
            let ours = witness.listen(pool.clone());
            let ours = sqlite_file(ours, &directory.path().join("ours.db")).await;
            let plain = sqlite_file(pool, &directory.path().join("plain.db")).await;
            Twins { ours, plain, directory: Some(directory), witness }
        }
        .boxed()
    }

    fn end(_: &Pool<Self>) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn shown(name: &str, _: &str) -> String {
        sqlite::shown(name)
    }

    fn align<'q>(ours: &'q Pool<Self>, plain: &'q Pool<Self>) -> BoxFuture<'q, ()> {
        const READ: &str = "SELECT name, CAST(seq AS TEXT) FROM sqlite_sequence";
        async {
            // The table is created with the first AUTOINCREMENT. `ours` may have only that of a
            // client table.
            let numbers = Self::texts(ours, READ).await;
            let (Ok(numbers), Ok(_)) = (numbers, Self::texts(plain, READ).await) else { return };
            Self::raw(plain, "DELETE FROM sqlite_sequence").await.unwrap();
            for number in numbers {
                let [Some(name), Some(number)] = number.as_slice() else { unreachable!() };
                let sql = format!("INSERT INTO sqlite_sequence VALUES ('{name}', {number})");
                Self::raw(plain, &sql).await.unwrap();
            }
        }
        .boxed()
    }

    execution!(Sqlite);
}

async fn mysql_database() -> Pool<MySql> {
    let options: sqlx::mysql::MySqlConnectOptions = server("HANDFAST_TEST_MYSQL").parse().unwrap();
    let name = fresh_name();
    let mut server = options.clone().connect().await.unwrap();
    let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
    server.execute(AssertSqlSafe(create)).await.unwrap();
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(4);
    // Room for the statements of a set of tables: see [`Twin::close_prepared`].
    let options = options.database(&name).statement_cache_capacity(1_000);
    pool.connect_with(options).await.unwrap()
}

async fn sqlite_file(pool: SqlitePoolOptions, path: &Path) -> Pool<Sqlite> {
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(60))
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Off);
    pool.connect_with(options).await.unwrap()
}
