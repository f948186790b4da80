//! Where recipes are played: a SQLite file for each, and a Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_locks::{Grade, Locks, RedisLocks, SqliteLocks};
use handfast_migrations::{Database, client_migrations};
use handfast_test_services::{DatabaseServer, Kind, Place};
use redis::aio::MultiplexedConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Executor, SqlitePool};
use tempfile::TempDir;

use crate::recipes::watched::Watched;

/// Of locks that are not meant to end by themselves.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The lock tables of the recipes, and things to protect.
const TABLES: &[&str] = &[
    "CREATE TABLE naive_lock (name TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, \
        holds INTEGER NOT NULL, fence INTEGER NOT NULL, expires_at REAL NOT NULL)",
    "CREATE TABLE stock (id INTEGER NOT NULL PRIMARY KEY, units INTEGER NOT NULL)",
    "INSERT INTO stock VALUES (1, 1)",
];

/// What the recipes share.
#[derive(Debug)]
pub(crate) struct Ground {
    redis: Option<String>,
    // Lives as long as the recipes.
    _server: Option<DatabaseServer>,
}

/// A SQLite database of one recipe's own.
#[derive(Debug)]
pub(crate) struct Sqlite {
    options: SqliteConnectOptions,
    pub(crate) pool: SqlitePool,
    _folder: TempDir,
}

impl Ground {
    pub(crate) fn new(redis: Option<&str>, needs_redis: bool) -> Result<Self> {
        if redis.is_some() || !needs_redis {
            return Ok(Self { redis: redis.map(str::to_owned), _server: None });
        }
        let started = DatabaseServer::start(Kind::Redis, &Place::new()?, &|| Ok(()));
        let server = started.context("starting a Redis; --redis names one that runs")?;
        Ok(Self { redis: Some(server.url()), _server: Some(server) })
    }

    fn redis_url(&self) -> Result<&str> {
        self.redis.as_deref().context("a recipe for Redis needs one")
    }

    pub(crate) async fn redis(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(self.redis_url()?)?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    /// Ours over Redis.
    pub(crate) async fn redis_locks(&self) -> Result<RedisLocks> {
        Ok(RedisLocks::connect(self.redis_url()?).await?)
    }
}

impl Sqlite {
    /// An empty one. Whoever finds it busy is told so at once.
    pub(crate) async fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("handfast-seed-defects-")?;
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("locks.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options.clone());
        let pool = pool.await?;
        let steps = client_migrations(Database::Sqlite).iter();
        for statement in steps.flat_map(|step| step.statements()) {
            pool.execute(statement).await?;
        }
        for statement in TABLES {
            pool.execute(*statement).await?;
        }
        Ok(Self { options, pool, _folder: folder })
    }

    /// Another pool on it, whose statements fail at once while somebody else writes.
    pub(crate) async fn impatient(&self) -> Result<SqlitePool> {
        let options = self.options.clone().busy_timeout(Duration::ZERO);
        Ok(SqlitePoolOptions::new().max_connections(2).connect_with(options).await?)
    }

    /// Ours over it, and what passes between.
    pub(crate) async fn locks(&self, lease: Duration) -> Result<(Locks, Arc<Watched>)> {
        self.locks_with(self.options.clone(), lease).await
    }

    /// The same with the impatience of [`impatient`](Self::impatient).
    pub(crate) async fn impatient_locks(&self, lease: Duration) -> Result<(Locks, Arc<Watched>)> {
        self.locks_with(self.options.clone().busy_timeout(Duration::ZERO), lease).await
    }

    async fn locks_with(
        &self,
        options: SqliteConnectOptions,
        lease: Duration,
    ) -> Result<(Locks, Arc<Watched>)> {
        let backend = Arc::new(SqliteLocks::connect_with(options).await?);
        let watched = Arc::new(Watched::over(backend));
        let backend: Arc<dyn handfast_locks::Backend> = Arc::clone(&watched) as _;
        let locks = Locks::over(backend).grade(Grade::Correctness).lease(lease).start()?;
        Ok((locks, watched))
    }
}
