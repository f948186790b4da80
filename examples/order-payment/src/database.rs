//! The three databases of a run, on any of the three products.
//!
//! A statement's text differs between them only in how it writes its parameters, and sqlx's types
//! differ by product, so that code which runs statements is compiled once per product: see
//! [`with_pool`] and [`with_resource`].

use std::path::Path;
use std::process;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use sqlx::{MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool};

use handfast::{AtResource, Handfast};

/// How long SQLite waits for another writer: long enough for every order that may stand in line.
const SQLITE_BUSY: Duration = Duration::from_secs(60);

/// A statement in both ways of writing parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// `$1`, for PostgreSQL and SQLite.
    pub(crate) numbered: &'static str,
    /// `?`, for MySQL and MariaDB.
    pub(crate) plain: &'static str,
}

/// A connection pool of one database.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Postgres(PgPool),
    MySql(MySqlPool),
    Sqlite(SqlitePool),
}

/// A database that takes part in global transactions.
#[derive(Debug, Clone)]
pub(crate) enum Resource {
    Postgres(AtResource<Postgres>),
    MySql(AtResource<MySql>),
    Sqlite(AtResource<Sqlite>),
}

/// Evaluates an expression for the pool of whichever product it is; `$text` gives a statement's
/// text.
macro_rules! with_pool {
    ($pool:expr, |$inner:ident, $text:ident| $body:expr) => {
        $crate::database::with_pool!(@any Pool, $pool, |$inner, $text| $body)
    };
    (@any $kind:ident, $pool:expr, |$inner:ident, $text:ident| $body:expr) => {
        match $pool {
            $crate::database::$kind::Postgres($inner) => {
                let $text = |sql: $crate::database::Sql| sql.numbered;
                $body
            }
            $crate::database::$kind::MySql($inner) => {
                let $text = |sql: $crate::database::Sql| sql.plain;
                $body
            }
            $crate::database::$kind::Sqlite($inner) => {
                let $text = |sql: $crate::database::Sql| sql.numbered;
                $body
            }
        }
    };
}
pub(crate) use with_pool;

/// [`with_pool`] for a [`Resource`].
macro_rules! with_resource {
    ($resource:expr, |$inner:ident, $text:ident| $body:expr) => {
        $crate::database::with_pool!(@any Resource, $resource, |$inner, $text| $body)
    };
}
pub(crate) use with_resource;

/// The databases of the three services.
#[derive(Debug)]
pub(crate) struct Databases {
    pub(crate) order: Pool,
    pub(crate) stock: Pool,
    pub(crate) account: Pool,
    server: Server,
    names: Vec<String>,
}

/// Where databases are made.
#[derive(Debug, Clone)]
enum Server {
    Postgres(PgConnectOptions),
    MySql(MySqlConnectOptions),
    /// Files in a temporary directory, which goes with the run.
    Sqlite,
}

impl Databases {
    /// Makes three databases where `place` says. SQLite's files go into `folder`.
    pub(crate) async fn create(place: &str, folder: &Path, concurrency: u16) -> Result<Self> {
        let server = Server::parse(place)?;
        // A run that meets another one on the same server must not meet its databases.
        let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let names = ["order", "stock", "account"]
            .map(|service| format!("handfast_{service}_{}_{run}", process::id()));
        let mut pools = Vec::new();
        for name in &names {
            pools.push(server.create(name, folder, concurrency).await.context(name.clone())?);
        }
        let Ok([order, stock, account]) = <[Pool; 3]>::try_from(pools) else {
            bail!("three names make three pools");
        };
        Ok(Self { order, stock, account, server, names: names.to_vec() })
    }

    /// Closes the pools and drops what was created on a server.
    pub(crate) async fn remove(self) -> Result<()> {
        for pool in [&self.order, &self.stock, &self.account] {
            with_pool!(pool, |pool, _text| pool.close().await);
        }
        for name in &self.names {
            self.server.run(&format!("DROP DATABASE {name}")).await.context(name.clone())?;
        }
        Ok(())
    }
}

impl Server {
    fn parse(place: &str) -> Result<Self> {
        match place.split_once("://").map_or(place, |(scheme, _)| scheme) {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" | "postgresql" => Ok(Self::Postgres(PgConnectOptions::from_str(place)?)),
            "mysql" | "mariadb" => Ok(Self::MySql(MySqlConnectOptions::from_str(place)?)),
            other => bail!("--database {other}: sqlite, postgres://… or mysql://…"),
        }
    }

    async fn create(&self, name: &str, folder: &Path, concurrency: u16) -> Result<Pool> {
        // Phase two works beside the orders that are under way.
        let connections = u32::from(concurrency.min(64)) + 4;
        Ok(match self {
            Self::Postgres(options) => {
                self.run(&format!("CREATE DATABASE {name}")).await?;
                let pool = PgPoolOptions::new().max_connections(connections);
                Pool::Postgres(pool.connect_with(options.clone().database(name)).await?)
            }
            Self::MySql(options) => {
                self.run(&format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await?;
                let pool = MySqlPoolOptions::new().max_connections(connections);
                Pool::MySql(pool.connect_with(options.clone().database(name)).await?)
            }
            Self::Sqlite => {
                let pool = SqlitePoolOptions::new().max_connections(connections);
                Pool::Sqlite(pool.connect_with(sqlite_options(&folder.join(name))).await?)
            }
        })
    }

    /// Runs a statement about databases; their names are ours and safe.
    async fn run(&self, sql: &str) -> Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(options) => {
                let mut connection = PgConnection::connect_with(options).await?;
                sqlx::raw_sql(sql).execute(&mut connection).await?;
                connection.close().await?;
            }
            Self::MySql(options) => {
                let mut connection = MySqlConnection::connect_with(options).await?;
                sqlx::raw_sql(sql).execute(&mut connection).await?;
                connection.close().await?;
            }
            Self::Sqlite => {}
        }
        Ok(())
    }
}

/// As durable as the server databases: each commit is synced.
fn sqlite_options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(SQLITE_BUSY)
}

impl Pool {
    /// Makes the service's tables, beside the client tables of the library.
    pub(crate) async fn make_tables(
        &self,
        handfast: &Handfast,
        tables: &[&'static str],
    ) -> Result<()> {
        with_pool!(self, |pool, _text| {
            handfast.migrate(pool).await?;
            for table in tables {
                sqlx::raw_sql(*table).execute(pool).await?;
            }
        });
        Ok(())
    }

    /// Lets the library take the database into global transactions.
    pub(crate) async fn join(&self, handfast: &Handfast) -> Result<Resource> {
        Ok(match self {
            Self::Postgres(pool) => Resource::Postgres(handfast.at(pool.clone()).await?),
            Self::MySql(pool) => Resource::MySql(handfast.at(pool.clone()).await?),
            Self::Sqlite(pool) => Resource::Sqlite(handfast.at(pool.clone()).await?),
        })
    }

    /// The rows of a query that gives a name and a number.
    pub(crate) async fn numbers_by_name(&self, sql: &'static str) -> Result<Vec<(String, i64)>> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_as(sql).fetch_all(pool).await)?)
    }

    /// The rows of a query that gives an id and a number.
    pub(crate) async fn numbers_by_id(&self, sql: &'static str) -> Result<Vec<(i64, i64)>> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_as(sql).fetch_all(pool).await)?)
    }

    /// How many rows the undo log has, guard rows among them.
    pub(crate) async fn undo_rows(&self) -> Result<i64> {
        const COUNT: &str = "SELECT COUNT(*) FROM undo_log";
        Ok(with_pool!(self, |pool, _text| sqlx::query_scalar(COUNT).fetch_one(pool).await)?)
    }
}
