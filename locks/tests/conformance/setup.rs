//! A backend under test, on a database that the test run shares. Names keep tests apart.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast::Handfast;
use handfast_locks::{
    AcquireRequest, AcquireResponse, AcquisitionId, Backend, BackendError, EtcdLocks, Guarantee,
    LockMode, LockName, LockRef, Locks, LocksBuilder, MemoryLocks, Moment, MySqlLocks,
    PostgresLocks, QueueMode, RedisLocks, RedlockLocks, ReleaseRequest, ReleaseResponse,
    SqliteLocks, WakeUp, ZooKeeperLocks,
};
use handfast_migrations::{Database, client_migrations};
use handfast_test_services::{EmbeddedCoordinator, until_some};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::sync::{OnceCell, mpsc};

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
            Kind::Redis => Arc::new(redis_locks(&server("HANDFAST_TEST_REDIS")).await),
            Kind::Redlock => Arc::new(redlock(&server("HANDFAST_TEST_REDLOCK")).await),
            Kind::Etcd => Arc::new(etcd_locks(&server("HANDFAST_TEST_ETCD")).await),
            Kind::ZooKeeper => {
                let cluster = server("HANDFAST_TEST_ZOOKEEPER");
                Arc::new(ZooKeeperLocks::connect(&cluster, LEASE).await.unwrap())
            }
        };
        Self { backend: Arc::new(Patient(backend)) }
    }

    /// Starts a client.
    pub(crate) fn locks(&self) -> Locks {
        self.settings().start().unwrap()
    }

    pub(crate) fn settings(&self) -> LocksBuilder {
        over(Arc::clone(&self.backend))
    }
}

/// A backend whose requests are repeated until they are answered: a busy machine may answer later
/// than the backend waits, and a try that is not answered fails.
#[derive(Debug)]
struct Patient(Arc<dyn Backend>);

impl Patient {
    const WAIT_MAX: Duration = Duration::from_secs(60);
    /// The pause before a repetition. A server that is late needs the processor.
    const PAUSE: Duration = Duration::from_millis(20);

    fn is_over<T>(answer: &Result<T, BackendError>, end: Moment) -> bool {
        answer.as_ref().err().is_none_or(|error| error.is_final() || end <= Moment::now())
    }
}

#[async_trait]
impl Backend for Patient {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }

    /// A backend that times its requests out itself must not be cut off in the midst of one.
    fn request_timeout(&self) -> Option<Duration> {
        self.0.request_timeout()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        let end = Moment::now() + Self::WAIT_MAX;
        loop {
            let answer = self.0.acquire(request).await;
            if Self::is_over(&answer, end) {
                return answer;
            }
            tokio::time::sleep(Self::PAUSE).await;
        }
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let end = Moment::now() + Self::WAIT_MAX;
        loop {
            let answer = self.0.renew(lock_refs, lease).await;
            if Self::is_over(&answer, end) {
                return answer;
            }
            tokio::time::sleep(Self::PAUSE).await;
        }
    }

    /// Not repeated here: only a client knows what the answer to a repeated release means.
    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        self.0.release(request).await
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.0.listen(client, wake_ups).await
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

/// Connects to a server that may be slow on a loaded machine.
pub(crate) async fn redis_locks(url: &str) -> RedisLocks {
    until_some("Redis answers", async || RedisLocks::connect(url).await.ok()).await
}

/// Connects to servers that may be slow on a loaded machine.
pub(crate) async fn etcd_locks(urls: &str) -> EtcdLocks {
    until_some("etcd answers", async || EtcdLocks::connect(urls.split(',')).await.ok()).await
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
