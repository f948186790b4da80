//! The fixture of AT tests: a real coordinator in this process, and a real database of its own.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test binary uses its own part")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../tc/mod.rs"]
pub(crate) mod tc;

pub(crate) mod bank;
pub(crate) mod operator;
pub(crate) mod read_committed;

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{
    AtDatabase, AtError, AtResource, AtTransaction, Global, GlobalStatus, Handfast, Xid,
};
use handfast_test_services::until_some;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, Pool, Postgres, Row, Sqlite,
};

use tc::Tc;

/// A row as texts; `None` is NULL.
pub(crate) type TextRow = Vec<Option<String>>;

/// The operations of tests on a database that the library does not have.
pub(crate) trait TestDatabase: AtDatabase + Sized {
    const NAME_IN_TESTS: &'static str;
    /// The type to cast to for a readable value.
    const TEXT: &'static str;

    /// Makes a database. The directory, if there is one, must outlive it.
    fn create() -> BoxFuture<'static, (Pool<Self>, Option<tempfile::TempDir>)>;
    /// Makes another pool onto the same database.
    fn again(pool: &Pool<Self>) -> BoxFuture<'_, Pool<Self>>;
    /// Executes SQL in a local transaction of the library.
    fn run<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// Executes SQL through the resource.
    fn run_alone<'q>(
        resource: &'q AtResource<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// The same with arguments.
    fn run_alone_with<'q>(
        resource: &'q AtResource<Self>,
        sql: &'q str,
        arguments: &'q [i64],
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// Reads rows of texts in a local transaction of the library.
    fn read<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;
    /// Executes SQL past the library.
    fn raw<'q>(pool: &'q Pool<Self>, sql: &'q str) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// Reads rows of texts past the library.
    fn raw_rows<'q>(
        pool: &'q Pool<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;
}

macro_rules! test_database_basics {
    () => {
        fn run<'q>(
            local: &'q mut AtTransaction<'_, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                Ok(query.execute(local).await?.rows_affected())
            }
            .boxed()
        }

        fn run_alone<'q>(
            resource: &'q AtResource<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                Ok(query.execute(resource).await?.rows_affected())
            }
            .boxed()
        }

        fn run_alone_with<'q>(
            resource: &'q AtResource<Self>,
            sql: &'q str,
            arguments: &'q [i64],
        ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                let query = arguments.iter().fold(query, |query, it| query.bind(*it));
                Ok(query.execute(resource).await?.rows_affected())
            }
            .boxed()
        }

        fn read<'q>(
            local: &'q mut AtTransaction<'_, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                let rows = query.fetch_all(local).await?;
                Ok(rows.iter().map(|row| texts!(row)).collect())
            }
            .boxed()
        }

        fn raw<'q>(pool: &'q Pool<Self>, sql: &'q str) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
                Ok(query.execute(pool).await?.rows_affected())
            }
            .boxed()
        }

        fn raw_rows<'q>(
            pool: &'q Pool<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                let rows = query.fetch_all(pool).await?;
                Ok(rows.iter().map(|row| texts!(row)).collect())
            }
            .boxed()
        }
    };
}

macro_rules! texts {
    ($row:expr) => {
        (0..$row.len()).map(|index| $row.try_get_unchecked(index).unwrap()).collect()
    };
}

fn server_url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `cargo xtask test`, which starts servers")
    })
}

fn fresh_name() -> String {
    format!("at_{}", uuid::Uuid::new_v4().simple())
}

impl TestDatabase for Postgres {
    const NAME_IN_TESTS: &'static str = "postgres";
    const TEXT: &'static str = "text";

    fn create() -> BoxFuture<'static, (Pool<Self>, Option<tempfile::TempDir>)> {
        async {
            let url = server_url("HANDFAST_TEST_POSTGRES");
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let name = fresh_name();
            let mut server = options.clone().connect().await.unwrap();
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
            let options = options.database(&name);
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20);
            (pool.connect_with(options).await.unwrap(), None)
        }
        .boxed()
    }

    fn again(pool: &Pool<Self>) -> BoxFuture<'_, Pool<Self>> {
        let options = pool.connect_options().as_ref().clone();
        async { sqlx::postgres::PgPoolOptions::new().connect_with(options).await.unwrap() }.boxed()
    }

    test_database_basics!();
}

impl TestDatabase for MySql {
    const NAME_IN_TESTS: &'static str = "mysql";
    const TEXT: &'static str = "char";

    fn create() -> BoxFuture<'static, (Pool<Self>, Option<tempfile::TempDir>)> {
        async {
            let url = server_url("HANDFAST_TEST_MYSQL");
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let name = fresh_name();
            let mut server = options.clone().connect().await.unwrap();
            let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
            server.execute(AssertSqlSafe(create)).await.unwrap();
            let options = options.database(&name);
            let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(20);
            (pool.connect_with(options).await.unwrap(), None)
        }
        .boxed()
    }

    fn again(pool: &Pool<Self>) -> BoxFuture<'_, Pool<Self>> {
        let options = pool.connect_options().as_ref().clone();
        async { sqlx::mysql::MySqlPoolOptions::new().connect_with(options).await.unwrap() }.boxed()
    }

    test_database_basics!();
}

impl TestDatabase for Sqlite {
    const NAME_IN_TESTS: &'static str = "sqlite";
    const TEXT: &'static str = "text";

    fn create() -> BoxFuture<'static, (Pool<Self>, Option<tempfile::TempDir>)> {
        async {
            let directory = tempfile::tempdir().unwrap();
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(directory.path().join("test.db"))
                .create_if_missing(true)
                .busy_timeout(Duration::from_secs(60))
                .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
            let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(20);
            (pool.connect_with(options).await.unwrap(), Some(directory))
        }
        .boxed()
    }

    fn again(pool: &Pool<Self>) -> BoxFuture<'_, Pool<Self>> {
        let options = pool.connect_options().as_ref().clone();
        async { sqlx::sqlite::SqlitePoolOptions::new().connect_with(options).await.unwrap() }
            .boxed()
    }

    test_database_basics!();
}

/// A coordinator, a database, and the library between them.
pub(crate) struct Stage<DB: TestDatabase> {
    pub(crate) tc: Tc,
    pub(crate) handfast: Handfast,
    pub(crate) pool: Pool<DB>,
    pub(crate) resource: AtResource<DB>,
    _directory: Option<tempfile::TempDir>,
}

impl<DB: TestDatabase> Stage<DB> {
    /// Returns a stage on a database in which the statements of `setup` have run.
    pub(crate) async fn new(setup: &[&str]) -> Self {
        Self::on(DB::create().await, setup).await
    }

    /// The same on a database that is there.
    pub(crate) async fn on(
        (pool, directory): (Pool<DB>, Option<tempfile::TempDir>),
        setup: &[&str],
    ) -> Self {
        let tc = Tc::start().await;
        let handfast = Handfast::connect(tc.endpoint()).application("tests").await.unwrap();
        handfast.migrate(&pool).await.unwrap();
        for sql in setup {
            DB::raw(&pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let resource = handfast.at(pool.clone()).await.unwrap();
        Self { tc, handfast, pool, resource, _directory: directory }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("test").begin().await.unwrap()
    }

    /// Runs statements as one branch of a global.
    pub(crate) async fn branch(&self, global: &Global, statements: &[&str]) {
        self.try_branch(global, statements).await.unwrap();
    }

    pub(crate) async fn try_branch(
        &self,
        global: &Global,
        statements: &[&str],
    ) -> Result<(), sqlx::Error> {
        global
            .scope(async {
                let mut local = self.resource.begin().await?;
                for sql in statements {
                    DB::run(&mut local, sql).await?;
                }
                local.commit().await
            })
            .await
    }

    /// Returns the named columns of a table as texts, sorted by all of them.
    pub(crate) async fn dump(&self, table: &str, columns: &[&str]) -> Vec<TextRow> {
        let casts: Vec<String> =
            columns.iter().map(|column| format!("CAST({column} AS {})", DB::TEXT)).collect();
        let order = (1..=columns.len()).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT {} FROM {table} ORDER BY {order}", casts.join(", "));
        DB::raw_rows(&self.pool, &sql).await.unwrap()
    }

    /// Returns the only value of the only row of a query.
    pub(crate) async fn value(&self, sql: &str) -> Option<String> {
        let sql = format!("SELECT CAST(({sql}) AS {})", DB::TEXT);
        DB::raw_rows(&self.pool, &sql).await.unwrap().remove(0).remove(0)
    }

    pub(crate) async fn undo_rows(&self) -> usize {
        let count = self.value("SELECT COUNT(*) FROM undo_log WHERE log_status = 0").await;
        count.unwrap().parse().unwrap()
    }

    /// Polls until the global has the expected status.
    pub(crate) async fn await_status(
        &self,
        xid: &Xid,
        expected: impl Fn(GlobalStatus) -> bool,
    ) -> GlobalStatus {
        until_some("the global has the status", async || {
            let status = self.handfast.outcome(xid).await.unwrap();
            expected(status).then_some(status)
        })
        .await
    }

    /// Commits a global and waits until its undo rows are gone.
    pub(crate) async fn commit(&self, global: Global) {
        let xid = global.xid().clone();
        global.commit().await.unwrap();
        self.await_status(&xid, |status| status == GlobalStatus::Committed).await;
    }

    /// Rolls a global back and waits until its rows are back.
    pub(crate) async fn roll_back(&self, global: Global) {
        let xid = global.xid().clone();
        global.rollback("test").await.unwrap();
        self.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    }

    /// Runs statements as one branch, rolls back, and checks that the table is as it was before.
    pub(crate) async fn check_undone(&self, table: &str, columns: &[&str], statements: &[&str]) {
        let before = self.dump(table, columns).await;
        let global = self.begin().await;
        self.branch(&global, statements).await;
        let between = self.dump(table, columns).await;
        assert_ne!(between, before, "{statements:?} changes something");
        self.roll_back(global).await;
        assert_eq!(self.dump(table, columns).await, before, "{statements:?} is undone");
        assert_eq!(self.undo_rows().await, 0);
    }
}

/// Returns the stable code of an AT failure, or the error itself.
pub(crate) fn code(error: &sqlx::Error) -> String {
    AtError::of(error).map_or_else(|| format!("{error:?}"), |ours| ours.code().to_owned())
}

/// Makes one test per database of generic functions `async fn name<DB: TestDatabase>()`.
macro_rules! on_every_database {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::MySql>().await })* }
        mod sqlite { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Sqlite>().await })* }
    };
}

pub(crate) use on_every_database;
use texts;
