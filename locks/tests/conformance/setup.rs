//! A backend under test, on a database that the test run shares. Names keep tests apart.

use std::sync::Arc;
use std::time::Duration;

use handfast::Handfast;
use handfast_locks::{
    AcquireRequest, AcquisitionId, Backend, EtcdLocks, Guarantee, LockMode, LockName, LockRef,
    Locks, LocksBuilder, MemoryLocks, MySqlLocks, PostgresLocks, QueueMode, RedisLocks,
    RedlockLocks, SqliteLocks, ZooKeeperLocks,
};
use handfast_migrations::{Database, client_migrations};
use handfast_test_services::{EmbeddedCoordinator, until_some};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::sync::OnceCell;

/// Long enough not to end by itself on a loaded machine.
pub(crate) const LEASE: Duration = Duration::from_secs(20);

/// The kinds of backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Coordinator,
    Postgres,
    MySql,
    Sqlite,
    Redis,
    Redlock,
    Etcd,
    ZooKeeper,
}

pub(crate) struct TestBackend {
    pub(crate) backend: Arc<dyn Backend>,
}

impl TestBackend {
    pub(crate) async fn new(kind: Kind) -> Self {
        let backend: Arc<dyn Backend> = match kind {
            Kind::Memory => Arc::new(MemoryLocks::new()),
            Kind::Coordinator => {
                let handfast = Handfast::connect(coordinator()).await.unwrap();
                Arc::new(handfast.locks())
            }
            Kind::Postgres => {
                let url = POSTGRES.get_or_init(postgres).await;
                Arc::new(PostgresLocks::connect(url).await.unwrap())
            }
            Kind::MySql => {
                Arc::new(MySqlLocks::connect(MYSQL.get_or_init(mysql).await).await.unwrap())
            }
            Kind::Sqlite => {
                let (url, _) = SQLITE.get_or_init(sqlite).await;
                Arc::new(SqliteLocks::connect(url).await.unwrap())
            }
            Kind::Redis => {
                let url = server("HANDFAST_TEST_REDIS");
                Arc::new(RedisLocks::connect(&url).await.unwrap())
            }
            Kind::Redlock => Arc::new(redlock(&server("HANDFAST_TEST_REDLOCK")).await),
            Kind::Etcd => {
                let members = server("HANDFAST_TEST_ETCD");
                Arc::new(EtcdLocks::connect(members.split(',')).await.unwrap())
            }
            Kind::ZooKeeper => {
                let cluster = server("HANDFAST_TEST_ZOOKEEPER");
                Arc::new(ZooKeeperLocks::connect(&cluster, LEASE).await.unwrap())
            }
        };
        Self { backend }
    }

    /// Starts a client.
    pub(crate) fn locks(&self) -> Locks {
        self.settings().start().unwrap()
    }

    pub(crate) fn settings(&self) -> LocksBuilder {
        over(Arc::clone(&self.backend))
    }
}

/// Begins a client over any backend.
pub(crate) fn over(backend: Arc<dyn Backend>) -> LocksBuilder {
    Locks::over(backend).guarantee(Guarantee::Efficiency).lease(LEASE).label("a test")
}

/// Returns a name that no other test has.
pub(crate) fn fresh() -> String {
    format!("test/{:032x}", rand_u128())
}

/// Makes an acquisition without a client.
pub(crate) fn lock_ref(name: &str) -> LockRef {
    let name = LockName::new(name).unwrap();
    LockRef { name, id: AcquisitionId { client: rand_u128(), number: 1 } }
}

pub(crate) fn acquire_request(lock_ref: &LockRef, queue: QueueMode) -> AcquireRequest {
    let (name, id) = (lock_ref.name.clone(), lock_ref.id);
    let (mode, label) = (LockMode::Exclusive, "a test".into());
    AcquireRequest { name, id, mode, lease: LEASE, label, queue }
}

fn rand_u128() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(std::time::Instant::now()));
    half() << 64 | half()
}

static POSTGRES: OnceCell<String> = OnceCell::const_new();
static MYSQL: OnceCell<String> = OnceCell::const_new();
static SQLITE: OnceCell<(String, tempfile::TempDir)> = OnceCell::const_new();

pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `cargo xtask test`, which starts servers")
    })
}

/// Makes a database with the tables in it, and returns its URL.
pub(crate) async fn postgres() -> String {
    let url = server("HANDFAST_TEST_POSTGRES");
    let name = format!("locks_{:032x}", rand_u128());
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let url = format!("{server}/{name}");
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    for statement in statements(Database::Postgres) {
        connection.execute(statement).await.unwrap();
    }
    url
}

/// Returns the endpoint of a coordinator that all tests of this process share.
pub(crate) fn coordinator() -> String {
    EmbeddedCoordinator::shared().endpoint()
}

/// Connects to Redis. The client's own limit for an answer, half a second, is shorter than a busy
/// machine pauses.
pub(crate) async fn redis_connection(url: &str) -> redis::aio::MultiplexedConnection {
    let limit = Some(Duration::from_secs(60));
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(limit);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

pub(crate) async fn mysql() -> String {
    let url = server("HANDFAST_TEST_MYSQL");
    let name = format!("locks_{:032x}", rand_u128());
    let mut connection = sqlx::MySqlConnection::connect(&url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let url = format!("{}/{name}", url.trim_end_matches('/'));
    let mut connection = sqlx::MySqlConnection::connect(&url).await.unwrap();
    for statement in statements(Database::MySql) {
        connection.execute(statement).await.unwrap();
    }
    url
}

pub(crate) async fn sqlite() -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("locks.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    connection.execute("PRAGMA journal_mode = WAL").await.unwrap();
    for statement in statements(Database::Sqlite) {
        connection.execute(statement).await.unwrap();
    }
    (url, folder)
}

/// Connects to servers that may have been started a moment ago, or are slow on a loaded machine.
pub(crate) async fn redlock(urls: &str) -> RedlockLocks {
    until_some("enough Redis servers vote", async || {
        let locks = RedlockLocks::connect(urls.split(','), LEASE).await.ok()?;
        locks.settled().await.is_ok().then_some(locks)
    })
    .await
}

fn statements(database: Database) -> impl Iterator<Item = &'static str> {
    client_migrations(database).iter().flat_map(|step| step.statements())
}
