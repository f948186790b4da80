//! Locks as they are made by hand with each backend: no queue but the server's own, no fencing
//! token, no renewal, no report when a lock is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};
use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool, Transaction};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use super::etcd::{self, V3Lock};
use super::zookeeper::ByHand;

pub(crate) const SET_NX: &str = "SET NX PX";
const ADVISORY_LOCK: &str = "pg_advisory_lock";
const GET_LOCK: &str = "GET_LOCK";
const WRITER: &str = "BEGIN IMMEDIATE";
const V3LOCK: &str = "v3lock";
const BY_HAND: &str = "sequential nodes by hand";
const MUTEX: &str = "tokio's Mutex";

/// How often a request for a lock in Redis is repeated: far more often than such recipes usually
/// do.
const POLL_EVERY: Duration = Duration::from_millis(10);
const LEASE_MS: u64 = 30_000;
/// How long an answer may take: on a busy machine a slow answer is not an error.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A recipe on its servers.
#[derive(Debug)]
pub(crate) enum Recipe {
    /// On one server, or on most of several.
    SetNx {
        servers: Vec<MultiplexedConnection>,
        delete_own: Script,
    },
    AdvisoryLock(PgPool),
    GetLock(MySqlPool),
    /// One writer at a time, which is the only lock that SQLite has.
    Writer(SqlitePool),
    V3Lock(V3Lock),
    ByHand(ByHand),
    /// A mutex for each client.
    Mutexes(Vec<Mutex<()>>),
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) enum Held<'r> {
    Value(String),
    AdvisoryLock(PoolConnection<Postgres>),
    GetLock(PoolConnection<MySql>),
    Writer(Transaction<'static, Sqlite>),
    V3Lock(etcd::Held),
    Node(String),
    Mutex(#[expect(dead_code, reason = "it is held, not looked at")] MutexGuard<'r, ()>),
}

impl Recipe {
    /// `SET NX PX` on these Redis servers.
    pub(crate) async fn set_nx(urls: &[String]) -> Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_WITHIN));
        let connect = async |url: &String| {
            let client = Client::open(url.as_str())?;
            client.get_multiplexed_async_connection_with_config(&config).await
        };
        let servers =
            try_join_all(urls.iter().map(connect)).await.context("connecting to Redis")?;
        Ok(Self::SetNx { servers, delete_own: Script::new(DELETE_OWN) })
    }

    /// Returns the name of the recipe.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::SetNx { .. } => SET_NX,
            Self::AdvisoryLock(_) => ADVISORY_LOCK,
            Self::GetLock(_) => GET_LOCK,
            Self::Writer(_) => WRITER,
            Self::V3Lock(_) => V3LOCK,
            Self::ByHand(_) => BY_HAND,
            Self::Mutexes(_) => MUTEX,
        }
    }

    /// Waits until the lock of this number is held.
    pub(crate) async fn take(&self, number: usize) -> Result<Held<'_>> {
        Ok(match self {
            Self::SetNx { servers, delete_own } => {
                let value = format!("{:032x}", rand::random::<u128>());
                while !set_on_most(servers, number, &value).await? {
                    delete_on_all(servers, delete_own, number, &value).await?;
                    sleep(POLL_EVERY).await;
                }
                Held::Value(value)
            }
            Self::AdvisoryLock(pool) => {
                let mut connection = pool.acquire().await?;
                let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(i64::try_from(number)?);
                lock.execute(&mut *connection).await?;
                Held::AdvisoryLock(connection)
            }
            Self::GetLock(pool) => {
                let mut connection = pool.acquire().await?;
                let lock = sqlx::query_scalar("SELECT GET_LOCK(?, 60)").bind(name(number));
                let got: Option<i64> = lock.fetch_one(&mut *connection).await?;
                ensure!(got == Some(1), "GET_LOCK answered {got:?}");
                Held::GetLock(connection)
            }
            Self::Writer(pool) => Held::Writer(pool.begin_with("BEGIN IMMEDIATE").await?),
            Self::V3Lock(etcd) => Held::V3Lock(etcd.take(name(number)).await?),
            Self::ByHand(zookeeper) => Held::Node(zookeeper.take(&name(number)).await?),
            Self::Mutexes(mutexes) => {
                let mutex = mutexes.get(number).context("there is a mutex for each client")?;
                Held::Mutex(mutex.lock().await)
            }
        })
    }

    /// Releases it.
    pub(crate) async fn release(&self, number: usize, held: Held<'_>) -> Result<()> {
        match (self, held) {
            (Self::SetNx { servers, delete_own }, Held::Value(value)) => {
                delete_on_all(servers, delete_own, number, &value).await?;
            }
            (_, Held::AdvisoryLock(mut connection)) => {
                let unlock =
                    sqlx::query("SELECT pg_advisory_unlock($1)").bind(i64::try_from(number)?);
                unlock.execute(&mut *connection).await?;
            }
            (_, Held::GetLock(mut connection)) => {
                let unlock = sqlx::query("SELECT RELEASE_LOCK(?)").bind(name(number));
                unlock.execute(&mut *connection).await?;
            }
            (_, Held::Writer(transaction)) => transaction.commit().await?,
            (Self::V3Lock(etcd), Held::V3Lock(held)) => etcd.release(held).await?,
            (Self::ByHand(zookeeper), Held::Node(node)) => zookeeper.release(&node).await?,
            (_, Held::Mutex(_) | Held::Value(_) | Held::V3Lock(_) | Held::Node(_)) => {}
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("bench/{number}")
}

/// Sets a value, and returns whether most of the servers have set it.
async fn set_on_most(
    servers: &[MultiplexedConnection],
    number: usize,
    value: &str,
) -> Result<bool> {
    let set = async |server: &MultiplexedConnection| {
        let mut command = redis::cmd("SET");
        command.arg(name(number)).arg(value).arg("NX").arg("PX").arg(LEASE_MS);
        command.query_async::<Option<String>>(&mut server.clone()).await
    };
    let answers = try_join_all(servers.iter().map(set)).await?;
    Ok(answers.iter().flatten().count() * 2 > servers.len())
}

async fn delete_on_all(
    servers: &[MultiplexedConnection],
    delete_own: &Script,
    number: usize,
    value: &str,
) -> Result<()> {
    let delete = async |server: &MultiplexedConnection| {
        let mut call = delete_own.key(name(number));
        call.arg(value).invoke_async::<i64>(&mut server.clone()).await
    };
    try_join_all(servers.iter().map(delete)).await?;
    Ok(())
}
