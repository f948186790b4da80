//! The databases of the benchmark: a fresh one with a table, and the same work as a plain local
//! transaction, as a branch, and under the database's own two-phase commit.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{AtDatabase, AtResource, AtTransaction};
use handfast_interop::undo_log;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySql, Pool, Postgres, Sqlite, Transaction,
};
use tempfile::TempDir;

/// The number of rows of the table.
pub(crate) const ITEMS: i64 = 100_000;
const ITEMS_PER_INSERT: i64 = 1_000;

/// The statement of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Statement {
    /// Changes one row by its key.
    Point,
    /// Changes one row by a condition that names no key, which needs a before and an after image.
    General,
    /// Inserts a row that refers to one of the table, which takes a shared lock on that.
    Child,
}

impl Statement {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Point => "point update",
            Self::General => "general update",
            Self::Child => "insert of a row that refers to another",
        }
    }
}

/// A fresh database, and what is to be removed in the end.
#[derive(Debug)]
pub(crate) struct Fresh<DB: sqlx::Database> {
    pub(crate) pool: Pool<DB>,
    pub(crate) name: String,
    _directory: Option<TempDir>,
}

type Done<'q> = BoxFuture<'q, Result<(), sqlx::Error>>;

/// The parameters by which a Seata client in Java uses a database product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeataDialect {
    /// The begin of a URL, before the address of the server.
    pub(crate) jdbc: &'static str,
    /// The statements that make the client's table.
    pub(crate) undo_log: &'static [&'static str],
}

/// A database product.
pub(crate) trait BenchDatabase: AtDatabase + Sized {
    /// Its name in the report.
    const PRODUCT: &'static str;
    /// Writes the statement that removes a database, if there is a server to send it to.
    const DROP: Option<fn(&str) -> String>;
    /// The column of a key that the database generates.
    const GENERATED_KEY: &'static str;
    /// How a Seata client uses it, if one can.
    const SEATA: Option<SeataDialect>;

    /// Creates a fresh database on the server at the URL, or in a file below the folder. All its
    /// connections are opened at once: some servers have a process for each, and its cost counts.
    fn create<'q>(
        url: &'q str,
        folder: &'q Path,
        connections: u32,
    ) -> BoxFuture<'q, Result<Fresh<Self>>>;
    /// Executes SQL unchanged.
    fn execute<'q>(pool: &'q Pool<Self>, sql: String) -> Done<'q>;
    /// Executes SQL unchanged within a transaction.
    fn execute_in<'q>(local: &'q mut Transaction<'static, Self>, sql: String) -> Done<'q>;
    /// Reads the counts in all rows that were changed.
    fn counts(pool: &Pool<Self>) -> BoxFuture<'_, Result<Vec<i64>, sqlx::Error>>;
    /// Begins a local transaction that will write.
    fn begin_local(
        pool: &Pool<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>>;
    /// Runs the statement in a plain local transaction.
    fn update<'q>(
        local: &'q mut Transaction<'static, Self>,
        statement: Statement,
        item: i64,
    ) -> Done<'q>;
    /// Runs the statement in a branch.
    fn update_branch<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        statement: Statement,
        item: i64,
    ) -> Done<'q>;
    /// Runs [`Statement::Point`] without a transaction.
    fn update_plain(pool: &Pool<Self>, item: i64) -> Done<'_>;
    /// Runs [`Statement::Point`] as a branch of its own.
    fn update_alone(resource: &AtResource<Self>, item: i64) -> Done<'_>;
    /// Runs the statement under the database's own two-phase commit, if it has one. The name of the
    /// transaction is unique.
    fn update_prepared<'q>(
        pool: &'q Pool<Self>,
        statement: Statement,
        item: i64,
        name: u64,
    ) -> Option<Done<'q>>;
}

impl<DB: BenchDatabase> Fresh<DB> {
    fn new(pool: Pool<DB>, name: String, directory: Option<TempDir>) -> Self {
        Self { pool, name, _directory: directory }
    }

    /// Creates and fills the table, and one whose rows refer to it.
    pub(crate) async fn fill(&self) -> Result<()> {
        let table = "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, \
                     cnt BIGINT NOT NULL, price DECIMAL(10, 2) NOT NULL, note VARCHAR(100) NOT NULL)";
        DB::execute(&self.pool, table.to_owned()).await.context("making the table")?;
        for first in (0..ITEMS).step_by(usize::try_from(ITEMS_PER_INSERT)?) {
            let rows: Vec<String> = (first..first + ITEMS_PER_INSERT)
                .map(|id| {
                    format!("({id}, 'item number {id}', 0, 12.50, 'on the shelf by the door')")
                })
                .collect();
            let insert = format!("INSERT INTO item VALUES {}", rows.join(", "));
            DB::execute(&self.pool, insert).await.context("filling the table")?;
        }
        let key = DB::GENERATED_KEY;
        let lines = format!(
            "CREATE TABLE line ({key}, item BIGINT NOT NULL, FOREIGN KEY (item) REFERENCES item (id))"
        );
        DB::execute(&self.pool, lines).await.context("making the table of lines")?;
        Ok(())
    }

    /// Removes the database from its server.
    pub(crate) async fn remove(self, url: &str) -> Result<()> {
        self.pool.close().await;
        let Some(drop) = DB::DROP else { return Ok(()) };
        let pool = Pool::<DB>::connect(url).await.context("connecting to remove a database")?;
        DB::execute(&pool, drop(&self.name)).await.context("removing a database")?;
        pool.close().await;
        Ok(())
    }
}

fn fresh_name() -> String {
    format!("handfast_bench_{}_{:08x}", std::process::id(), rand::random::<u32>())
}

/// Methods whose text is the same for every product.
macro_rules! same_everywhere {
    ($begin:expr, $point:expr, $general:expr, $child:expr) => {
        fn execute<'q>(pool: &'q Pool<Self>, sql: String) -> Done<'q> {
            async move { sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.map(drop) }.boxed()
        }

        fn execute_in<'q>(local: &'q mut Transaction<'static, Self>, sql: String) -> Done<'q> {
            let query = sqlx::raw_sql(AssertSqlSafe(sql));
            async move { query.execute(&mut **local).await.map(drop) }.boxed()
        }

        fn counts(pool: &Pool<Self>) -> BoxFuture<'_, Result<Vec<i64>, sqlx::Error>> {
            sqlx::query_scalar("SELECT cnt FROM item WHERE cnt <> 0").fetch_all(pool).boxed()
        }

        fn begin_local(
            pool: &Pool<Self>,
        ) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
            pool.begin_with($begin).boxed()
        }

        fn update<'q>(
            local: &'q mut Transaction<'static, Self>,
            statement: Statement,
            item: i64,
        ) -> Done<'q> {
            async move {
                let query = match statement {
                    Statement::Point => sqlx::query($point).bind(item),
                    Statement::General => sqlx::query($general).bind(item).bind(item),
                    Statement::Child => sqlx::query($child).bind(item),
                };
                query.execute(&mut **local).await.map(drop)
            }
            .boxed()
        }

        fn update_plain(pool: &Pool<Self>, item: i64) -> Done<'_> {
            async move { sqlx::query($point).bind(item).execute(pool).await.map(drop) }.boxed()
        }

        fn update_alone(resource: &AtResource<Self>, item: i64) -> Done<'_> {
            async move { sqlx::query($point).bind(item).execute(resource).await.map(drop) }.boxed()
        }

        fn update_branch<'q>(
            local: &'q mut AtTransaction<'_, Self>,
            statement: Statement,
            item: i64,
        ) -> Done<'q> {
            async move {
                let query = match statement {
                    Statement::Point => sqlx::query($point).bind(item),
                    Statement::General => sqlx::query($general).bind(item).bind(item),
                    Statement::Child => sqlx::query($child).bind(item),
                };
                query.execute(local).await.map(drop)
            }
            .boxed()
        }
    };
}

/// Returns the statement as text, for protocols that take several statements at once.
fn text(statement: Statement, item: i64) -> String {
    let condition = match statement {
        Statement::Point => format!("id = {item}"),
        Statement::General => format!("id BETWEEN {item} AND {item}"),
        Statement::Child => return format!("INSERT INTO line (item) VALUES ({item})"),
    };
    format!("UPDATE item SET cnt = cnt + 1 WHERE {condition}")
}

impl BenchDatabase for MySql {
    const PRODUCT: &'static str = "MySQL";
    const DROP: Option<fn(&str) -> String> = Some(|name| format!("DROP DATABASE {name}"));
    const GENERATED_KEY: &'static str = "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY";
    const SEATA: Option<SeataDialect> =
        Some(SeataDialect { jdbc: "jdbc:mysql", undo_log: &[undo_log::MYSQL] });

    fn create<'q>(
        url: &'q str,
        _folder: &'q Path,
        connections: u32,
    ) -> BoxFuture<'q, Result<Fresh<Self>>> {
        async move {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse()?;
            let name = fresh_name();
            let mut server = options.clone().connect().await?;
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
            server.close().await?;
            let pool = sqlx::mysql::MySqlPoolOptions::new()
                .min_connections(connections)
                .max_connections(connections)
                // The pool's ping before each use would add a round trip to all that is compared.
                .test_before_acquire(false);
            Ok(Fresh::new(pool.connect_with(options.database(&name)).await?, name, None))
        }
        .boxed()
    }

    same_everywhere!(
        "BEGIN",
        "UPDATE item SET cnt = cnt + 1 WHERE id = ?",
        "UPDATE item SET cnt = cnt + 1 WHERE id BETWEEN ? AND ?",
        "INSERT INTO line (item) VALUES (?)"
    );

    fn update_prepared<'q>(
        pool: &'q Pool<Self>,
        statement: Statement,
        item: i64,
        name: u64,
    ) -> Option<Done<'q>> {
        let update = text(statement, item);
        let first = format!("XA START 'b{name}'; {update}; XA END 'b{name}'; XA PREPARE 'b{name}'");
        let second = format!("XA COMMIT 'b{name}'");
        let both = async move {
            let mut connection = pool.acquire().await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(first))).await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(second))).await.map(drop)
        };
        Some(both.boxed())
    }
}

impl BenchDatabase for Postgres {
    const PRODUCT: &'static str = "PostgreSQL";
    // A process of the server ends later than its connection, on a busy machine by seconds.
    const DROP: Option<fn(&str) -> String> =
        Some(|name| format!("DROP DATABASE {name} WITH (FORCE)"));
    const GENERATED_KEY: &'static str = "id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY";
    const SEATA: Option<SeataDialect> = Some(SeataDialect {
        jdbc: "jdbc:postgresql",
        undo_log: &[undo_log::POSTGRES, undo_log::POSTGRES_SEQUENCE],
    });

    fn create<'q>(
        url: &'q str,
        _folder: &'q Path,
        connections: u32,
    ) -> BoxFuture<'q, Result<Fresh<Self>>> {
        async move {
            let options: sqlx::postgres::PgConnectOptions = url.parse()?;
            let name = fresh_name();
            let mut server = options.clone().connect().await?;
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
            server.close().await?;
            let pool = sqlx::postgres::PgPoolOptions::new()
                .min_connections(connections)
                .max_connections(connections)
                .test_before_acquire(false);
            Ok(Fresh::new(pool.connect_with(options.database(&name)).await?, name, None))
        }
        .boxed()
    }

    same_everywhere!(
        "BEGIN",
        "UPDATE item SET cnt = cnt + 1 WHERE id = $1",
        "UPDATE item SET cnt = cnt + 1 WHERE id BETWEEN $1 AND $2",
        "INSERT INTO line (item) VALUES ($1)"
    );

    fn update_prepared<'q>(
        pool: &'q Pool<Self>,
        statement: Statement,
        item: i64,
        name: u64,
    ) -> Option<Done<'q>> {
        let update = text(statement, item);
        let first = format!("BEGIN; {update}; PREPARE TRANSACTION 'b{name}'");
        let second = format!("COMMIT PREPARED 'b{name}'");
        let both = async move {
            let mut connection = pool.acquire().await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(first))).await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(second))).await.map(drop)
        };
        Some(both.boxed())
    }
}

impl BenchDatabase for Sqlite {
    const PRODUCT: &'static str = "SQLite";
    const DROP: Option<fn(&str) -> String> = None;
    const GENERATED_KEY: &'static str = "id INTEGER PRIMARY KEY";
    const SEATA: Option<SeataDialect> = None;

    fn create<'q>(
        _url: &'q str,
        folder: &'q Path,
        connections: u32,
    ) -> BoxFuture<'q, Result<Fresh<Self>>> {
        async move {
            let directory = tempfile::tempdir_in(folder)?;
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(directory.path().join("bench.db"))
                .create_if_missing(true)
                .busy_timeout(Duration::from_secs(60))
                .synchronous(sqlx::sqlite::SqliteSynchronous::Full)
                .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
            let pool = sqlx::sqlite::SqlitePoolOptions::new()
                .min_connections(connections)
                .max_connections(connections)
                .test_before_acquire(false);
            Ok(Fresh::new(pool.connect_with(options).await?, String::new(), Some(directory)))
        }
        .boxed()
    }

    same_everywhere!(
        "BEGIN IMMEDIATE",
        "UPDATE item SET cnt = cnt + 1 WHERE id = ?",
        "UPDATE item SET cnt = cnt + 1 WHERE id BETWEEN ? AND ?",
        "INSERT INTO line (item) VALUES (?)"
    );

    fn update_prepared<'q>(
        _pool: &'q Pool<Self>,
        _statement: Statement,
        _item: i64,
        _name: u64,
    ) -> Option<Done<'q>> {
        None
    }
}
