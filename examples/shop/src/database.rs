//! The three databases of a run, on any of the three products.
//!
//! A statement's text differs between them only in how it writes its parameters, and sqlx's types
//! differ by product, so that code which runs statements is compiled once per product: see
//! [`with_pool`](crate::with_pool) and `with_resource`.

use std::path::Path;
use std::process;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, PgConnection};
use sqlx::{MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool};

use handfast::{AtResource, Handfast, XaResource};

/// The time that SQLite waits for another writer: long enough for every order that may be queued.
const SQLITE_BUSY: Duration = Duration::from_secs(60);

/// A statement in both ways of writing parameters.
#[derive(Debug, Clone, Copy)]
pub struct Sql {
    /// `$1`, for PostgreSQL and SQLite.
    pub numbered: &'static str,
    /// `?`, for MySQL and MariaDB.
    pub plain: &'static str,
}

/// A connection pool of one database.
#[derive(Debug, Clone)]
pub enum Pool {
    /// PostgreSQL.
    Postgres(PgPool),
    /// MySQL or MariaDB.
    MySql(MySqlPool),
    /// SQLite.
    Sqlite(SqlitePool),
}

/// A product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// The way in which a database takes part in global transactions by ordinary SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SqlMode {
    /// By images and an undo log.
    At,
    /// By the database's own two-phase commit. Not on SQLite.
    Xa,
}

/// A database that takes part in global transactions by ordinary SQL.
#[derive(Debug, Clone)]
pub(crate) enum Resource {
    AtPostgres(AtResource<Postgres>),
    AtMySql(AtResource<MySql>),
    AtSqlite(AtResource<Sqlite>),
    XaPostgres(XaResource<Postgres>),
    XaMySql(XaResource<MySql>),
}

/// Evaluates an expression for the pool of whichever product it is; `$text` gives a statement's
/// text.
#[macro_export]
macro_rules! with_pool {
    ($pool:expr, |$inner:ident, $text:ident| $body:expr) => {
        $crate::each_product!(Pool, $pool, |$inner, $text| $body, {
            Postgres: numbered,
            MySql: plain,
            Sqlite: numbered,
        })
    };
}

/// [`with_pool`](crate::with_pool) for a [`Resource`].
macro_rules! with_resource {
    ($resource:expr, |$inner:ident, $text:ident| $body:expr) => {
        $crate::each_product!(Resource, $resource, |$inner, $text| $body, {
            AtPostgres: numbered,
            AtMySql: plain,
            AtSqlite: numbered,
            XaPostgres: numbered,
            XaMySql: plain,
        })
    };
}
pub(crate) use with_resource;

/// Expands to the body for each variant, with the statement's text in the form of its product.
#[doc(hidden)]
#[macro_export]
macro_rules! each_product {
    ($kind:ident, $value:expr, |$inner:ident, $text:ident| $body:expr,
     { $($variant:ident: $way:ident,)+ }) => {
        match $value {
            $($crate::database::$kind::$variant($inner) => {
                let $text = |sql: $crate::database::Sql| sql.$way;
                $body
            })+
        }
    };
}

/// The databases of the three services.
#[derive(Debug)]
pub struct Databases {
    /// The database of the order service.
    pub order: Pool,
    /// The database of the stock service.
    pub stock: Pool,
    /// The database of the account service.
    pub account: Pool,
    /// The locations of the three, in this order, for [`Pool::open`].
    pub places: [String; 3],
    run: String,
    server: Server,
    names: Vec<String>,
}

/// The server or folder in which databases are made.
#[derive(Debug, Clone)]
pub enum Server {
    /// A PostgreSQL server.
    Postgres(PgConnectOptions),
    /// A MySQL or MariaDB server.
    MySql(MySqlConnectOptions),
    /// Files in a temporary directory, which goes with the run.
    Sqlite,
}

impl Databases {
    /// Makes three databases on the server. SQLite's files go into `folder`.
    pub(crate) async fn create(server: Server, folder: &Path, concurrency: u16) -> Result<Self> {
        let run = run_name()?;
        let names =
            ["order", "stock", "account"].map(|service| format!("handfast_{service}_{run}"));
        let places = names.each_ref().map(|name| server.place(name, folder));
        let mut pools = Vec::new();
        for name in &names {
            pools.push(server.create(name, folder, concurrency).await.context(name.clone())?);
        }
        let Ok([order, stock, account]) = <[Pool; 3]>::try_from(pools) else {
            bail!("three names make three pools");
        };
        Ok(Self { order, stock, account, places, run, server, names: names.to_vec() })
    }

    /// Returns the name of the run. It is part of all names, so that runs on the same database
    /// server or coordinator do not meet.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Closes the pools and drops what was created on a server.
    pub(crate) async fn remove(self) -> Result<()> {
        for pool in [&self.order, &self.stock, &self.account] {
            pool.close().await;
        }
        for name in &self.names {
            self.server.remove(name).await.context(name.clone())?;
        }
        Ok(())
    }
}

impl Server {
    /// Reads what `--database` says.
    ///
    /// # Errors
    /// An alternative to the text.
    pub fn parse(place: &str) -> Result<Self> {
        match place.split_once("://").map_or(place, |(scheme, _)| scheme) {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" | "postgresql" => Ok(Self::Postgres(PgConnectOptions::from_str(place)?)),
            "mysql" | "mariadb" => Ok(Self::MySql(MySqlConnectOptions::from_str(place)?)),
            other => bail!("--database {other}: sqlite, postgres://… or mysql://…"),
        }
    }

    pub(crate) fn kind(&self) -> DatabaseKind {
        match self {
            Self::Postgres(_) => DatabaseKind::Postgres,
            Self::MySql(_) => DatabaseKind::MySql,
            Self::Sqlite => DatabaseKind::Sqlite,
        }
    }

    /// Returns the location of a database: a URL, for SQLite of its file.
    pub(crate) fn place(&self, name: &str, folder: &Path) -> String {
        match self {
            Self::Postgres(options) => options.clone().database(name).to_url_lossy().to_string(),
            Self::MySql(options) => options.clone().database(name).to_url_lossy().to_string(),
            Self::Sqlite => folder.join(name).display().to_string(),
        }
    }

    /// Makes a database for this number of concurrent users. SQLite's file goes into `folder`.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn create(&self, name: &str, folder: &Path, concurrency: u16) -> Result<Pool> {
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

    /// Removes a database that was made here and has no connection left.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn remove(&self, name: &str) -> Result<()> {
        // A process of PostgreSQL ends later than its connection, on a busy machine by seconds.
        let force = if matches!(self, Self::Postgres(_)) { " WITH (FORCE)" } else { "" };
        self.run(&format!("DROP DATABASE {name}{force}")).await
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

/// Names a run as no other, for databases and locks.
///
/// # Errors
/// If the clock stands before 1970.
pub fn run_name() -> Result<String> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(format!("{}_{}", process::id(), since_1970.as_micros()))
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
    /// Closes its connections.
    pub(crate) async fn close(&self) {
        with_pool!(self, |pool, _text| pool.close().await);
    }

    /// Opens a database of a run from another process of it.
    ///
    /// # Errors
    /// If it is not there.
    pub async fn open(place: &str, connections: u32) -> Result<Self> {
        Ok(match place.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let pool = PgPoolOptions::new().max_connections(connections);
                Self::Postgres(pool.connect(place).await?)
            }
            Some("mysql" | "mariadb") => {
                let pool = MySqlPoolOptions::new().max_connections(connections);
                Self::MySql(pool.connect(place).await?)
            }
            _ => {
                let pool = SqlitePoolOptions::new().max_connections(connections);
                Self::Sqlite(pool.connect_with(sqlite_options(Path::new(place))).await?)
            }
        })
    }

    /// Makes the service's tables, beside the client tables of the library.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn make_tables(&self, handfast: &Handfast, tables: &[&'static str]) -> Result<()> {
        with_pool!(self, |pool, _text| {
            handfast.migrate(pool).await?;
            for table in tables {
                sqlx::raw_sql(*table).execute(pool).await?;
            }
        });
        Ok(())
    }

    /// Makes the database take part in global transactions. `node` names the service and the run,
    /// for the names of prepared transactions.
    pub(crate) async fn join(
        &self,
        handfast: &Handfast,
        mode: SqlMode,
        node: &str,
    ) -> Result<Resource> {
        Ok(match (mode, self) {
            (SqlMode::At, Self::Postgres(pool)) => {
                Resource::AtPostgres(handfast.at(pool.clone()).await?)
            }
            (SqlMode::At, Self::MySql(pool)) => Resource::AtMySql(handfast.at(pool.clone()).await?),
            (SqlMode::At, Self::Sqlite(pool)) => {
                Resource::AtSqlite(handfast.at(pool.clone()).await?)
            }
            (SqlMode::Xa, Self::Postgres(pool)) => {
                Resource::XaPostgres(handfast.xa(pool.clone()).node(node).await?)
            }
            (SqlMode::Xa, Self::MySql(pool)) => {
                Resource::XaMySql(handfast.xa(pool.clone()).node(node).await?)
            }
            (SqlMode::Xa, Self::Sqlite(_)) => bail!("SQLite has no two-phase commit"),
        })
    }

    /// Returns the rows of a query that yields a name and a number.
    pub(crate) async fn numbers_by_name(&self, sql: &'static str) -> Result<Vec<(String, i64)>> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_as(sql).fetch_all(pool).await)?)
    }

    /// Returns the rows of a query that yields an id and a number.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn numbers_by_id(&self, sql: &'static str) -> Result<Vec<(i64, i64)>> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_as(sql).fetch_all(pool).await)?)
    }

    /// Returns the rows of a query that yields a name and a text.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn texts_by_name(&self, sql: &'static str) -> Result<Vec<(String, String)>> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_as(sql).fetch_all(pool).await)?)
    }

    /// Returns the number of rows in the undo log, guard rows included.
    pub(crate) async fn undo_rows(&self) -> Result<i64> {
        self.count("SELECT COUNT(*) FROM undo_log").await
    }

    /// Returns the number that a query yields.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn count(&self, sql: &'static str) -> Result<i64> {
        Ok(with_pool!(self, |pool, _text| sqlx::query_scalar(sql).fetch_one(pool).await)?)
    }
}
