//! The databases and servers of the recipes: a SQLite file for each, a Redis, and a ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_locks::{Backend, Guarantee, Locks, RedisLocks, SqliteLocks, ZooKeeperLocks};
use handfast_migrations::{Database, client_migrations};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use redis::aio::MultiplexedConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Executor, SqlitePool};
use tempfile::TempDir;

use crate::cli::Options;
use crate::recipes::Recipe;
use crate::recipes::tree::Tree;
use crate::recipes::watched::Watched;

/// The lease of locks that are not meant to end by themselves.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The lock tables of the recipes, and things to protect.
const TABLES: &[&str] = &[
    "CREATE TABLE naive_lock (name TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, \
        holds INTEGER NOT NULL, fence INTEGER NOT NULL, expires_at REAL NOT NULL)",
    "CREATE TABLE stock (id INTEGER NOT NULL PRIMARY KEY, units INTEGER NOT NULL)",
    "INSERT INTO stock VALUES (1, 1)",
];

/// The common ground of the recipes.
#[derive(Debug)]
pub(crate) struct Ground {
    redis: Option<Shared>,
    zookeeper: Option<Shared>,
}

/// A server that runs already, or a private one.
#[derive(Debug)]
struct Shared {
    url: String,
    // The server lives as long as the recipes.
    _own: Option<DatabaseServer>,
}

/// A SQLite database of one recipe.
#[derive(Debug)]
pub(crate) struct Sqlite {
    options: SqliteConnectOptions,
    pub(crate) pool: SqlitePool,
    _folder: TempDir,
}

impl Ground {
    /// Starts the servers that these recipes need.
    pub(crate) fn new(options: &Options, recipes: &[Recipe]) -> Result<Self> {
        let (redis, zookeeper) = (options.redis.as_deref(), options.zookeeper.as_deref());
        let wants_redis = recipes.iter().any(|recipe| recipe.needs_redis());
        let wants_zookeeper = recipes.iter().any(|recipe| recipe.needs_zookeeper());
        Ok(Self {
            redis: wants_redis
                .then(|| Shared::new(redis, ServerKind::Redis))
                .transpose()
                .context("starting a Redis; --redis names one that runs")?,
            zookeeper: wants_zookeeper
                .then(|| Shared::new(zookeeper, ServerKind::ZooKeeper))
                .transpose()
                .context("starting a ZooKeeper; --zookeeper names one that runs")?,
        })
    }

    fn redis_url(&self) -> Result<&str> {
        let redis = self.redis.as_ref().context("a recipe for Redis needs one")?;
        Ok(&redis.url)
    }

    fn zookeeper_url(&self) -> Result<&str> {
        let zookeeper = self.zookeeper.as_ref().context("a recipe for ZooKeeper needs one")?;
        Ok(&zookeeper.url)
    }

    /// A folder in ZooKeeper.
    pub(crate) async fn tree(&self) -> Result<Tree> {
        Tree::new(self.zookeeper_url()?).await
    }

    /// Starts a client of this project over ZooKeeper, with a record of its messages.
    pub(crate) async fn zookeeper_locks(&self) -> Result<(Locks, Arc<Watched>)> {
        let backend = ZooKeeperLocks::connect(self.zookeeper_url()?, LEASE).await?;
        watched(Arc::new(backend), LEASE)
    }

    pub(crate) async fn redis(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(self.redis_url()?)?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    /// Connects this project's backend to Redis.
    pub(crate) async fn redis_locks(&self) -> Result<RedisLocks> {
        Ok(RedisLocks::connect(self.redis_url()?).await?)
    }
}

impl Sqlite {
    /// Makes an empty one. A statement that finds it busy fails at once.
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

    /// Opens another pool, whose statements fail at once while another connection writes.
    pub(crate) async fn impatient(&self) -> Result<SqlitePool> {
        let options = self.options.clone().busy_timeout(Duration::ZERO);
        Ok(SqlitePoolOptions::new().max_connections(2).connect_with(options).await?)
    }

    /// Starts a client of this project over it, with a record of its messages.
    pub(crate) async fn locks(&self, lease: Duration) -> Result<(Locks, Arc<Watched>)> {
        self.locks_with(self.options.clone(), lease).await
    }

    /// The same, with the pool of [`impatient`](Self::impatient).
    pub(crate) async fn impatient_locks(&self, lease: Duration) -> Result<(Locks, Arc<Watched>)> {
        self.locks_with(self.options.clone().busy_timeout(Duration::ZERO), lease).await
    }

    async fn locks_with(
        &self,
        options: SqliteConnectOptions,
        lease: Duration,
    ) -> Result<(Locks, Arc<Watched>)> {
        let backend = Arc::new(SqliteLocks::connect_with(options).await?);
        watched(backend, lease)
    }
}

impl Shared {
    fn new(url: Option<&str>, kind: ServerKind) -> Result<Self> {
        if let Some(url) = url {
            return Ok(Self { url: url.to_owned(), _own: None });
        }
        let own = DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()))?;
        Ok(Self { url: own.url(), _own: Some(own) })
    }
}

/// Starts a client over a backend, with a record of its messages.
fn watched(backend: Arc<dyn Backend>, lease: Duration) -> Result<(Locks, Arc<Watched>)> {
    let watched = Arc::new(Watched::over(backend));
    let backend: Arc<dyn Backend> = Arc::clone(&watched) as _;
    let locks = Locks::over(backend).guarantee(Guarantee::Correctness).lease(lease).start()?;
    Ok((locks, watched))
}
