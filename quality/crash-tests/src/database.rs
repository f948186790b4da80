//! The databases: they are created, joined to globals, used and inspected here.
//!
//! sqlx's types differ by product, so that code which runs statements is compiled once per product:
//! see `with_pool`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast::{AtResource, Handfast};
use serde::{Deserialize, Serialize};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Postgres, Row as _, Sqlite, SqlitePool};

use crate::history::{Element, List};
use crate::work::{ACCOUNTS, CENTS, LISTS, Product, Row, Step, elements};

/// How long the code that creates and judges the databases waits for a connection, and for SQLite's
/// writer lock. Only a busy machine delays it.
pub const JUDGE_PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)",
    "CREATE TABLE receipt (id BIGINT NOT NULL PRIMARY KEY, account BIGINT NOT NULL, \
     cents BIGINT NOT NULL)",
    "CREATE TABLE list (id BIGINT NOT NULL PRIMARY KEY, items TEXT NOT NULL)",
];

/// The location of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseLocation {
    /// The product.
    pub product: Product,
    /// Its URL; for SQLite a path.
    pub url: String,
}

/// A connection pool of one database.
#[derive(Clone, Debug)]
pub enum Pool {
    /// PostgreSQL.
    Postgres(PgPool),
    /// MariaDB.
    MySql(MySqlPool),
    /// SQLite.
    Sqlite(SqlitePool),
}

/// A database that takes part in globals.
#[derive(Clone, Debug)]
pub enum Resource {
    /// PostgreSQL.
    Postgres(AtResource<Postgres>),
    /// MariaDB.
    MySql(AtResource<MySql>),
    /// SQLite.
    Sqlite(AtResource<Sqlite>),
}

/// The form in which a local transaction is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a closure that is repeated.
    Closure,
    /// From `begin` to `commit`.
    Explicit,
}

macro_rules! with_pool {
    ($pool:expr, |$inner:ident| $body:expr) => {
        match $pool {
            Pool::Postgres($inner) => $body,
            Pool::MySql($inner) => $body,
            Pool::Sqlite($inner) => $body,
        }
    };
}

macro_rules! run_steps {
    ($local:expr, $steps:expr) => {{
        let mut read: Vec<Row> = Vec::new();
        for step in $steps {
            match step {
                Step::Write(sql) => {
                    let query = sqlx::query(AssertSqlSafe(sql.clone()));
                    query.execute(&mut *$local).await?;
                }
                Step::Read(sql) => {
                    let query = sqlx::query(AssertSqlSafe(sql.clone()));
                    let rows = query.fetch_all(&mut *$local).await?;
                    for row in &rows {
                        read.push(row_of!(row)?);
                    }
                }
            }
        }
        Ok::<_, sqlx::Error>(read)
    }};
}

macro_rules! row_of {
    ($row:expr) => {{
        let row = $row;
        let text = row.try_get::<String, _>(1);
        let value = text.or_else(|_| row.try_get::<i64, _>(1).map(|number| number.to_string()));
        row.try_get::<i64, _>(0).and_then(|id| Ok((id, value?)))
    }};
}

macro_rules! run_branch {
    ($resource:expr, $form:expr, $steps:expr) => {{
        let (resource, steps) = ($resource, $steps);
        match $form {
            Form::Closure => {
                let work = resource.transaction(async |mut local| run_steps!(local, steps));
                work.await
            }
            Form::Explicit => {
                let mut local = resource.begin().await?;
                let read = run_steps!(&mut local, steps)?;
                local.commit().await?;
                Ok(read)
            }
        }
    }};
}

impl Resource {
    /// Returns the resource for the last branch of a global.
    #[must_use]
    pub fn last(&self) -> Self {
        match self {
            Self::Postgres(resource) => Self::Postgres(resource.last()),
            Self::MySql(resource) => Self::MySql(resource.last()),
            Self::Sqlite(resource) => Self::Sqlite(resource.last()),
        }
    }

    /// Runs one local transaction as a branch of the ambient global and gives back what it read.
    ///
    /// # Errors
    /// The error that kept it from committing.
    pub async fn run(&self, form: Form, steps: &[Step]) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Postgres(resource) => run_branch!(resource, form, steps),
            Self::MySql(resource) => run_branch!(resource, form, steps),
            Self::Sqlite(resource) => run_branch!(resource, form, steps),
        }
    }
}

impl Pool {
    /// Returns a pool that connects when it is first used, so that an absent server fails the first
    /// call. `patience` is the wait for a connection, and for SQLite's writer lock.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(place: &DatabaseLocation, connections: u32, patience: Duration) -> Result<Self> {
        Ok(match place.product {
            Product::Postgres => {
                let options = PgConnectOptions::from_str(&place.url)?;
                let pool = PgPoolOptions::new().max_connections(connections);
                Self::Postgres(pool.acquire_timeout(patience).connect_lazy_with(options))
            }
            Product::MariaDb => {
                let options = MySqlConnectOptions::from_str(&place.url)?;
                let pool = MySqlPoolOptions::new().max_connections(connections);
                Self::MySql(pool.acquire_timeout(patience).connect_lazy_with(options))
            }
            Product::Sqlite => {
                let options = SqliteConnectOptions::new()
                    .filename(&place.url)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // As durable as the others: each commit is synced.
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(patience);
                let pool = SqlitePoolOptions::new().max_connections(connections);
                Self::Sqlite(pool.acquire_timeout(patience).connect_lazy_with(options))
            }
        })
    }

    /// Makes the database take part in globals. Its branches wait for global locks for `lock`.
    ///
    /// # Errors
    /// When the database or the coordinator is away.
    pub async fn join(&self, handfast: &Handfast, lock: Duration) -> Result<Resource> {
        Ok(match self {
            Self::Postgres(pool) => {
                Resource::Postgres(handfast.at(pool.clone()).lock_timeout(lock).await?)
            }
            Self::MySql(pool) => {
                Resource::MySql(handfast.at(pool.clone()).lock_timeout(lock).await?)
            }
            Self::Sqlite(pool) => {
                Resource::Sqlite(handfast.at(pool.clone()).lock_timeout(lock).await?)
            }
        })
    }

    /// Creates the tables with their initial rows.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn make_tables(&self, handfast: &Handfast) -> Result<()> {
        with_pool!(self, |pool| handfast.migrate(pool).await?);
        for sql in TABLES {
            self.execute(sql).await?;
        }
        let accounts: Vec<String> = (1..=ACCOUNTS).map(|id| format!("({id}, {CENTS})")).collect();
        let lists: Vec<String> = (1..=LISTS).map(|id| format!("({id}, '')")).collect();
        self.execute(&format!("INSERT INTO account VALUES {}", accounts.join(", "))).await?;
        self.execute(&format!("INSERT INTO list VALUES {}", lists.join(", "))).await
    }

    /// Runs a statement past the library.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        with_pool!(self, |pool| sqlx::raw_sql(sql).execute(pool).await.map(|_answer| ()))?;
        Ok(())
    }

    /// Returns the amount in each account.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn accounts(&self) -> Result<BTreeMap<i64, i64>> {
        let sql = "SELECT id, cents FROM account";
        let rows: Vec<(i64, i64)> =
            with_pool!(self, |pool| sqlx::query_as(sql).fetch_all(pool).await?);
        Ok(rows.into_iter().collect())
    }

    /// Returns every receipt: the transfer, the account and the amount.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn receipts(&self) -> Result<Vec<(i64, i64, i64)>> {
        let sql = "SELECT id, account, cents FROM receipt";
        Ok(with_pool!(self, |pool| sqlx::query_as(sql).fetch_all(pool).await?))
    }

    /// Returns every list that has elements.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn lists(&self, database: usize) -> Result<BTreeMap<List, Vec<Element>>> {
        let sql = "SELECT id, items FROM list WHERE items <> ''";
        let rows: Vec<(i64, String)> =
            with_pool!(self, |pool| sqlx::query_as(sql).fetch_all(pool).await?);
        Ok(rows.iter().map(|(id, items)| ((database, *id), elements(items))).collect())
    }

    /// Returns the XIDs of all undo rows of a kind: 0 for undo logs, 1 for guard rows.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn undo_rows(&self, status: u8) -> Result<Vec<String>> {
        let sql = format!("SELECT xid FROM undo_log WHERE log_status = {status}");
        let sql = AssertSqlSafe(sql);
        let rows = with_pool!(self, |pool| sqlx::query_scalar(sql).fetch_all(pool).await);
        rows.context("reading undo_log")
    }
}
