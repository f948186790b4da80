//! Servers and databases for the locks of one run.

use std::time::Duration;

use anyhow::{Context, Result};
use handfast::Handfast;
use handfast_locks::{
    EtcdLocks, Guarantee, Locks, LocksBuilder, MemoryLocks, MySqlLocks, PostgresLocks, RedisLocks,
    RedlockLocks, SqliteLocks, ZooKeeperLocks,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use sqlx::{MySql, Postgres, Sqlite};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::contender::Contender;
use super::etcd::V3Lock;
use super::recipe::Recipe;
use super::zookeeper::ByHand;
use super::{Backend, Options};
use crate::at::{BenchDatabase, Fresh};
use crate::child::{RedisKeeps, Server};

/// The lease of locks over several Redis servers, which vote when they have run for this long.
const REDLOCK_LEASE: Duration = Duration::from_secs(2);
/// How long a majority of them may take to vote. On a busy machine a vote may come too late, and is
/// then asked for again.
const VOTES_WITHIN: Duration = Duration::from_secs(60);
/// The pause between two attempts to connect to them.
const CONNECT_EVERY: Duration = Duration::from_millis(50);
/// The lease of locks over a session of ZooKeeper.
const ZOOKEEPER_LEASE: Duration = Duration::from_secs(30);

/// The servers that locks are measured on.
#[derive(Debug)]
pub(crate) struct LockServers {
    pub(super) contenders: Vec<Contender>,
    /// The addresses of those whose clients need not be of this project.
    addresses: Vec<(Backend, String)>,
    coordinator: Server,
    handfast: Handfast,
    redis_servers: Vec<Server>,
    /// The servers that are started as tests start them.
    servers: Vec<DatabaseServer>,
    postgres: Option<Fresh<Postgres>>,
    mysql: Option<Fresh<MySql>>,
    sqlite: Option<Fresh<Sqlite>>,
    directory: TempDir,
}

impl Options {
    fn backends(&self) -> Vec<Backend> {
        if !self.backend.is_empty() {
            return self.backend.clone();
        }
        let known = |backend: &Backend| {
            (*backend != Backend::Postgres || self.postgres.is_some())
                && (*backend != Backend::Mysql || self.mysql.is_some())
                && (*backend != Backend::Etcd || ServerKind::Etcd.programs().are_installed())
                && (*backend != Backend::Zookeeper
                    || ServerKind::ZooKeeper.programs().are_installed())
        };
        <Backend as clap::ValueEnum>::value_variants().iter().copied().filter(known).collect()
    }

    /// The most clients of any row, each of which may need a connection.
    fn connections(&self) -> Result<u32> {
        let most = self.clients.iter().chain(&self.waiters).copied().max().unwrap_or(1);
        Ok(u32::try_from(most)?)
    }

    fn postgres(&self) -> Result<&str> {
        self.postgres.as_deref().context("--postgres names the server")
    }

    fn mysql(&self) -> Result<&str> {
        self.mysql.as_deref().context("--mysql names the server")
    }
}

impl LockServers {
    /// Starts every server that the options ask for.
    pub(super) async fn open(options: &Options) -> Result<Self> {
        let directory = options.place.directory()?;
        let coordinator = Server::coordinator(&directory.path().join("coordinator"), &[]).await?;
        let handfast = Handfast::connect(coordinator.endpoint()).application("bench").await?;
        let mut servers = Self {
            contenders: Vec::new(),
            addresses: Vec::new(),
            coordinator,
            handfast,
            redis_servers: Vec::new(),
            servers: Vec::new(),
            postgres: None,
            mysql: None,
            sqlite: None,
            directory,
        };
        for backend in options.backends() {
            servers.add(backend, options).await.with_context(|| backend.name())?;
        }
        Ok(servers)
    }

    /// Returns the address of a backend's server.
    pub(super) fn address(&self, backend: Backend) -> Result<&str> {
        let found = self.addresses.iter().find(|(of, _)| *of == backend);
        found.map(|(_, address)| address.as_str()).context("a server that is not started")
    }

    /// Ends all of them.
    pub(super) async fn close(self, options: &Options) -> Result<()> {
        drop(self.contenders);
        self.handfast.close().await;
        if let Some(fresh) = self.postgres {
            fresh.remove(options.postgres()?).await?;
        }
        if let Some(fresh) = self.mysql {
            fresh.remove(options.mysql()?).await?;
        }
        if let Some(fresh) = self.sqlite {
            fresh.remove("").await?;
        }
        Ok(())
    }

    async fn add(&mut self, backend: Backend, options: &Options) -> Result<()> {
        match backend {
            Backend::Coordinator => {
                let locks = Locks::over(self.handfast.locks()).start()?;
                let contender = Contender::library(backend, locks);
                self.contenders.push(contender.on(self.coordinator.process()?));
            }
            Backend::Redis => self.add_redis(backend, RedisKeeps::Nothing, options).await?,
            Backend::RedisDefault => {
                self.add_redis(backend, RedisKeeps::Snapshots, options).await?;
            }
            Backend::RedisAlways => self.add_redis(backend, RedisKeeps::Changes, options).await?,
            Backend::Redlock => {
                let urls = self.redis(options, RedisKeeps::Nothing, 3).await?;
                let recipe = Recipe::set_nx(&urls).await?;
                let redlock = redlock(&urls).await?;
                self.add_both(backend, Locks::over(redlock).lease(REDLOCK_LEASE), recipe)?;
            }
            Backend::Postgres => {
                let fresh: Fresh<Postgres> = self.database(options, options.postgres()?).await?;
                let connect = PostgresLocks::connect_with((*fresh.pool.connect_options()).clone());
                let recipe = Recipe::AdvisoryLock(fresh.pool.clone());
                self.postgres = Some(fresh);
                self.add_both(backend, Locks::over(connect.await?), recipe)?;
            }
            Backend::Mysql => {
                let fresh: Fresh<MySql> = self.database(options, options.mysql()?).await?;
                let connect = MySqlLocks::connect_with((*fresh.pool.connect_options()).clone());
                let recipe = Recipe::GetLock(fresh.pool.clone());
                self.mysql = Some(fresh);
                self.add_both(backend, Locks::over(connect.await?), recipe)?;
            }
            Backend::Sqlite => {
                let fresh: Fresh<Sqlite> = self.database(options, "").await?;
                let connect = SqliteLocks::connect_with((*fresh.pool.connect_options()).clone());
                let recipe = Recipe::Writer(fresh.pool.clone());
                self.sqlite = Some(fresh);
                self.add_both(backend, Locks::over(connect.await?), recipe)?;
            }
            Backend::Etcd => {
                let url = self.server(ServerKind::Etcd).await?;
                let recipe = V3Lock::connect(&url, options.connections()?).await?;
                let locks = Locks::over(EtcdLocks::connect([url]).await?);
                self.add_both(backend, locks, Recipe::V3Lock(recipe))?;
            }
            Backend::Zookeeper => {
                let cluster = self.server(ServerKind::ZooKeeper).await?;
                self.addresses.push((backend, cluster.clone()));
                let recipe = ByHand::connect(&cluster).await?;
                let locks = ZooKeeperLocks::connect(&cluster, ZOOKEEPER_LEASE).await?;
                let locks = Locks::over(locks).lease(ZOOKEEPER_LEASE);
                self.add_both(backend, locks, Recipe::ByHand(recipe))?;
            }
            Backend::Memory => {
                let mutexes = (0..options.connections()?).map(|_| Mutex::default()).collect();
                self.add_both(backend, Locks::over(MemoryLocks::new()), Recipe::Mutexes(mutexes))?;
            }
        }
        Ok(())
    }

    async fn add_redis(
        &mut self,
        backend: Backend,
        keeps: RedisKeeps,
        options: &Options,
    ) -> Result<()> {
        let urls = self.redis(options, keeps, 1).await?;
        let locks = Locks::over(RedisLocks::connect(&urls[0]).await?);
        let recipe = Recipe::set_nx(&urls).await?;
        self.addresses.extend(urls.into_iter().map(|url| (backend, url)));
        self.add_both(backend, locks, recipe)
    }

    fn add_both(&mut self, backend: Backend, locks: LocksBuilder, recipe: Recipe) -> Result<()> {
        let locks = locks.guarantee(Guarantee::Efficiency).start()?;
        self.contenders.push(Contender::library(backend, locks));
        self.contenders.push(Contender::plain(backend, recipe));
        Ok(())
    }

    /// Starts a server of this kind, and returns its URL.
    async fn server(&mut self, kind: ServerKind) -> Result<String> {
        let start = move || DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()));
        let server = tokio::task::spawn_blocking(start).await??;
        let url = server.url();
        self.servers.push(server);
        Ok(url)
    }

    /// Starts this number of Redis servers, and returns their URLs.
    async fn redis(
        &mut self,
        options: &Options,
        keeps: RedisKeeps,
        count: usize,
    ) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for _ in 0..count {
            let folder = self.directory.path().join(format!("redis-{}", self.redis_servers.len()));
            let server = Server::redis(&options.redis_server, &folder, keeps).await?;
            urls.push(server.redis_url());
            self.redis_servers.push(server);
        }
        Ok(urls)
    }

    /// Makes a database with the tables of the library. A file has no server, and no URL.
    async fn database<DB: BenchDatabase>(&self, options: &Options, url: &str) -> Result<Fresh<DB>> {
        let folder = self.directory.path();
        let fresh = DB::create(url, folder, options.connections()?).await?;
        self.handfast.migrate(&fresh.pool).await?;
        Ok(fresh)
    }
}

/// Connects to Redis servers that have just started, and waits until they vote.
async fn redlock(urls: &[String]) -> Result<RedlockLocks> {
    let until = Instant::now() + VOTES_WITHIN;
    loop {
        let voting = async {
            let locks = RedlockLocks::connect(urls, REDLOCK_LEASE).await?;
            locks.settled().await.map(|()| locks)
        };
        match voting.await {
            Err(_) if Instant::now() < until => sleep(CONNECT_EVERY).await,
            ended => return Ok(ended?),
        }
    }
}
